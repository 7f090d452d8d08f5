//! The bytes of a row: a form number, then postcard.

use std::collections::HashMap;
use std::sync::Arc;

use paceline_core::{Answer, CallReport, JobId, JobSpec, JobState, Outcome, Report, Span, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first byte of every blob. Rows are read for ever: a type that changes gets the next number
/// and a copy of what it was under this one.
const FORM: u8 = 1;

/// Encodes one value at a time without allocating for each.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    pub(super) fn bytes_of<T: Serialize + ?Sized>(&mut self, value: &T) -> &[u8] {
        let mut bytes = std::mem::take(&mut self.0);
        bytes.clear();
        bytes.push(FORM);
        self.0 = postcard::to_extend(value, bytes).expect("memory takes any value");
        &self.0
    }

    /// Two values, each with its own form number.
    pub(super) fn bytes_of_both<A: Serialize, B: Serialize>(
        &mut self,
        first: &A,
        second: &B,
    ) -> (&[u8], &[u8]) {
        let middle = self.bytes_of(first).len();
        let mut bytes = std::mem::take(&mut self.0);
        bytes.push(FORM);
        self.0 = postcard::to_extend(second, bytes).expect("memory takes any value");
        self.0.split_at(middle)
    }

    pub(super) fn bytes_of_report(&mut self, report: &Report) -> &[u8] {
        let calls: Vec<_> = report.calls.iter().map(CallForm::of).collect();
        self.bytes_of(&(report.state, report.answer, calls))
    }
}

/// Bytes that no version of this program has written.
#[derive(Debug, thiserror::Error)]
#[error("a {what} cannot be read")]
pub(super) struct Unreadable {
    what: &'static str,
}

/// Reads what [`Buffer::bytes_of`] wrote; `what` names it in the error.
pub(super) fn read<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Unreadable> {
    let Some((&FORM, body)) = bytes.split_first() else { return Err(Unreadable { what }) };
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(Unreadable { what }),
    }
}

/// Reads a report; its job and its moment are columns of their own.
pub(super) fn read_report(
    job: JobId,
    finished_at: Time,
    bytes: &[u8],
) -> Result<Report, Unreadable> {
    let (state, answer, calls): (JobState, Answer, Vec<CallForm<Arc<str>, Outcome>>) =
        read("report", bytes)?;
    let calls = calls.into_iter().map(CallReport::from).collect();
    Ok(Report { job, state, answer, finished_at, calls })
}

/// A call's report to the microsecond: the JSON that programs read is rounded.
#[derive(Serialize, Deserialize)]
struct CallForm<L, O> {
    lane: L,
    outcome: O,
    attempts: u32,
    waited: Span,
    ran: Span,
    cached: bool,
}

impl<'a> CallForm<&'a str, &'a Outcome> {
    fn of(call: &'a CallReport) -> Self {
        CallForm {
            lane: &call.lane,
            outcome: &call.outcome,
            attempts: call.attempts,
            waited: call.waited,
            ran: call.ran,
            cached: call.cached,
        }
    }
}

impl From<CallForm<Arc<str>, Outcome>> for CallReport {
    fn from(form: CallForm<Arc<str>, Outcome>) -> CallReport {
        let CallForm { lane, outcome, attempts, waited, ran, cached } = form;
        CallReport { lane, outcome, attempts, waited, ran, cached }
    }
}

/// Specs read so far, so that jobs which differ only in their payload share one.
#[derive(Default)]
pub(super) struct Specs(HashMap<Box<[u8]>, Arc<JobSpec>>);

impl Specs {
    /// Beyond so many different specs sharing is not worth its memory.
    const MOST: usize = 4_096;

    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Arc<JobSpec>, Unreadable> {
        if let Some(spec) = self.0.get(bytes) {
            return Ok(spec.clone());
        }
        let spec = Arc::new(read::<JobSpec>("job", bytes)?);
        // A spec with a key is hardly ever seen twice.
        let keyed = spec.key.is_some() || spec.schedule_key.is_some() || spec.cache_key.is_some();
        if !keyed && self.0.len() < Specs::MOST {
            self.0.insert(bytes.into(), spec.clone());
        }
        Ok(spec)
    }
}
