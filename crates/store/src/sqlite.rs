//! A store in one SQLite file.

mod apply;
mod backup;
mod forms;
mod keys;
mod leaving;
mod load;
mod lock;
mod mark;
mod open_files;
mod schema;
mod statements;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paceline_core::{Blob, CachedAnswer, JobId, Lookup, Numbered, Record, Stamp, Time, Write};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::answer_cache::{AnswerCache, Cached};
use crate::{Cursor, JobFilter, PRUNE_STEP, Store, StoreError, StoredJob};
use apply::{TableIndex, Writer};
use forms::Buffer;
use lock::Lock;
use mark::Mark;
use open_files::{FilesCheck, OpenFiles};
use statements::Sql;

pub use backup::{Backup, BackupError, BackupProgress, MissingLog, backup};

/// A store in one SQLite file, which belongs to one process at a time.
#[derive(Debug)]
pub struct Sqlite {
    // Closed before the lock is given back: fields are dropped in this order.
    connection: Connection,
    _lock: Lock,
    path: PathBuf,
    state: State,
    mark: Mark,
    files: OpenFiles,
    /// The level of the last commit, and so how the connection syncs.
    outlives: Outlives,
    index: Option<TableIndex>,
    buffer: Buffer,
    cache: AnswerCache,
}

/// The state of the store: only a usable one answers (B4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Usable,
    /// A write failed.
    Unknown,
    /// Its files were taken away.
    Gone,
}

/// The failure that a commit outlives when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlives {
    /// The process: it is written.
    Process,
    /// The machine: it is synced.
    Machine,
}

impl Sqlite {
    /// The process that has the store in this file open, if one has.
    pub fn owner(path: &Path) -> Option<u32> {
        lock::owner(&real(path))
    }

    /// The default bound on the memory that caches answers: 16 MiB.
    pub const CACHE_BYTES: usize = 16 << 20;

    /// Opens the store at `path`, or makes a new one there.
    ///
    /// A file that was copied from under a running process, without its log, is refused: its newest
    /// commits are missing.
    pub fn open(path: &Path) -> Result<Sqlite, StoreError> {
        let path = real(path);
        let lock = Lock::take(&path)?;
        mark::refuse_older(&path)?;
        Sqlite::locked(path, lock)
    }

    /// Opens the store at `path` as it is, even if its log is missing. The commits in the log are
    /// lost.
    pub fn open_older(path: &Path) -> Result<Sqlite, StoreError> {
        let path = real(path);
        let lock = Lock::take(&path)?;
        Sqlite::locked(path, lock)
    }

    fn locked(path: PathBuf, lock: Lock) -> Result<Sqlite, StoreError> {
        let connection = schema::open(&path)?;
        let fault = |error| schema::explain(&path, error);
        let mark = Mark::found(&connection).map_err(fault)?;
        let failed =
            |error: io::Error| StoreError::Failed { path: path.clone(), source: error.into() };
        let files = OpenFiles::of(&path).map_err(failed)?;
        // Not earlier: an open that fails must leave the log, because it does not take the mark
        // out.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
            .map_err(fault)?;
        Ok(Sqlite {
            connection,
            _lock: lock,
            path,
            state: State::Usable,
            mark,
            files,
            outlives: Outlives::Machine,
            index: None,
            buffer: Buffer::default(),
            cache: AnswerCache::new(Sqlite::CACHE_BYTES),
        })
    }

    /// Sets the bound on the memory that caches answers.
    #[must_use]
    pub fn with_cache(mut self, max_bytes: usize) -> Sqlite {
        self.cache = AnswerCache::new(max_bytes);
        self
    }

    fn usable(&self) -> Result<(), StoreError> {
        let path = || self.path.clone();
        match self.state {
            State::Usable => Ok(()),
            State::Unknown => Err(StoreError::Unknown { path: path() }),
            State::Gone => Err(StoreError::Gone { path: path() }),
        }
    }

    /// Sets the mark before the first commit, which is only in the log: from then on the file
    /// itself says that there is a log.
    fn set_mark(&mut self) -> Result<(), StoreError> {
        if matches!(self.mark, Mark::InLog | Mark::InFile) {
            return Ok(());
        }
        let set = self.mark.set(&self.connection);
        self.mark = set.map_err(|error| schema::explain(&self.path, error))?;
        self.files = self.files.with_log(&self.path).map_err(|error| self.failed(error))?;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Failed { path: self.path.clone(), source: source.into() }
    }

