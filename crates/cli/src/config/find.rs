//! The locations of the configuration and of the store, by the environment.

use std::env;
use std::path::{Path, PathBuf};

/// The name of the file in the working directory and in the XDG config directory.
const FILE: &str = "paceline.toml";

/// The part of the environment that decides where files are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The file that `PACELINE_CONFIG` names.
    pub named: Option<PathBuf>,
    /// The directory that holds a `paceline.toml` if there is no other.
    pub working: PathBuf,
    /// The XDG config directory.
    pub config_home: Option<PathBuf>,
    /// The XDG state directory.
    pub state_home: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Environment {
        let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = path("HOME");
        let directory = |name, below_home: &str| {
            // The XDG rules: a path that is not absolute counts as unset.
            let set = path(name).filter(|path| path.is_absolute());
            set.or_else(|| home.as_ref().map(|home| home.join(below_home)))
        };
        Environment {
            named: path("PACELINE_CONFIG"),
            working: PathBuf::new(),
            config_home: directory("XDG_CONFIG_HOME", ".config"),
            state_home: directory("XDG_STATE_HOME", ".local/state"),
        }
    }

    /// The file to read. A file that was named must exist; the others are optional.
    pub(super) fn file(&self, named: Option<&Path>) -> Option<PathBuf> {
        if let Some(named) = named.or(self.named.as_deref()) {
            return Some(named.to_path_buf());
        }
        let below = self.config_home.as_ref().map(|home| home.join("paceline").join(FILE));
        [Some(self.working.join(FILE)), below].into_iter().flatten().find(|path| path.exists())
    }

    /// The default path of the store.
    pub fn store_path(&self) -> PathBuf {
        let directory = self.state_home.as_ref().map(|home| home.join("paceline"));
        directory.unwrap_or_default().join("paceline.db")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_wins() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path().join("home");
        let here = directory.path().join("here");
        std::fs::create_dir_all(home.join("paceline")).expect("created");
        std::fs::create_dir_all(&here).expect("created");
        let mut environment = Environment {
            working: here.clone(),
            config_home: Some(home.clone()),
            ..Environment::default()
        };
        assert_eq!(environment.file(None), None);
        std::fs::write(home.join("paceline/paceline.toml"), "").expect("written");
        assert_eq!(environment.file(None), Some(home.join("paceline/paceline.toml")));
        std::fs::write(here.join("paceline.toml"), "").expect("written");
        assert_eq!(environment.file(None), Some(here.join("paceline.toml")));
        environment.named = Some("env.toml".into());
        assert_eq!(environment.file(None), Some("env.toml".into()));
        assert_eq!(environment.file(Some(Path::new("arg.toml"))), Some("arg.toml".into()));
    }
}
