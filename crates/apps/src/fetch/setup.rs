//! The engine and its workers, configured for downloads.

use std::fs::File;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use paceline::lanes::{AcrossLanes, Limits, Portion};
use paceline::{Builder, Group, Lane, Span};

use super::directory::Directory;
use super::options::{Options, Robots};
use super::progress::{Progress, Watch};
use super::rate::ByteRate;
use super::run::MOST_OPEN;
use super::save::{MOST_WAITING, Saver};
use super::segments::{self, MOST_SPLIT, Splitting};
use super::worker::{Get, LeftOver};
use crate::http::Client;

/// The time for which finished jobs are kept, so that later runs know their files.
const REMEMBERED: Span = Span::days(3_650);
/// The name of the store.
pub(super) const STORE: &str = "fetch.db";
/// An empty file beside the store, whose time is that of the last naming of files.
const NAMED: &str = "named";
/// Seconds that may pass between the mark and the naming.
const NAMED_WITHIN: i64 = 5;

/// The folder of the store. Only the user can read it: URLs in jobs may contain logins.
pub(super) fn make_own(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// The traces of an earlier run, before its store is opened.
pub(super) fn left_over(own: &Path, directory: &Directory) -> std::io::Result<LeftOver> {
    let written = |name: &str| own.join(name).metadata().map(|metadata| metadata.mtime()).ok();
    let wal = format!("{STORE}-wal");
    let last = [STORE, &wal, NAMED].into_iter().filter_map(written).max();
    Ok(LeftOver {
        half_files: directory.has_left_overs()?.into(),
        until: last.map_or(0, |last| last + NAMED_WITHIN),
        ..LeftOver::default()
    })
}

/// Opens the mark. Its time is that of the last naming of an earlier run.
pub(super) fn mark(own: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(own.join(NAMED))
}

/// An engine for downloads: each host is a lane, and lanes take turns.
pub(super) fn engine(options: &Options, mut builder: Builder) -> Builder {
    let many = |count: usize| NonZeroU32::new(count as u32).expect("above zero");
    let timed = |limits: &Limits| Limits {
        timeout: limits.timeout.or(options.timeout).or(Some(REMEMBERED)),
        // Pieces of files go first, but keep the same gap as other requests.
        gap_share: [Portion::ONE; 4],
        ..limits.clone()
    };
    if !options.lanes.iter().any(|(name, _)| name == "host:*") {
        builder = builder.lane(Lane::with_limits("host:*", timed(&options.host)));
    }
    // Calls that wait here for the pieces of a file are bounded by `Splitting`, not by time.
    let (in_flight, timeout) = (many(MOST_OPEN), Some(REMEMBERED));
    let waiting = Limits { in_flight, timeout, ..Limits::default() };
    builder = builder.lane(Lane::with_limits(segments::LANE, waiting));
    for (name, limits) in &options.lanes {
        builder = builder.lane(Lane::with_limits(name, timed(limits)));
    }
    for (name, limits) in &options.groups {
        builder = builder.group(Group::with_limits(name, limits.clone()));
    }
    builder.keep_finished(REMEMBERED).settings(|settings| {
        (settings.pool.base, settings.pool.max) = (options.beside, options.beside);
        // `--jobs` downloads, over all hosts.
        (settings.pool.max_running, settings.pool.max_lanes) = (options.jobs, options.jobs);
        settings.pool.interactive_reserve = 0;
        // The limit of each host bounds its share.
        settings.pool.lane_share = Portion::ONE;
        // Files that wait for the disk, and files that wait for their pieces.
        settings.max_answered = (MOST_WAITING + MOST_SPLIT) as u32;
        settings.across_lanes = AcrossLanes::Turns;
        // Every file and piece of a run may wait on one host.
        settings.max_waiting = many(4 * MOST_OPEN);
        settings.lane_waiting = settings.max_waiting;
        settings.max_lanes = many(4 * MOST_OPEN);
    })
}

/// The state that all attempts of a run share.
pub(super) fn get(
    options: Options,
    directory: Arc<Directory>,
    saver: Arc<Saver>,
    progress: Arc<Progress>,
    watch: Arc<dyn Watch>,
    left_over: LeftOver,
) -> Arc<Get> {
    Arc::new(Get {
        client: Client::new(options.patience, options.proxies),
        manners: options.manners,
        directory,
        saver,
        progress,
        watch,
        rate: ByteRate::new(options.limit_rate),
        coding: options.coding,
        largest: options.largest,
        attempts: options.retries.saturating_add(1),
        max_wait: options.max_wait,
        segments: options.segments,
        splitting: Splitting::new(options.segments),
        pace: Mutex::new(None),
        rules: (options.robots == Robots::Obey).then(Arc::default),
        archive: options.warc,
        left_over,
    })
}
