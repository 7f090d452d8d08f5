//! A small disk to fill, shared by the tests of the store and of the engine.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A small disk of its own, where the system lets us have one.
pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    pub(crate) fn of(size: &str) -> Option<Disk> {
        let disk = Disk(tempfile::tempdir().expect("a directory"));
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(disk.path());
        if mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(disk);
        }
        eprintln!("skipped: only root can mount a small disk");
        None
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().canonicalize().expect("it is there")
    }

    #[track_caller]
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount").args(["-o", &options]).arg(self.path()).status();
        assert!(status.expect("it could mount before").success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // An engine may still be closing its files; lazily gone is gone all the same.
        let _ = Command::new("umount").arg("-l").arg(self.path()).stderr(Stdio::null()).status();
    }
}
