//! Submissions that may be repeated: their result is remembered in the commit that accepts them.

use std::collections::BTreeMap;

use paceline_core::{Admission, Blob, CachedAnswer, CachedValue, Span, SubmitError, Time, Write};
use serde::{Deserialize, Serialize};

use crate::following::NotSubmitted;

/// The lane under which results are remembered, among cached answers. No lane has this name.
pub(crate) const PLACE: &str = "";

/// The name under which a submission is remembered, so that a caller may repeat it.
#[derive(Clone, Debug)]
pub struct Once {
    /// The name, chosen by the caller.
    pub name: Blob,
    /// A mark of the submission, to tell a repetition from another submission with the same name.
    pub mark: String,
    /// How long it is remembered.
    pub keep: Span,
    /// Jobs that were refused before the submission, and why, by their place in the whole list.
    pub refused: BTreeMap<usize, String>,
    /// Makes the text that is remembered for a job that cannot be accepted.
    pub words: fn(&NotSubmitted) -> String,
}

/// The result of an earlier submission.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Remembered {
    /// Its mark.
    pub mark: String,
    /// For each job of the whole list its admission, or why it can never be accepted.
    pub jobs: Vec<Result<Admission, String>>,
}

impl Once {
    /// The write that remembers it. If no job was accepted nothing is remembered, and the caller may
    /// try again.
    pub(crate) fn write(
        self,
        admissions: &[Result<Admission, SubmitError>],
        now: Time,
    ) -> Option<Write> {
        admissions.iter().flatten().find_map(Admission::job)?;
        let mut refused = self.refused;
        let mut jobs = Vec::with_capacity(admissions.len() + refused.len());
        for admission in admissions {
            while let Some(why) = refused.remove(&jobs.len()) {
                jobs.push(Err(why));
            }
            let told = admission.clone().map_err(NotSubmitted::from);
            jobs.push(told.map_err(|error| (self.words)(&error)));
        }
        jobs.extend(refused.into_values().map(Err));
        let remembered = Remembered { mark: self.mark, jobs };
        let value = serde_json::to_vec(&remembered).expect("plain words are JSON").into();
        Some(Write::Answer(CachedAnswer {
            lane: PLACE.into(),
            key: self.name,
            value: Some(CachedValue { conclusive: true, value }),
            expires_at: now + self.keep,
        }))
    }
}
