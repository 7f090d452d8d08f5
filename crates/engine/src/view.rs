//! Looks into the engine: the state that callers see between two turns.

use std::sync::Arc;

use paceline_core::{
    Blob, Core, JobId, JobState, LaneStatus, Lookup, Now, Numbered, Outcome, RosterStatus,
    ServiceStatus, Summary, Why,
};
use paceline_store::{Cursor, JobFilter, Store, StoreError, StoredJob};

use crate::turn::Machine;

/// Jobs looked at for one page of a list: more would hold up the loop.
const MOST_LISTED: usize = 2_000;
/// Jobs that are read at once for a page.
const MOST_READ: usize = 20;
/// Bytes of values, roughly, after which a page ends.
const LARGEST_PAGE: usize = 8 << 20;
/// Events in one answer at most.
const MOST_EVENTS: usize = 1_000;

/// The engine between two turns: what it shows is durable.
pub(crate) struct View<'a> {
    core: &'a Core,
    store: &'a mut dyn Store,
    now: Now,
}

/// A job as it stands.
#[derive(Clone, Debug)]
pub struct JobView {
    /// The job as it was submitted, and its report if it has one.
    pub stored: StoredJob,
    /// Waiting, running, or how it ended.
    pub state: JobState,
    /// Why its calls wait, by call number. Filled by [`Paceline::job`](crate::Paceline::job), empty
    /// in lists.
    pub why: Vec<(u16, Why)>,
}

/// The jobs that are listed. A field that is `None` admits all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Jobs in this state.
    pub state: Option<JobState>,
    /// Jobs with a call on this lane.
    pub lane: Option<Arc<str>>,
    /// Jobs of this kind.
    pub kind: Option<Arc<str>>,
    /// Jobs of this tenant.
    pub tenant: Option<Arc<str>>,
}

impl From<Option<JobState>> for Filter {
    fn from(state: Option<JobState>) -> Filter {
        Filter { state, ..Filter::default() }
    }
}

impl JobView {
    /// Drops the values of its calls, which may be large.
    #[must_use]
    pub fn without_values(mut self) -> JobView {
        let calls = self.stored.report.iter_mut().flat_map(|report| report.calls.iter_mut());
        for call in calls {
            if let Outcome::Done { value, .. } = &mut call.outcome {
                *value = Blob::default();
            }
        }
        self
    }

    /// The bytes of the values of its calls.
    fn size(&self) -> usize {
        let calls = self.stored.report.iter().flat_map(|report| report.calls.iter());
        let values = calls.filter_map(|call| match &call.outcome {
            Outcome::Done { value, .. } => Some(value.len()),
            _ => None,
        });
        values.sum()
    }
}

impl Filter {
    /// Returns `true` if the job passes the filter.
    pub fn fits(&self, job: &JobView) -> bool {
        let spec = &job.stored.record.spec;
        let on = |lane: &Arc<str>| spec.stages.iter().flatten().any(|other| other == lane);
        self.state.is_none_or(|state| job.state == state)
            && self.lane.as_ref().is_none_or(on)
            && self.kind.as_ref().is_none_or(|kind| spec.kind == *kind)
            && self.tenant.as_ref().is_none_or(|tenant| spec.tenant.as_ref() == Some(tenant))
    }
}

impl<S: Store> Machine<S> {
    /// Looks at what the last turn left. To be called between turns only, so that no caller hears
    /// of anything that is not durable.
    pub(crate) fn view(&mut self, now: Now) -> View<'_> {
        View { core: &self.core, store: &mut self.store, now }
    }
}

