//! Finished jobs by their keys: a row holds a hash of the key, and the job says which key it was.

use paceline_core::Blob;
use rusqlite::{Connection, Row, Statement};

use super::load;
use crate::StoredJob;

/// The newest finished job with each of these keys.
pub(super) fn find(
    connection: &Connection,
    keys: &[Blob],
) -> rusqlite::Result<Vec<Option<StoredJob>>> {
    // One transaction for all: to begin one costs more than to find a row.
    let _whole = connection.unchecked_transaction()?;
    // Crossed, so that the few rows of one hash lead to their jobs and not the other way round.
    let sql = "SELECT finished.id, submitted_at, terms, spec, finished_at, report
               FROM finished_keys CROSS JOIN finished ON finished.id = finished_keys.job
               WHERE hash = ? ORDER BY job DESC";
    let mut statement = connection.prepare_cached(sql)?;
    keys.iter().map(|key| newest(&mut statement, key)).collect()
}

fn newest(statement: &mut Statement<'_>, key: &Blob) -> rusqlite::Result<Option<StoredJob>> {
    let mut rows = statement.query([hash(key)])?;
    while let Some(row) = rows.next()? {
        if has_key(row, key)? {
            return load::stored_job(row).map(Some);
        }
    }
    Ok(None)
}

/// Different keys may have one hash.
fn has_key(row: &Row<'_>, key: &Blob) -> rusqlite::Result<bool> {
    Ok(load::spec(row, 3)?.key.as_ref() == Some(key))
}

/// The hash of a key in the file: `SipHash-2-4` of its bytes, with a key of sixteen zeros. It is
/// part of the file's form and never changes. With a simpler hash a caller could choose a million
/// keys that collide.
pub(super) fn hash(key: &[u8]) -> i64 {
    let mut state = Sip([
        0x736f_6d65_7073_6575,
        0x646f_7261_6e64_6f6d,
        0x6c79_6765_6e65_7261,
        0x7465_6462_7974_6573,
    ]);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        state.absorb(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = key.len() as u8;
    state.absorb(u64::from_le_bytes(last));
    state.0[2] ^= 0xFF;
    (0..4).for_each(|_| state.round());
    state.0.into_iter().fold(0, |mixed, word| mixed ^ word).cast_signed()
}

struct Sip([u64; 4]);

impl Sip {
    fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::Sqlite;
    use crate::{JobFilter, Store};
    use paceline_core::{
        Answer, JobId, JobRecord, JobSpec, JobState, Report, Stamp, Terms, Time, Write,
    };
    use proptest::prelude::*;
    use std::sync::Arc;

    fn submit(id: u64, key: &str) -> Write {
        let terms = Terms::default();
        let spec = JobSpec { key: Some(key.as_bytes().into()), ..JobSpec::new("fetch", &["a"]) };
        let (id, spec) = (JobId(id), Arc::new(spec));
        Write::Job(JobRecord { id, submitted_at: Time(1), terms, spec }, b"".as_slice().into())
    }

    fn finish(id: u64, key: &str) -> [Write; 2] {
        let (job, state, answer) = (JobId(id), JobState::Done, Answer::Empty);
        let report =
            Report { job, state, answer, finished_at: Time(2), calls: vec![], partial: false };
        [Write::Finish(report.into()), Write::FinishedKey(job, key.as_bytes().into())]
    }

    #[track_caller]
    fn commit(store: &mut Sqlite, writes: &[Write]) {
        store.commit(&Stamp::default(), writes).expect("a commit");
    }

    #[track_caller]
    fn found(store: &mut Sqlite, key: &str) -> Option<u64> {
        let found = store.finished(&[key.as_bytes().into()]).expect("a look");
        found[0].as_ref().map(|stored| stored.record.id.0)
    }

    #[test]
    fn d1_another_key_with_the_same_hash_is_not_mistaken_for_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Sqlite::open(&directory.path().join("store.db")).expect("a new store");
        commit(&mut store, &[submit(1, "a"), submit(2, "b")]);
        commit(&mut store, &[finish(1, "a"), finish(2, "b")].concat());
        let sql = "INSERT INTO finished_keys VALUES (?, ?)";
        for (key, job) in [("a", 2), ("x", 2), ("x", 77)] {
            store.connection.execute(sql, [hash(key.as_bytes()), job]).expect("SQL");
        }
        assert_eq!(found(&mut store, "a"), Some(1), "behind a newer one of another key");
        assert_eq!(found(&mut store, "b"), Some(2));
        assert_eq!(found(&mut store, "x"), None, "neither another's nor one that is gone");
    }

    #[test]
    fn a_file_of_version_1_is_brought_up_and_finds_jobs_that_finish_later() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store.db");
        let mut store = Sqlite::open(&path).expect("a new store");
        commit(&mut store, &[submit(1, "before"), submit(2, "after")]);
        commit(&mut store, &finish(1, "before")[..1]);
        let back = "DROP TABLE finished_keys; DROP TABLE services; DROP TABLE rosters;
                    DROP TABLE notes; DROP TABLE events; DROP TABLE opened;
                    DROP TABLE leaving; DROP INDEX cache_by_expiry;
                    ALTER TABLE meta DROP COLUMN next_event;
                    ALTER TABLE meta DROP COLUMN leaving; PRAGMA user_version = 1";
        store.connection.execute_batch(back).expect("SQL");
        drop(store);

        let mut store = Sqlite::open(&path).expect("an older store");
        let jobs = store.list(None.into(), 9, JobFilter::All).expect("a list");
        assert_eq!(jobs.len(), 2);
        assert!(jobs[0].report.is_some() && jobs[1].report.is_none());
        commit(&mut store, &finish(2, "after"));
        assert_eq!(found(&mut store, "before"), None);
        assert_eq!(found(&mut store, "after"), Some(2));
        assert_eq!(store.prune(Time(3), Time(0)).expect("a step"), 2);
        assert_eq!(found(&mut store, "after"), None);
        let left = "SELECT count(*) FROM finished_keys";
        assert_eq!(store.connection.query_row(left, [], |row| row.get(0)), Ok(0));
    }

    /// Pins the hash: if this fails, jobs finished before can no longer be found.
    #[track_caller]
    fn check(key: &[u8], expected: u64) {
        assert_eq!(hash(key).cast_unsigned(), expected, "{key:?}");
    }

    #[test]
    fn keys_keep_their_hash() {
        check(b"", 0x1e92_4b9d_7377_00d7);
        check(b"https://example.org/", 0x52f5_272c_65b9_8c15);
    }

    #[expect(deprecated, reason = "the only SipHash-2-4 of the standard library")]
    fn reference(key: &[u8]) -> u64 {
        use std::hash::Hasher;
        let mut hasher = std::hash::SipHasher::new();
        hasher.write(key);
        hasher.finish()
    }

    proptest! {
        #[test]
        fn the_hash_is_siphash_2_4(key in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(hash(&key).cast_unsigned(), reference(&key));
        }
    }
}
