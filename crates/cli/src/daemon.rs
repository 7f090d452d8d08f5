//! Where a daemon is found: a file beside its store says how to reach it, to its owner alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use data_encoding::BASE64URL_NOPAD;
use paceline_store::Sqlite;
use serde::{Deserialize, Serialize};

/// How to reach a daemon.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Daemon {
    /// The process that it is.
    pub(crate) pid: u32,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The configuration that it knows.
    #[serde(default)]
    pub(crate) config: Option<PathBuf>,
    /// What opens it to whoever may read this, if it asks for tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// The file, for as long as the daemon lives.
#[derive(Debug)]
pub(crate) struct DaemonFile {
    file: PathBuf,
    pid: u32,
}

impl Drop for DaemonFile {
    fn drop(&mut self) {
        // Somebody else may have written there by now.
        if read(&self.file).is_some_and(|daemon| daemon.pid == self.pid) {
            // A file that stays leads to nobody: whoever reads it finds that out.
            let _ = fs::remove_file(&self.file);
        }
    }
}

fn read(file: &Path) -> Option<Daemon> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Beside the file itself, not beside a link to it, as the store's lock is.
fn beside(store: &Path) -> PathBuf {
    let store = store.canonicalize().unwrap_or_else(|_| store.to_path_buf());
    let mut name = store.file_name().unwrap_or_default().to_os_string();
    name.push(".daemon");
    store.with_file_name(name)
}

impl Daemon {
    /// Tells those who may know.
    pub(crate) fn post(&self, store: &Path) -> io::Result<DaemonFile> {
        let file = beside(store);
        let fresh = file.with_extension("daemon.new");
        let _ = fs::remove_file(&fresh);
        let mut writing =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        writing.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(&fresh, &file)?;
        Ok(DaemonFile { file, pid: self.pid })
    }

    /// The daemon that owns this store. One that is gone left its word behind, and somebody else may
    /// listen there by now: so the store says who has it.
    pub(crate) fn of(store: &Path) -> Option<Daemon> {
        let daemon = read(&beside(store))?;
        (Sqlite::owner(store) == Some(daemon.pid)).then_some(daemon)
    }
}

/// A token that nobody can guess.
pub(crate) fn new_token() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(format!("pace_{}", BASE64URL_NOPAD.encode(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_to_reach_a_daemon_is_for_its_owner_alone_and_goes_with_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path().join("paceline.db");
        let token = Some(new_token().expect("randomness"));
        let daemon = Daemon {
            pid: std::process::id(),
            address: ([127, 0, 0, 1], 7400).into(),
            config: None,
            token,
        };
        let posted = daemon.post(&store).expect("written");
        assert_eq!(Daemon::of(&store), None, "nobody has the store");
        let open = Sqlite::open(&store).expect("a store");
        assert_eq!(Daemon::of(&store), Some(daemon.clone()));
        let stranger = Daemon { pid: 1, ..daemon.clone() };
        drop(stranger.post(&store).map(std::mem::forget));
        assert_eq!(Daemon::of(&store), None, "somebody else has it");
        drop(open);
        let file = fs::metadata(directory.path().join("paceline.db.daemon")).expect("there");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        let again = daemon.post(&store).expect("written over");
        drop((posted, again));
        assert_eq!(Daemon::of(&store), None);
        let _open = Sqlite::open(&store).expect("a store");
        let old = daemon.post(&store).expect("written");
        let next = Daemon { pid: daemon.pid + 1, ..daemon.clone() }.post(&store).expect("written");
        drop(old);
        assert!(next.file.exists(), "the next one's word stays");
        drop(next);
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&store, &link).expect("a link");
        let _posted = daemon.post(&link).expect("written");
        assert_eq!(Daemon::of(&store), Some(daemon.clone()), "however the store is named");
        assert_eq!(Daemon::of(&link), Some(daemon));
    }
}
