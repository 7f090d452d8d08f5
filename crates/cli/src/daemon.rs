//! The file beside a store that says how to reach its daemon. Only the owner of the file can read it.

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
    /// Its process.
    pub(crate) pid: u32,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    /// The configuration it has read.
    #[serde(default)]
    pub(crate) config: Option<PathBuf>,
    /// A token with full access, for readers of this file, if the daemon requires tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// The file, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct DaemonFile {
    file: PathBuf,
    pid: u32,
}

impl Drop for DaemonFile {
    fn drop(&mut self) {
        // The next daemon may have written its own by now.
        if read(&self.file).is_some_and(|daemon| daemon.pid == self.pid) {
            // If the file stays, its readers see that the process no longer owns the store.
            let _ = fs::remove_file(&self.file);
        }
    }
}

fn read(file: &Path) -> Option<Daemon> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// The path of the file: beside the store itself, not beside a link to it, like the store's lock.
fn beside(store: &Path) -> PathBuf {
    let store = store.canonicalize().unwrap_or_else(|_| store.to_path_buf());
    let mut name = store.file_name().unwrap_or_default().to_os_string();
    name.push(".daemon");
    store.with_file_name(name)
}

impl Daemon {
    /// Writes the file beside the store.
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

    /// The daemon that owns this store. A daemon that was killed leaves its file behind, and another
    /// program may listen on its port by now, so the owner of the store's lock is compared.
    pub(crate) fn of(store: &Path) -> Option<Daemon> {
        let daemon = read(&beside(store))?;
        (Sqlite::owner(store) == Some(daemon.pid)).then_some(daemon)
    }
}

/// A new random token.
pub(crate) fn new_token() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(format!("pace_{}", BASE64URL_NOPAD.encode(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_daemon_is_for_its_owner_alone_and_is_removed_with_it() {
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
        assert_eq!(Daemon::of(&store), None, "no process has the store");
        let open = Sqlite::open(&store).expect("a store");
        assert_eq!(Daemon::of(&store), Some(daemon.clone()));
        let other = Daemon { pid: 1, ..daemon.clone() };
        drop(other.post(&store).map(std::mem::forget));
        assert_eq!(Daemon::of(&store), None, "another process has it");
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
        assert!(next.file.exists(), "the file of the next daemon stays");
        drop(next);
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&store, &link).expect("a link");
        let _posted = daemon.post(&link).expect("written");
        assert_eq!(Daemon::of(&store), Some(daemon.clone()), "however the store is named");
        assert_eq!(Daemon::of(&link), Some(daemon));
    }
}
