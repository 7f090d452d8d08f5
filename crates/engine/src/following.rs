//! A followed job: its outcomes as they come, then its report.

use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use paceline_core::{
    Admission, CallReport, JobId, Report, RunError, Span, SubmitError, UnknownService,
};
use tokio::sync::mpsc;

use crate::driver::{Ended, Message};

/// News for a follower. Boxed, because a channel makes room for many of them at once and
/// hardly ever holds more than one.
#[derive(Debug)]
pub(crate) enum News {
    Admitted(Box<Result<Admission, SubmitError>>),
    Settled(Box<CallReport>),
    Finished(Arc<Report>),
}

/// A job under way: a stream of the outcomes of its calls, and then its report.
///
/// Dropping it changes nothing: the job goes on.
#[derive(Debug)]
pub struct Following {
    pub(crate) admission: Admission,
    pub(crate) job: JobId,
    pub(crate) news: mpsc::UnboundedReceiver<News>,
    pub(crate) ended: Arc<OnceLock<Ended>>,
    pub(crate) report: Option<Arc<Report>>,
    pub(crate) messages: Sender<Message>,
}

impl Drop for Following {
    fn drop(&mut self) {
        if self.report.is_none() {
            self.news.close();
            // An engine that has ended follows nothing.
            let _ = self.messages.send(Message::Unfollow(self.job));
        }
    }
}

impl Following {
    /// The number of the job.
    pub fn id(&self) -> JobId {
        self.job
    }

    /// How it was admitted: as a new job, or joined to one that is under way.
    pub fn admission(&self) -> Admission {
        self.admission.clone()
    }

    /// The next outcome; `None` after the last, or when the engine has ended.
    pub async fn next(&mut self) -> Option<CallReport> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<CallReport>> {
        while self.report.is_none() {
            match ready!(self.news.poll_recv(context)) {
                Some(News::Settled(call)) => return Poll::Ready(Some(*call)),
                Some(News::Finished(report)) => self.report = Some(report),
                Some(News::Admitted(_)) => {}
                None => break,
            }
        }
        Poll::Ready(None)
    }

    /// Waits for the report, which comes when every call has its outcome. If the deadline of this
    /// caller passes while the job goes on for other callers, the report holds what there is by then
    /// and is marked [`partial`](Report::partial).
    pub async fn report(mut self) -> Result<Arc<Report>, Ended> {
        while self.next().await.is_some() {}
        self.report.clone().ok_or_else(|| end(&self.ended))
    }
}

/// The outcomes of the calls, as [`Following::next`] gives them.
impl Stream for Following {
    type Item = CallReport;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<CallReport>> {
        self.poll(context)
    }
}

/// Why there is no answer any more.
pub(crate) fn end(ended: &OnceLock<Ended>) -> Ended {
    ended.get().cloned().unwrap_or(Ended::Stopped)
}

fn full(lane: Option<&str>) -> String {
    match lane {
        Some(lane) => format!(
            "the lane `{lane}` has no room for more waiting calls: try again later, or raise its `max_waiting`"
        ),
        None => "the queue is full: try again later, or raise `max_waiting`".to_string(),
    }
}

fn told(wait: Option<Span>) -> String {
    match wait {
        Some(wait) => {
            let wait = Span::millis(wait.as_millis() + 1);
            format!(": its lane has no room for it for {wait}")
        }
        None => ": its lane is paused".to_string(),
    }
}

/// A job that was not submitted.
#[derive(Debug, thiserror::Error)]
pub enum NotSubmitted {
    /// Its description is invalid.
    #[error(transparent)]
    Described(#[from] crate::job::JobError),
    /// It can never be accepted as it is.
    #[error(transparent)]
    Unacceptable(#[from] SubmitError),
    /// There is no room for it now: its lane, or the whole queue, is full.
    #[error("{}", full(lane.as_deref()))]
    Full {
        /// The lane that is full; `None` if the whole queue is.
        lane: Option<Arc<str>>,
        /// When room is likely. Unknown if the lane is paused, or if only running calls keep it
        /// closed.
        retry_at: Option<std::time::SystemTime>,
    },
    /// Its lanes would not let it start in time; see [`Job::in_time`](crate::Job::in_time).
    #[error("it would not start in time{}", told(*.wait))]
    TooLate {
        /// How long it would wait; `None` if its lane is paused.
        wait: Option<Span>,
        /// When it would be in time again.
        retry_at: Option<std::time::SystemTime>,
    },
    /// A job with the same key is under way, and this one was not to join it.
    #[error("job {0} is the same work and is not finished")]
    Duplicate(JobId),
    /// There is no such service.
    #[error(transparent)]
    UnknownService(#[from] UnknownService),
    /// The engine has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

impl From<RunError> for NotSubmitted {
    fn from(error: RunError) -> NotSubmitted {
        match error {
            RunError::Unknown(error) => error.into(),
            RunError::Submit(error) => error.into(),
        }
    }
}
