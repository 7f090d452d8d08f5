//! The store of a world, and the faults between it and the engine (B1, B4).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paceline_core::{
    Blob, CachedAnswer, JobId, Lookup, Mutant, Numbered, Record, Reservation, Stamp, Time, Write,
};
use paceline_store::{Cursor, JobFilter, Memory, Sqlite, Store, StoreError, StoredJob};

/// The storage, which outlives the process.
#[derive(Debug)]
pub(crate) enum Disk {
    Memory(Memory),
    Sqlite(tempfile::TempDir),
}

impl Disk {
    pub(crate) fn sqlite() -> Disk {
        // Kills and power cuts are simulated, so the files need no real disk.
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Disk::Sqlite(dir.expect("a directory for the store"))
    }

    fn open(&self) -> Box<dyn Store> {
        match self {
            Disk::Memory(memory) => Box::new(memory.clone()),
            Disk::Sqlite(dir) => {
                let path = dir.path().join("world.db");
                Box::new(Sqlite::open(&path).expect("the store opens"))
            }
        }
    }
}

/// How the next commit fails. The engine sees the same error either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing was written.
    Lost,
    /// Everything was written, and the success was not reported.
    Written,
}

/// A record of the commits: the durable truth.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    pub(crate) fault: Option<Fault>,
    pub(crate) committed: Vec<Write>,
    /// How the last commit failed, if it did.
    pub(crate) failed: Option<Fault>,
    /// Reservations of a commit that was lost.
    pub(crate) lost: Vec<Reservation>,
    /// Commits that were written and not synced: they survive a kill, and may not survive a power
    /// cut.
    pub(crate) unsynced: Vec<(Stamp, Vec<Write>)>,
    commits: u64,
}

impl Tap {
    /// A power cut: of the commits that were not synced, the first `survive` are on the disk.
    /// Returns the reservations of the others.
    pub(crate) fn power_cut(&mut self, survive: impl FnOnce(u64) -> u64) -> Vec<Reservation> {
        let survivors = survive(self.unsynced.len() as u64);
        let gone = self.unsynced.split_off(survivors as usize);
        gone.iter().flat_map(|(_, writes)| reservations(writes)).cloned().collect()
    }
}

fn reservations(writes: &[Write]) -> impl Iterator<Item = &Reservation> {
    writes.iter().filter_map(|write| match write {
        Write::Reserve(reservation) => Some(reservation),
        _ => None,
    })
}

/// A store that fails as the tap says, and records in it everything that became durable.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Inner,
    tap: Arc<Mutex<Tap>>,
}

struct Inner(Box<dyn Store>);

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("store")
    }
}

/// One handle for the world, one for the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct TapHandle(Arc<Mutex<Tap>>);

impl TapHandle {
    pub(crate) fn open(&self, disk: &Disk) -> FaultyStore {
        FaultyStore { inner: Inner(disk.open()), tap: self.0.clone() }
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Tap) -> T) -> T {
        act(&mut lock(&self.0))
    }
}

fn lock(tap: &Mutex<Tap>) -> MutexGuard<'_, Tap> {
    tap.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `true` if a write is dropped although the commit succeeds: only a mutant does that.
fn loses(write: &Write, commits: u64) -> bool {
    let affected = matches!(write, Write::Finish(_) | Write::Reserve(_));
    Mutant::StoreLosesWrite.on() && affected && commits.is_multiple_of(7)
}

impl FaultyStore {
    /// Passes unsynced commits on to the real store. They are not read before the next load, so
    /// they are held back until then, or until the next synced commit.
    fn sync(&mut self) -> Result<(), StoreError> {
        let unsynced = std::mem::take(&mut lock(&self.tap).unsynced);
        unsynced.iter().try_for_each(|(stamp, writes)| self.inner.0.commit_soon(stamp, writes))
    }

    /// Lets one commit fail or succeed as the tap says; `keep` stores its writes.
    fn through_the_tap(
        &mut self,
        writes: &[Write],
        keep: impl FnOnce(&mut FaultyStore, Vec<Write>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut tap = lock(&self.tap);
        let fault = tap.fault.take();
        tap.commits += 1;
        tap.failed = fault;
        if fault == Some(Fault::Lost) {
            tap.lost.extend(reservations(writes).cloned());
        } else {
            tap.committed.extend_from_slice(writes);
            let commits = tap.commits;
            drop(tap);
            let kept = writes.iter().filter(|write| !loses(write, commits));
            keep(self, kept.cloned().collect())?;
        }
        match fault {
            None => Ok(()),
            Some(_) => Err(StoreError::Failed {
                path: PathBuf::from("world.db"),
                source: "the simulated disk failed".into(),
            }),
        }
    }
}

impl Store for FaultyStore {
    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Option<Stamp>, StoreError> {
        self.sync()?;
        self.inner.0.load(each)
    }

    fn commit(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError> {
        self.through_the_tap(writes, |store, kept| {
            store.sync()?;
            store.inner.0.commit(stamp, &kept)
        })
    }

    fn commit_soon(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError> {
        self.through_the_tap(writes, |store, kept| {
            lock(&store.tap).unsynced.push((*stamp, kept));
            Ok(())
        })
    }

    fn payload(&mut self, job: JobId) -> Result<Option<Blob>, StoreError> {
        self.inner.0.payload(job)
    }

    fn note(&mut self, name: &str) -> Result<Option<Blob>, StoreError> {
        self.inner.0.note(name)
    }

    fn notes(&mut self, beginning: &str) -> Result<Vec<Arc<str>>, StoreError> {
        self.inner.0.notes(beginning)
    }

    fn answers(
        &mut self,
        lookups: &[Lookup],
        now: Time,
    ) -> Result<Vec<Option<CachedAnswer>>, StoreError> {
        self.inner.0.answers(lookups, now)
    }

    fn list(
        &mut self,
        from: Cursor,
        most: usize,
        filter: JobFilter,
    ) -> Result<Vec<StoredJob>, StoreError> {
        self.inner.0.list(from, most, filter)
    }

    fn job(&mut self, id: JobId) -> Result<Option<StoredJob>, StoreError> {
        self.inner.0.job(id)
    }

    fn finished(&mut self, keys: &[Blob]) -> Result<Vec<Option<StoredJob>>, StoreError> {
        self.inner.0.finished(keys)
    }

    fn events(&mut self, after: u64, most: usize) -> Result<Vec<Numbered>, StoreError> {
        self.inner.0.events(after, most)
    }

    fn forget_events(&mut self, below: u64) -> Result<(), StoreError> {
        self.inner.0.forget_events(below)
    }

    fn prune(&mut self, finished_before: Time, now: Time) -> Result<usize, StoreError> {
        self.inner.0.prune(finished_before, now)
    }
}
