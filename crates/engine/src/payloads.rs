//! Payloads of waiting jobs, kept in memory while there is room; the rest stay on disk.

use std::collections::HashMap;

use paceline_core::{Blob, JobId};

/// Bytes of payloads held in memory at most.
const MOST_BYTES: usize = 64 << 20;

/// The newest payloads that fit.
#[derive(Debug, Default)]
pub(crate) struct Payloads {
    kept: HashMap<JobId, Blob>,
    bytes: usize,
}

impl Payloads {
    /// Keeps a payload if there is room; the store has it in any case.
    pub(crate) fn keep(&mut self, job: JobId, payload: Blob) {
        if self.bytes + payload.len() <= MOST_BYTES {
            self.bytes += payload.len();
            self.kept.insert(job, payload);
        }
    }

    /// The payload changed.
    pub(crate) fn replace(&mut self, job: JobId, payload: Blob) {
        self.forget(job);
        self.keep(job, payload);
    }

    /// The payload, if it was kept.
    pub(crate) fn get(&self, job: JobId) -> Option<Blob> {
        self.kept.get(&job).cloned()
    }

    /// The job is finished.
    pub(crate) fn forget(&mut self, job: JobId) {
        if let Some(payload) = self.kept.remove(&job) {
            self.bytes -= payload.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_held_are_bounded() {
        let mut payloads = Payloads::default();
        let large: Blob = vec![0; MOST_BYTES / 2].into();
        for job in 1..=3 {
            payloads.keep(JobId(job), large.clone());
        }
        assert!(payloads.get(JobId(2)).is_some() && payloads.get(JobId(3)).is_none());
        payloads.forget(JobId(1));
        payloads.keep(JobId(3), large);
        assert!(payloads.get(JobId(3)).is_some());
    }
}