    /// Makes the close copy nothing from the log to the file, and delete no log.
    fn leave_log(&self) {
        let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }

    /// Reads with errors that name the file.
    fn read<T>(
        &self,
        ask: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.usable()?;
        ask(&self.connection).map_err(|error| schema::explain(&self.path, error))
    }

    /// Runs one transaction: it writes all that `fill` writes, or ends this store.
    fn write(
        &mut self,
        outlives: Outlives,
        fill: impl FnOnce(&mut Writer<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        self.usable()?;
        if self.index.is_none() {
            self.load(&mut |_| ())?;
        }
        // Until the commit is through, a panic on the way leaves it unknown as well.
        self.state = State::Unknown;
        self.set_mark().inspect_err(|_| self.leave_log())?;
        let index = self.index.as_mut().expect("loaded above");
        let ready = if self.outlives == outlives {
            Ok(())
        } else {
            self.outlives = outlives;
            schema::sync_commits(&self.connection, outlives)
        };
        let begun = ready.and_then(|()| Writer::begin(&self.connection, index, &mut self.buffer));
        let done = begun.and_then(|mut writer| {
            fill(&mut writer)?;
            writer.finish()
        });
        if let Err(error) = done {
            // After a failed sync it is unknown which pages are on disk. Closing must not copy them
            // from the log to the file; the next start reads the log and judges.
            self.leave_log();
            return Err(schema::explain(&self.path, error));
        }
        self.state = State::Usable;
        Ok(())
    }

    fn apply(
        &mut self,
        outlives: Outlives,
        stamp: &Stamp,
        writes: &[Write],
    ) -> Result<(), StoreError> {
        self.write(outlives, |writer| {
            writes.iter().try_for_each(|write| writer.apply(write))?;
            writer.stamp(stamp)
        })?;
        for write in writes {
            if let Write::Answer(answer) = write {
                self.cache.keep(answer.clone());
            }
        }
        Ok(())
    }

    fn stored_answer(
        &mut self,
        lookup: &Lookup,
        now: Time,
    ) -> Result<Option<CachedAnswer>, StoreError> {
        let sql = "SELECT expires_at, conclusive, value FROM cache WHERE lane = ? AND key = ?";
        let stored = self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let values = (&*lookup.lane, &*lookup.key);
            statement.query_row(values, |row| load::answer(row, lookup)).optional()
        })?;
        let fresh = stored.filter(|answer| now < answer.expires_at);
        Ok(fresh.inspect(|answer| self.cache.keep(answer.clone())))
    }

    /// The lanes and keys of the first few answers that have expired.
    fn expired(&self, now: Time) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let sql = "SELECT lane, key, ifnull(length(value), 0) FROM cache
                   WHERE expires_at >= 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query((moment(now), PRUNE_STEP.cast_signed()))?;
            let (mut expired, mut bytes) = (Vec::new(), 0);
            while bytes <= leaving::STEP_BYTES
                && let Some(row) = rows.next()?
            {
                expired.push((row.get(0)?, row.get(1)?));
                bytes += load::number(row, 2)?;
            }
            Ok(expired)
        })
    }
}

/// A moment in the form in which stored ones are compared. Moments beyond SQLite's numbers are
/// stored as negative ones, and never come.
fn moment(at: Time) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

impl Store for Sqlite {
    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Option<Stamp>, StoreError> {
        let mut index = TableIndex::default();
        let stamp = self.read(|connection| {
            load::lanes(connection, each)?;
            load::jobs(connection, each)?;
            load::calls(connection, &mut index, each)?;
            load::reservations(connection, &mut index, each)?;
            load::services(connection, each)?;
            index.leaving = load::leaving(connection)?;
            load::stamp(connection)
        })?;
        self.index = Some(index);
        Ok(stamp)
    }

