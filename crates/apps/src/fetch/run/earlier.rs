//! Results of earlier runs: saved files, and unfinished jobs.

use futures_util::future::join_all;
use paceline::jobs::JobView;
use paceline::report::JobState;
use paceline::{Ended, JobId};
use url::Url;

use super::{FetchError, Run};
use crate::fetch::item::Item;
use crate::fetch::part::comes_to;
use crate::fetch::plan::{Earlier, saved};
use crate::fetch::task::{Named, Saved, Task};

/// The file of an unfinished job of an earlier run.
enum Left {
    Nothing,
    /// A complete file, and its URLs.
    Complete(Vec<String>, Saved),
    /// A file that it may have replaced.
    Replaced(String),
}

impl Run {
    /// Cancels unfinished jobs of an earlier run, since this run follows its own list and options.
    /// Keeps the files that those jobs had completed without reporting them.
    pub(super) async fn clear(&mut self) -> Result<(), FetchError> {
        let mut last = JobId::default();
        // A job that changes its state between two queries is found by the third.
        for state in [JobState::Waiting, JobState::Running, JobState::Waiting] {
            let mut after = None;
            loop {
                let (page, next) = self.pace.list(after, 1_000, Some(state)).await?;
                last = last.max(page.last().map(|view| view.stored.record.id).unwrap_or_default());
                // All at once, so that they share turns of the engine.
                let ids = page.iter().map(|view| view.stored.record.id);
                for left in join_all(ids.map(|id| self.end_or_keep(id))).await {
                    match left? {
                        Left::Nothing => {}
                        Left::Complete(urls, saved) => {
                            self.standing.insert(saved.file.clone(), (urls, saved));
                        }
                        Left::Replaced(file) => {
                            self.replaced.insert(file);
                        }
                    }
                }
                match next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        let _ = self.get.left_over.last_job.set(last);
        self.get.left_over.ended.notify_waiters();
        Ok(())
    }

    /// Cancels a job, unless its file is complete: then its attempt reports that when its lane
    /// opens.
    async fn end_or_keep(&self, id: JobId) -> Result<Left, Ended> {
        let payload = self.pace.payload(id).await?;
        let task: Option<Task> = payload.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if let Some(task) = &task
            && let Some(saved) = self.get.standing(task)
        {
            return Ok(Left::Complete(task.urls.clone(), saved));
        }
        self.pace.cancel(id).await?;
        Ok(match task {
            Some(task) if task.named == Named::Renew && self.get.is_left_over(&task.target) => {
                Left::Replaced(task.target)
            }
            _ => Left::Nothing,
        })
    }

    /// The file that an earlier run saved for an item, if it is still that file.
    pub(super) async fn known(
        &self,
        item: &Item,
        finished: Option<&JobView>,
    ) -> Result<Earlier, FetchError> {
        let Some(view) = finished else { return Ok(Earlier::Nothing) };
        if let Some(saved) = saved(view) {
            return self.held_to(item, saved).await;
        }
        // The new check failed: the earlier file is still valid.
        let payload = self.pace.payload(view.stored.record.id).await?;
        let task = payload.and_then(|bytes| serde_json::from_slice::<Task>(&bytes).ok());
        let Some(saved) = task.and_then(|task| task.saved()) else { return Ok(Earlier::Nothing) };
        Ok(match self.held_to(item, saved.clone()).await? {
            // That run may have replaced the file, and died before it reported it.
            Earlier::Nothing if self.replaced.contains(&saved.file) => Earlier::Outdated(saved),
            known => known,
        })
    }

    /// Checks that a saved file exists, and that it is the one that the list wants.
    async fn held_to(&self, item: &Item, saved: Saved) -> Result<Earlier, FetchError> {
        if self.directory.length(&saved.file).unwrap_or(None) != Some(saved.bytes) {
            return Ok(Earlier::Nothing);
        }
        let Some(checksum) = &item.checksum else { return Ok(Earlier::Current(saved)) };
        if saved.checksum.as_deref() == Some(checksum.to_string().as_str()) {
            return Ok(Earlier::Current(saved));
        }
        // The list has a checksum against which this file was not verified.
        let file = self.directory.plain_file(&saved.file).ok().flatten();
        let right = match file {
            None => false,
            Some(file) => comes_to(file, checksum).await.unwrap_or(false),
        };
        Ok(if right { Earlier::Current(saved) } else { Earlier::Outdated(saved) })
    }

    /// The file at the target of an item, if the same URLs gave it for another entry, or if it has
    /// the checksum of the item.
    pub(super) async fn known_by_target(
        &self,
        item: &Item,
        target: &str,
    ) -> Result<Earlier, FetchError> {
        let keys = self.planner.keys_of(item, target);
        let same = |(urls, _): &&(Vec<String>, Saved)| {
            item.urls.iter().map(Url::as_str).eq(urls.iter().map(String::as_str))
        };
        if let Some((_, saved)) = self.standing.get(target).filter(same) {
            return self.held_to(item, saved.clone()).await;
        }
        for view in self.pace.finished(keys).await?.into_iter().flatten() {
            if saved(&view).is_some_and(|saved| saved.file == target) {
                match self.known(item, Some(&view)).await? {
                    Earlier::Nothing => {}
                    known => return Ok(known),
                }
            }
        }
        let file = self.directory.plain_file(target).ok().flatten();
        let (Some(checksum), Some(file)) = (&item.checksum, file) else {
            return Ok(Earlier::Nothing);
        };
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let right = comes_to(file, checksum).await.unwrap_or(false);
        let standing = || Saved::standing(&item.urls[0], target, bytes, Some(checksum));
        Ok(if right { Earlier::Current(standing()) } else { Earlier::Nothing })
    }
}
