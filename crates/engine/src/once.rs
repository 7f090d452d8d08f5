//! Work that is handed in once, however often its caller repeats itself: what became of it is
//! remembered in the very commit that accepts it.

use std::collections::BTreeMap;

use paceline_core::{Admission, Blob, CachedAnswer, CachedValue, Span, SubmitError, Time, Write};
use serde::{Deserialize, Serialize};

use crate::following::NotSubmitted;

/// Where it is remembered: among the answers of a lane that no lane can be.
pub(crate) const PLACE: &str = "";

/// Under which name a submission is remembered.
#[derive(Clone, Debug)]
pub struct Once {
    /// The caller's name for it.
    pub name: Blob,
    /// What it was told with it, to be compared.
    pub mark: String,
    /// For how long.
    pub keep: Span,
    /// What was refused before it came here, and why, by its place in the whole list.
    pub refused: BTreeMap<usize, String>,
    /// How it is put into words that a job cannot be accepted.
    pub words: fn(&NotSubmitted) -> String,
}

/// What became of an earlier submission.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Remembered {
    /// What was told with it.
    pub mark: String,
    /// What became of each job of the whole list: its admission, or why it can never be accepted.
    pub jobs: Vec<Result<Admission, String>>,
}

impl Once {
    /// What is to be remembered. If nothing was accepted, its caller may well try again.
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
