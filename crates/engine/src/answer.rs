//! Questions: what can be asked of a running engine, and what it answers.

use std::sync::Arc;

use paceline_core::{
    Admission, Blob, Cancelled, JobId, JobState, LaneStatus, Lookup, Now, Numbered, Outcome,
    RosterStatus, RunError, ServiceStatus, SubmitError, Summary, UnknownLane, UnknownService, Why,
};
use paceline_store::{Cursor, JobFilter, Store, StoreError, StoredJob};

use crate::turn::{Machine, RetryError};

/// Jobs looked at for one page of a list: more would hold up everybody else.
const MOST_LISTED: usize = 2_000;
/// Jobs that are read at once for it.
const MOST_READ: usize = 20;
/// Bytes of values that are read for one page, about.
const LARGEST_PAGE: usize = 8 << 20;
/// Events in one answer.
const MOST_EVENTS: usize = 1_000;

/// What can be asked.
#[derive(Clone, Debug)]
pub enum Question {
    /// Why the calls of a job wait.
    Why(JobId),
    /// One job.
    Job(JobId),
    /// What one job carries.
    Payload(JobId),
    /// Jobs from there on, so many at most, that fit.
    List(Cursor, usize, Filter),
    /// Jobs with this key: the unfinished one, and the newest finished one.
    Keyed(Blob),
    /// The newest finished job with each of these keys.
    Finished(Vec<Blob>),
    /// All lanes.
    Lanes,
    /// All services.
    Services,
    /// All rosters.
    Rosters,
    /// What is kept under a name.
    Note(Arc<str>),
    /// Kept events with numbers above this one, so many at most.
    Events(u64, usize),
    /// What became of jobs that were handed in under a name.
    Remembered(Blob),
    /// How much there is of everything.
    Summary,
    /// Whether nothing is left to do.
    Idle,
}

/// The answer to an input, to be given once it is durable.
#[derive(Clone, Debug)]
pub enum Reply {
    /// One admission per submitted job.
    Submitted(Vec<Result<Admission, SubmitError>>),
    /// The job that tries again.
    Retried(Result<Admission, RetryError>),
    /// What became of the wish.
    Cancelled(Cancelled),
    /// The lane did as told.
    Lane(Result<(), UnknownLane>),
    /// The job that runs the service.
    Run(Result<Admission, RunError>),
    /// The service is marked.
    Reset(Result<(), UnknownService>),
    /// It is as told.
    Kept,
    /// By call number; nothing for a job that is finished or unknown.
    Why(Vec<(u16, Why)>),
    /// The job, if there is one.
    Job(Option<Box<JobView>>),
    /// The payload of the job, if there is one.
    Payload(Option<Blob>),
    /// A page of jobs, and where the next page starts.
    List(Vec<JobView>, Option<JobId>),
    /// One job or none per key, in the order asked.
    Finished(Vec<Option<JobView>>),
    /// Lanes by name.
    Lanes(Vec<LaneStatus>),
    /// Services by name.
    Services(Vec<ServiceStatus>),
    /// Rosters by name.
    Rosters(Vec<RosterStatus>),
    /// What is kept, if anything.
    Note(Option<Blob>),
    /// Kept events, and the number of the next one to come.
    Events(Vec<Numbered>, u64),
    /// What is remembered, if anything.
    Remembered(Option<Blob>),
    /// The figures.
    Summary(Summary),
    /// Whether nothing is left to do.
    Idle(bool),
}

/// A job as it stands.
#[derive(Clone, Debug)]
pub struct JobView {
    /// What was submitted, and its report if it has one.
    pub stored: StoredJob,
    /// Waiting, running or what it came to.
    pub state: JobState,
    /// Why its calls wait, by call number; only for a job that was asked for by itself (W3).
    pub why: Vec<(u16, Why)>,
}

/// Which jobs are listed; nothing means any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this state.
    pub state: Option<JobState>,
    /// With a call on this lane.
    pub lane: Option<Arc<str>>,
    /// Of this kind.
    pub kind: Option<Arc<str>>,
    /// Of this tenant.
    pub tenant: Option<Arc<str>>,
}