impl View<'_> {
    /// Why the calls of a job wait, by call number; nothing for a job that is finished or unknown.
    pub(crate) fn why(&self, job: JobId) -> Vec<(u16, Why)> {
        self.core.why_job(job, self.now).unwrap_or_default()
    }

    /// One job, finished or not.
    pub(crate) fn job(&mut self, id: JobId) -> Result<Option<JobView>, StoreError> {
        let stored = self.store.job(id)?;
        Ok(stored.map(|stored| JobView { why: self.why(id), ..self.stands(stored) }))
    }

    /// The payload of a job, finished or not.
    pub(crate) fn payload(&mut self, job: JobId) -> Result<Option<Blob>, StoreError> {
        self.store.payload(job)
    }

    /// The newest finished job with each of these keys, in the order asked.
    pub(crate) fn finished(&mut self, keys: &[Blob]) -> Result<Vec<Option<JobView>>, StoreError> {
        let found = self.store.finished(keys)?.into_iter();
        Ok(found.map(|stored| stored.map(|stored| self.stands(stored))).collect())
    }

    /// The newest finished job with a key, and the unfinished one.
    pub(crate) fn keyed(&mut self, key: &Blob) -> Result<Vec<JobView>, StoreError> {
        let mut found = self.store.finished(std::slice::from_ref(key))?;
        if let Some(job) = self.core.job_with_key(key) {
            found.push(self.store.job(job)?);
        }
        Ok(found.into_iter().flatten().map(|stored| self.stands(stored)).collect())
    }

    /// Lanes by name.
    pub(crate) fn lanes(&self) -> Vec<LaneStatus> {
        self.core.lane_statuses(self.now)
    }

    /// Services by name.
    pub(crate) fn services(&self) -> Vec<ServiceStatus> {
        self.core.service_statuses(self.now)
    }

    /// Rosters by name.
    pub(crate) fn rosters(&self) -> Vec<RosterStatus> {
        self.core.roster_statuses(self.now)
    }

    /// The figures of the whole engine.
    pub(crate) fn summary(&self) -> Summary {
        self.core.summary(self.now)
    }

    /// The note that is kept under a name.
    pub(crate) fn note(&mut self, name: &str) -> Result<Option<Blob>, StoreError> {
        self.store.note(name)
    }

    /// Kept events with numbers above `after`, and the number of the next one to come.
    pub(crate) fn events(
        &mut self,
        after: u64,
        most: usize,
    ) -> Result<(Vec<Numbered>, u64), StoreError> {
        let events = self.store.events(after, most.min(MOST_EVENTS))?;
        Ok((events, self.core.counters().event))
    }

    /// What became of jobs that were handed in under a name.
    pub(crate) fn remembered(&mut self, name: Blob) -> Result<Option<Blob>, StoreError> {
        let asked = [Lookup { lane: crate::once::PLACE.into(), key: name }];
        let answers = self.store.answers(&asked, self.now.time)?;
        Ok(answers.into_iter().flatten().find_map(|answer| answer.value).map(|value| value.value))
    }

    fn stands(&self, stored: StoredJob) -> JobView {
        let finished = stored.report.as_ref().map(|report| report.state);
        let state = finished.unwrap_or_else(|| self.core.job_state(stored.record.id));
        JobView { stored, state, why: Vec::new() }
    }

    /// A page: as many jobs as asked for, or as many as may be looked at; and where the next page
    /// starts.
    pub(crate) fn list(
        &mut self,
        mut from: Cursor,
        most: usize,
        filter: &Filter,
    ) -> Result<(Vec<JobView>, Option<JobId>), StoreError> {
        let (mut page, mut seen, mut size) = (Vec::new(), 0, 0);
        // A list of unfinished jobs does not pay for the finished ones.
        let among = match filter.state {
            Some(JobState::Waiting | JobState::Running) => JobFilter::Unfinished,
            _ => JobFilter::All,
        };
        loop {
            let jobs = self.store.list(from, most.clamp(1, MOST_READ), among)?;
            let Some(last) = jobs.last() else { return Ok((page, None)) };
            let last = last.record.id;
            (from, seen) = (from.at(last), seen + jobs.len());
            for stored in jobs {
                let view = self.stands(stored);
                let id = view.stored.record.id;
                size += view.size();
                if filter.fits(&view) {
                    page.push(view);
                }
                if page.len() >= most || size >= LARGEST_PAGE {
                    return Ok((page, Some(id)));
                }
            }
            if seen >= MOST_LISTED {
                return Ok((page, Some(last)));
            }
        }
    }
}