    fn commit(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError> {
        self.apply(Outlives::Machine, stamp, writes)
    }

    fn commit_soon(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError> {
        self.apply(Outlives::Process, stamp, writes)
    }

    fn check(&mut self) -> Result<(), StoreError> {
        self.usable()?;
        match self.files.check(&self.path).map_err(|error| self.failed(error))? {
            FilesCheck::InPlace => {}
            FilesCheck::LogGone | FilesCheck::Gone => {
                self.state = State::Gone;
                return self.usable();
            }
        }
        if self.mark == Mark::InLog {
            let moved = self.mark.set(&self.connection);
            self.mark = moved.map_err(|error| schema::explain(&self.path, error))?;
        }
        Ok(())
    }

    fn payload(&mut self, job: JobId) -> Result<Option<Blob>, StoreError> {
        // A job without a row of its own here has an empty payload.
        let sql = "SELECT (SELECT payload FROM payloads WHERE job = ?1)
                   WHERE EXISTS (SELECT 1 FROM jobs WHERE id = ?1)
                      OR EXISTS (SELECT 1 FROM finished WHERE id = ?1)";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let read =
                |row: &Row<'_>| Ok(row.get_ref(0)?.as_blob_or_null()?.unwrap_or_default().into());
            statement.query_row([job.0.cast_signed()], read).optional()
        })
    }

    fn note(&mut self, name: &str) -> Result<Option<Blob>, StoreError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT body FROM notes WHERE name = ?")?;
            statement.query_row([name], |row| Ok(row.get_ref(0)?.as_blob()?.into())).optional()
        })
    }

    fn notes(&mut self, beginning: &str) -> Result<Vec<Arc<str>>, StoreError> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT name FROM notes WHERE name >= ? ORDER BY name")?;
            let names = statement.query_map([beginning], |row| row.get::<_, Arc<str>>(0))?;
            let fits = |name: &Result<Arc<str>, _>| match name {
                Ok(name) => name.starts_with(beginning),
                Err(_) => true,
            };
            names.take_while(fits).collect()
        })
    }

    fn answers(
        &mut self,
        lookups: &[Lookup],
        now: Time,
    ) -> Result<Vec<Option<CachedAnswer>>, StoreError> {
        self.usable()?;
        let mut answers = Vec::with_capacity(lookups.len());
        for lookup in lookups {
            let answer = match self.cache.find(lookup, now) {
                Cached::Hit(answer) => Some(answer),
                Cached::Expired => None,
                Cached::Miss => self.stored_answer(lookup, now)?,
            };
            answers.push(answer);
        }
        Ok(answers)
    }

    fn list(
        &mut self,
        from: Cursor,
        most: usize,
        filter: JobFilter,
    ) -> Result<Vec<StoredJob>, StoreError> {
        let (JobId(id), beyond, order) = match from {
            Cursor::After(id) => (id, ">", "ASC"),
            Cursor::Before(id) => (id, "<", "DESC"),
        };
        let unfinished = format!(
            "SELECT id, submitted_at, terms, spec, NULL, NULL FROM jobs WHERE id {beyond} ?1"
        );
        let finished = format!(
            "UNION ALL SELECT id, submitted_at, terms, spec, finished_at, report FROM finished
             WHERE id {beyond} ?1"
        );
        let finished = if filter == JobFilter::All { &finished } else { "" };
        let sql = format!("{unfinished} {finished} ORDER BY 1 {order} LIMIT ?2");
        // A number beyond SQLite's is above every job.
        let id = i64::try_from(id).unwrap_or(i64::MAX);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            statement.query_map((id, most), load::stored_job)?.collect()
        })
    }

    fn job(&mut self, id: JobId) -> Result<Option<StoredJob>, StoreError> {
        let sql = "SELECT id, submitted_at, terms, spec, NULL, NULL FROM jobs WHERE id = ?1
                   UNION ALL
                   SELECT id, submitted_at, terms, spec, finished_at, report FROM finished
                   WHERE id = ?1";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_row([id.0.cast_signed()], load::stored_job).optional()
        })
    }

    fn finished(&mut self, keys: &[Blob]) -> Result<Vec<Option<StoredJob>>, StoreError> {
        self.read(|connection| keys::find(connection, keys))
    }

    fn events(&mut self, after: u64, most: usize) -> Result<Vec<Numbered>, StoreError> {
        // The row that begins at or below holds the next one, if any row does.
        let sql = "SELECT first, body FROM events
                   WHERE first >= ifnull((SELECT max(first) FROM events WHERE first <= ?1), 0)
                   ORDER BY first";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([after.saturating_add(1).cast_signed()])?;
            let mut events = Vec::new();
            while events.len() < most
                && let Some(row) = rows.next()?
            {
                events.extend(load::events(row)?.into_iter().filter(|event| event.id > after));
            }
            events.truncate(most);
            Ok(events)
        })
    }

    fn forget_events(&mut self, below: u64) -> Result<(), StoreError> {
        // Rows that a power cut brings back are forgotten again.
        self.write(Outlives::Process, |writer| writer.run(Sql::DropEvents, [below.cast_signed()]))
    }

    fn prune(&mut self, finished_before: Time, now: Time) -> Result<usize, StoreError> {
        if self.index.is_none() {
            self.load(&mut |_| ())?;
        }
        let newest = self.index.as_ref().and_then(|index| index.leaving.first());
        if newest.is_some_and(|first| moment(first) < moment(finished_before)) {
            self.write(Outlives::Process, |writer| {
                writer.leaving_rows()?;
                writer.run(Sql::StampLeaving, ())
            })?;
        }
        let old = self.read(|connection| leaving::old(connection, moment(finished_before)))?;
        let questions = self.expired(now)?;
        if old.jobs.is_empty() && questions.is_empty() {
            return Ok(0);
        }
        // Rows that a power cut brings back are forgotten again.
        self.write(Outlives::Process, |writer| {
            old.rows.iter().try_for_each(|&row| writer.run(Sql::DropLeaving, row))?;
            old.stays.into_iter().try_for_each(|row| writer.run(Sql::Leaving, row))?;
            for &(job, key_hash) in &old.jobs {
                writer.run(Sql::DropFinished, [job])?;
                writer.run(Sql::DropPayload, [job])?;
                if let Some(hash) = key_hash {
                    writer.run(Sql::DropFinishedKey, [hash, job])?;
                }
            }
            questions.iter().try_for_each(|(lane, key)| writer.run(Sql::DropAnswer, (lane, key)))
        })?;
        for (lane, key) in &questions {
            self.cache.forget(&lane.as_str().into(), &key.as_slice().into());
        }
        Ok(old.jobs.len() + questions.len())
    }
}

