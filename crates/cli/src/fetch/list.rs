//! Reads the items to fetch, on a thread of its own: a pipe may be slow or endless.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use paceline_apps::fetch;
use paceline_apps::fetch::input::{Format, Items};
use paceline_apps::fetch::item::Item;
use tokio::sync::mpsc;

use crate::exit::Usage;

/// Items that are read ahead.
const AHEAD: usize = 1_024;

/// The sources of items.
pub(super) struct Sources {
    pub(super) items: Vec<Item>,
    pub(super) lists: Vec<PathBuf>,
    pub(super) format: Format,
}

/// Reads all sources, one after the other.
pub(super) fn read(sources: Sources) -> anyhow::Result<fetch::Items> {
    let mut lists = Vec::with_capacity(sources.lists.len());
    for file in &sources.lists {
        lists.push((file.display().to_string(), open(file)?));
    }
    let (to, items) = mpsc::channel(AHEAD);
    let reader = std::thread::Builder::new().name("paceline-list".to_string());
    reader.spawn(move || {
        let given = sources.items.into_iter().map(Ok);
        let read = lists
            .into_iter()
            .flat_map(|(name, list)| Items::new(&name, list, sources.format.clone()));
        for item in given.chain(read) {
            // The receiver is gone: the run is over.
            if to.blocking_send(item).is_err() {
                return;
            }
        }
    })?;
    Ok(items)
}

fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead + Send>> {
    if file == Path::new("-") {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let opened = File::open(file)
        .map_err(|error| Usage(format!("cannot read `{}`: {error}", file.display())))?;
    Ok(Box::new(BufReader::new(opened)))
}