impl From<Option<JobState>> for Filter {
    fn from(state: Option<JobState>) -> Filter {
        Filter { state, ..Filter::default() }
    }
}

impl JobView {
    /// The same without what the answers brought, which may be much.
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

    /// The size of what its answers brought.
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
    /// Whether a job is one of those.
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
    /// Answers a question, after what came before it is durable.
    pub(crate) fn answer(&mut self, question: Question, now: Now) -> Result<Reply, StoreError> {
        Ok(match question {
            Question::Why(job) => Reply::Why(self.core.why_job(job, now).unwrap_or_default()),
            Question::Job(job) => {
                let stored = self.store.job(job)?;
                let why = self.core.why_job(job, now).unwrap_or_default();
                Reply::Job(stored.map(|stored| Box::new(JobView { why, ..self.view(stored) })))
            }
            Question::Payload(job) => Reply::Payload(self.store.payload(job)?),
            Question::List(from, most, filter) => self.list(from, most, &filter)?,
            Question::Keyed(key) => self.keyed(&key)?,
            Question::Finished(keys) => {
                let found = self.store.finished(&keys)?;
                let found = found.into_iter().map(|stored| stored.map(|stored| self.view(stored)));
                Reply::Finished(found.collect())
            }
            Question::Lanes => Reply::Lanes(self.core.lane_statuses(now)),
            Question::Services => Reply::Services(self.core.service_statuses(now)),
            Question::Rosters => Reply::Rosters(self.core.roster_statuses(now)),
            Question::Note(name) => Reply::Note(self.store.note(&name)?),
            Question::Events(after, most) => {
                let events = self.store.events(after, most.min(MOST_EVENTS))?;
                Reply::Events(events, self.core.counters().event)
            }
            Question::Remembered(name) => {
                let asked = [Lookup { lane: crate::once::PLACE.into(), key: name }];
                let answers = self.store.answers(&asked, now.time)?;
                let value = answers.into_iter().flatten().find_map(|answer| answer.value);
                Reply::Remembered(value.map(|value| value.value))
            }
            Question::Summary => Reply::Summary(self.core.summary(now)),
            Question::Idle => Reply::Idle(self.core.is_idle()),
        })
    }

    fn view(&self, stored: StoredJob) -> JobView {
        let finished = stored.report.as_ref().map(|report| report.state);
        let state = finished.unwrap_or_else(|| self.core.job_state(stored.record.id));
        JobView { stored, state, why: Vec::new() }
    }

    /// A page: as many jobs as asked for, or as many as may be looked at.
    fn list(
        &mut self,
        mut from: Cursor,
        most: usize,
        filter: &Filter,
    ) -> Result<Reply, StoreError> {
        let (mut page, mut seen, mut size) = (Vec::new(), 0, 0);
        // Whoever wants what is not finished does not pay for what is.
        let listed = match filter.state {
            Some(JobState::Waiting | JobState::Running) => JobFilter::Unfinished,
            _ => JobFilter::All,
        };
        loop {
            let jobs = self.store.list(from, most.clamp(1, MOST_READ), listed)?;
            let Some(last) = jobs.last() else { return Ok(Reply::List(page, None)) };
            let last = last.record.id;
            (from, seen) = (from.at(last), seen + jobs.len());
            for stored in jobs {
                let view = self.view(stored);
                let id = view.stored.record.id;
                size += view.size();
                if filter.fits(&view) {
                    page.push(view);
                }
                if page.len() >= most || size >= LARGEST_PAGE {
                    return Ok(Reply::List(page, Some(id)));
                }
            }
            if seen >= MOST_LISTED {
                return Ok(Reply::List(page, Some(last)));
            }
        }
    }

    /// The unfinished job with a key, and the newest finished one.
    fn keyed(&mut self, key: &Blob) -> Result<Reply, StoreError> {
        let mut found = self.store.finished(std::slice::from_ref(key))?;
        if let Some(job) = self.core.job_with_key(key) {
            found.push(self.store.job(job)?);
        }
        let jobs = found.into_iter().flatten().map(|stored| self.view(stored));
        Ok(Reply::List(jobs.collect(), None))
    }
}