impl Drop for Sqlite {
    /// A clean close takes the mark out. Where that fails the log stays beside the file, as after a
    /// kill: a file with the mark and without a log would be refused.
    fn drop(&mut self) {
        let own = match self.files.check(&self.path) {
            Ok(FilesCheck::InPlace | FilesCheck::LogGone) => self.state != State::Unknown,
            // The log at that path may be another store's.
            Ok(FilesCheck::Gone) | Err(_) => false,
        };
        if !own || self.mark.clear(&self.connection).is_err() {
            self.leave_log();
        }
    }
}

/// Links in a row that are followed, as systems do.
const MOST_LINKS: usize = 40;

/// The path without links, so that one file has one lock, whatever it is called.
fn real(path: &Path) -> PathBuf {
    let in_directory = |path: &Path| {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(directory.join(path.file_name()?))
    };
    // The file that links lead to may be still to be made.
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(to) = path.read_link() else { break };
        path = path.parent().unwrap_or(Path::new(".")).join(to);
    }
    path.canonicalize().ok().or_else(|| in_directory(&path)).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_core::CachedValue;

    #[test]
    fn b4_after_a_failed_write_nothing_is_answered_and_nothing_accepted_is_lost() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store.db");
        let mut store = Sqlite::open(&path).expect("a new store");
        store.connection.pragma_update(None, "max_page_count", 40).expect("a small disk");
        let answer = |n: u64| CachedAnswer {
            lane: "arxiv".into(),
            key: n.to_le_bytes().as_slice().into(),
            value: Some(CachedValue { conclusive: true, value: vec![0; 10_000].into() }),
            expires_at: Time::NEVER,
        };
        let stamp = |n| Stamp { time: Time(n), ..Stamp::default() };
        let commit = |n: u64| store.commit(&stamp(n), &[Write::Answer(answer(n))]).map(|()| n);
        let (accepted, refused): (Vec<_>, Vec<_>) = (1..20).map(commit).partition(Result::is_ok);
        let texts: Vec<String> =
            refused.into_iter().map(|done| done.expect_err("refused").to_string()).collect();
        assert!(texts[0].starts_with("no room left on the disk of `"), "{}", texts[0]);
        assert!(texts[1..].iter().all(|text| text.contains("what it holds is unknown")));

        assert!(matches!(store.load(&mut |_| ()), Err(StoreError::Unknown { .. })));
        assert!(matches!(store.payload(JobId(1)), Err(StoreError::Unknown { .. })));
        assert!(matches!(store.answers(&[], Time(0)), Err(StoreError::Unknown { .. })));
        assert!(matches!(
            store.list(None.into(), 1, JobFilter::All),
            Err(StoreError::Unknown { .. })
        ));
        assert!(matches!(store.job(JobId(1)), Err(StoreError::Unknown { .. })));
        assert!(matches!(store.finished(&[]), Err(StoreError::Unknown { .. })));
        assert!(matches!(store.prune(Time(0), Time(0)), Err(StoreError::Unknown { .. })));
        drop(store);

        let last = accepted.into_iter().map_while(Result::ok).last().expect("the first ones fit");
        let mut store = Sqlite::open(&path).expect("the same store");
        assert_eq!(store.load(&mut |_| ()).expect("a load"), Some(stamp(last)));
        let lookup = Lookup { lane: answer(last).lane, key: answer(last).key };
        let found = store.answers(&[lookup], Time(0)).expect("answers");
        assert_eq!(found, [Some(answer(last))]);
    }

    #[test]
    fn b1_only_commits_that_a_power_cut_may_take_are_not_synced() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Sqlite::open(&directory.path().join("store.db")).expect("a new store");
        let level = |store: &Sqlite| {
            let sql = "PRAGMA synchronous";
            store.connection.query_row(sql, [], |row| row.get::<_, u8>(0)).expect("a level")
        };
        let (normal, full) = (1, 2);
        assert_eq!(level(&store), full);
        let stamp = Stamp::default();
        store.commit_soon(&stamp, &[]).expect("a commit");
        store.commit_soon(&stamp, &[]).expect("a commit");
        assert_eq!(level(&store), normal);
        store.commit(&stamp, &[]).expect("a commit");
        assert_eq!(level(&store), full);
        store.commit_soon(&stamp, &[]).expect("a commit");
        let answer = CachedAnswer {
            lane: "arxiv".into(),
            key: b"old".as_slice().into(),
            value: None,
            expires_at: Time(1),
        };
        store.commit_soon(&stamp, &[Write::Answer(answer)]).expect("a commit");
        assert_eq!(level(&store), normal);
        assert_eq!(store.prune(Time(0), Time(9)).expect("a step"), 1);
        assert_eq!(level(&store), normal);
    }

    #[test]
    fn a_link_to_a_store_that_is_still_to_be_made_leads_to_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        let [link, other, path] =
            ["link.db", "other.db", "store.db"].map(|name| directory.path().join(name));
        std::os::unix::fs::symlink("other.db", &link).expect("a link");
        std::os::unix::fs::symlink(&path, other).expect("a link");
        let mut store = Sqlite::open(&link).expect("a new store");
        store.commit(&Stamp::default(), &[]).expect("a commit");
        assert_eq!(Sqlite::owner(&path), Some(std::process::id()));
        let mode = path.metadata().expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_step_of_forgetting_is_as_short_for_large_jobs_and_answers() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store.db");
        let mut store = Sqlite::open(&path).expect("a new store");
        let mut writes = crate::conformance::finished_with(5, Time(5), &vec![b'x'; 1 << 20]);
        writes.extend((0..5).map(|n: u8| {
            let value = CachedValue { conclusive: true, value: vec![b'1'; 1 << 20].into() };
            let (lane, key) = ("arxiv".into(), [n].as_slice().into());
            Write::Answer(CachedAnswer { lane, key, value: Some(value), expires_at: Time(5) })
        }));
        store.commit(&Stamp::default(), &writes).expect("a commit");
        let mut steps = Vec::new();
        for _ in 0..4 {
            drop(store);
            store = Sqlite::open(&path).expect("the same store");
            steps.push(store.prune(Time(9), Time(9)).expect("a step"));
        }
        assert_eq!(steps, [2 + 3, 2 + 2, 1, 0]);
        assert!(store.list(None.into(), 1, JobFilter::All).expect("a list").is_empty());
    }

    #[test]
    fn sqlite_keeps_the_promises_of_a_store_however_small_the_cache() {
        for bytes in [0, 1_000, Sqlite::CACHE_BYTES] {
            crate::conformance::all(&mut || {
                let directory = tempfile::tempdir().expect("a directory");
                let path = directory.path().join("store.db");
                Box::new(move || {
                    let _alive = &directory;
                    Box::new(Sqlite::open(&path).expect("a store").with_cache(bytes))
                })
            });
        }
    }
}
