//! A small disk to fill, shared by the tests of the store and of the engine.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A small disk of its own. Tests that need one are ignored unless asked for: `./test` asks, as
/// root or in a namespace in which the user is root.
pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    #[track_caller]
    pub(crate) fn of(size: &str) -> Disk {
        let disk = Disk(tempfile::tempdir().expect("a directory"));
        disk.mount(&format!("size={size}"));
        disk
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().canonicalize().expect("it is there")
    }

    #[track_caller]
    pub(crate) fn remount(&self, options: &str) {
        self.mount(&format!("remount,{options}"));
    }

    #[track_caller]
    fn mount(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(self.path());
        let mounted = mount.status().is_ok_and(|status| status.success());
        assert!(mounted, "no small disk: only root can mount one, so let `./test` run this");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // An engine may still be closing its files, so the disk is unmounted lazily.
        let _ = Command::new("umount").arg("-l").arg(self.path()).stderr(Stdio::null()).status();
    }
}
