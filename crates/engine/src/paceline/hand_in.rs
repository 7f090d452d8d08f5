//! Submissions: one job or many, followed or not, and safe to repeat.

use paceline_core::{Admission, Submission, SubmitError};
use tokio::sync::mpsc;

use super::{MOST_SUBMITTING, Paceline, full};
use crate::driver::{Ended, Message, Waiter};
use crate::following::{Following, News, NotSubmitted};
use crate::job::Job;
use crate::once::{Once, Remembered};
use crate::turn::Input;

impl Paceline {
    /// Submits a job. When this returns the job is durable: it survives a crash, if the engine has a
    /// file.
    pub async fn submit(&self, job: Job) -> Result<Following, NotSubmitted> {
        let mut answers = self.submit_all([job]).await;
        answers.pop().expect("one answer per job")
    }

    /// Submits jobs in one commit. Each is accepted or refused by itself.
    pub async fn submit_all(
        &self,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Vec<Result<Following, NotSubmitted>> {
        let jobs: Vec<_> = jobs.into_iter().map(|job| self.prepare(job)).collect();
        let ready = jobs.iter().filter(|job| job.is_ok()).count();
        let permits = u32::try_from(ready.min(MOST_SUBMITTING)).expect("bounded above");
        let permit = self.shared.submitting.acquire_many(permits).await;
        let _permit = permit.expect("the semaphore is never closed");
        let (mut batch, mut waiting) = (Vec::with_capacity(ready), Vec::with_capacity(jobs.len()));
        for job in jobs {
            waiting.push(job.map(|job| {
                let (follower, news) = mpsc::unbounded_channel();
                batch.push((job, follower));
                news
            }));
        }
        let sent = self.send(Message::Submit(batch));
        let mut answers = Vec::with_capacity(waiting.len());
        for news in waiting {
            answers.push(match (news, &sent) {
                (Ok(news), Ok(())) => self.admitted(news).await,
                (Ok(_), Err(ended)) => Err(ended.clone().into()),
                (Err(error), _) => Err(error),
            });
        }
        answers
    }

    /// Submits jobs in one commit and follows none of them. Returns the admission of each, which is
    /// durable. With `once` the result is remembered in the same commit; see [`Paceline::remembered`].
    pub async fn hand_in(
        &self,
        jobs: impl IntoIterator<Item = Job>,
        mut once: Option<Once>,
    ) -> Result<Vec<Result<Admission, NotSubmitted>>, Ended> {
        let jobs: Vec<_> = jobs.into_iter().map(|job| self.prepare(job)).collect();
        if let Some(once) = &mut once {
            let free = (0..).filter(|place| !once.refused.contains_key(place));
            let wrong =
                free.zip(&jobs).filter_map(|(place, job)| Some((place, job.as_ref().err()?)));
            let wrong: Vec<_> = wrong.map(|(place, it)| (place, (once.words)(it))).collect();
            once.refused.extend(wrong);
        }
        let permits = u32::try_from(jobs.len().min(MOST_SUBMITTING)).expect("bounded above");
        let permit = self.shared.submitting.acquire_many(permits).await;
        let _permit = permit.expect("the semaphore is never closed");
        let mut ready = Vec::with_capacity(jobs.len());
        let jobs: Vec<Result<(), NotSubmitted>> =
            jobs.into_iter().map(|job| job.map(|job| ready.push(job))).collect();
        let admissions = self.ask(|to| match once {
            Some(once) => Input::SubmitOnce(ready, once, Waiter::Caller(to)),
            None => Input::Submit(ready, Waiter::Caller(to)),
        });
        let mut admissions = admissions.await?.into_iter();
        let mut next = || admissions.next().expect("one for each").map_err(NotSubmitted::from);
        Ok(jobs.into_iter().map(|job| job.and_then(|()| next())).collect())
    }

    /// The result of jobs that were handed in under this name, while it is remembered.
    pub async fn remembered(&self, name: &[u8]) -> Result<Option<Remembered>, Ended> {
        let name = name.into();
        let value = self.look(move |view| view.remembered(name)).await?;
        Ok(value.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    /// Asks the kind, without I/O, which calls do not apply (J6).
    fn prepare(&self, job: Job) -> Result<Submission, NotSubmitted> {
        let mut submission = job.build()?;
        let Some(worker) = self.shared.workers.0.get(&submission.spec.kind) else {
            return Err(SubmitError::UnknownKind(submission.spec.kind).into());
        };
        let (payload, spec) = Job::parts(&mut submission);
        let lanes = spec.stages.iter().flatten().enumerate();
        let idle = lanes.filter(|(_, lane)| !worker.applies(payload, lane));
        spec.not_applicable = idle.map(|(index, _)| index as u16).collect();
        Ok(submission)
    }

    async fn admitted(
        &self,
        mut news: mpsc::UnboundedReceiver<News>,
    ) -> Result<Following, NotSubmitted> {
        let Some(News::Admitted(admission)) = news.recv().await else {
            return Err(self.ended().await.into());
        };
        match (*admission)? {
            Admission::Refused { lane, retry_at } => Err(full(lane, retry_at)),
            Admission::Duplicate(job) => Err(NotSubmitted::Duplicate(job)),
            Admission::TooLate { wait, retry_at } => Err(NotSubmitted::TooLate {
                wait,
                retry_at: retry_at.map(crate::clock::system_time),
            }),
            admission @ (Admission::Accepted(job)
            | Admission::Joined(job)
            | Admission::Replaced(job)) => {
                let (ended, messages) = (self.shared.ended.clone(), self.shared.messages.clone());
                Ok(Following { admission, job, news, ended, report: None, messages })
            }
        }
    }
}
