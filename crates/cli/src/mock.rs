//! `paceline mock`: a rate-limited mock upstream to test clients against.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use paceline_core::{Rate, Span};
use paceline_mock::{Behaviour, LogEntry, Mock, Preset, Ratio, Summary};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;
use crate::output::{data, say};

/// The limits of the mock upstream, and its other behaviour.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Behaviours:
  steady    one call every 200ms, answered after 20ms
  windowed  20 calls in 10s
  grumpy    5 calls a second; a call beyond that has all calls refused for 3s
  flaky     one call in three fails with 500
  hung      accepts every call and answers none

The mock upstream reports about itself:
  GET /-/log                      every call, as JSON lines
  GET /-/summary?tolerance_ms=N   counts, and violations of the limits

The first line on stdout is its URL. Ctrl-C stops it and prints the summary.")]
pub struct Arguments {
    /// The behaviour to start from; the options change it
    #[arg(value_name = "BEHAVIOUR", value_parser = preset_parser())]
    pub preset: Option<Preset>,
    /// The shortest gap allowed between two calls, like 250ms
    #[arg(long, value_name = "SPAN", value_parser = above_zero)]
    pub every: Option<Span>,
    /// Calls allowed per window, like 20/10s; may be repeated
    #[arg(long, value_name = "RATE")]
    pub limit: Vec<Rate>,
    /// Calls allowed at once
    #[arg(long, value_name = "N")]
    pub in_flight: Option<NonZeroU32>,
    /// The time from a request to its response
    #[arg(long, value_name = "SPAN")]
    pub latency: Option<Span>,
    /// Refuse with Retry-After, and refuse all calls until then
    #[arg(long, value_name = "SPAN")]
    pub retry_after: Option<Span>,
    /// The share of calls that fail with 500: 1/3, 0.25 or all
    #[arg(long, value_name = "RATIO")]
    pub fail: Option<Ratio>,
    /// The share of calls that are never answered: 1/3, 0.25 or all
    #[arg(long, value_name = "RATIO")]
    pub hang: Option<Ratio>,
    /// How much too early a call may arrive and still be in time: network delay varies
    #[arg(long, value_name = "SPAN", default_value = "5ms")]
    pub tolerance: Span,
    /// Listen on this address; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Append every call to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Print each refusal on stderr
    #[arg(short, long)]
    pub verbose: bool,
}

impl Arguments {
    /// The preset, changed by the options.
    pub fn behaviour(&self) -> Behaviour {
        let start = self.preset.map(Preset::behaviour).unwrap_or_default();
        Behaviour {
            every: self.every.or(start.every),
            limits: if self.limit.is_empty() { start.limits } else { self.limit.clone() },
            in_flight: self.in_flight.or(start.in_flight),
            latency: self.latency.unwrap_or(start.latency),
            retry_after: self.retry_after.or(start.retry_after),
            fail: self.fail.unwrap_or(start.fail),
            hang: self.hang.unwrap_or(start.hang),
            tolerance: self.tolerance,
        }
    }
}

fn preset_parser() -> impl clap::builder::TypedValueParser<Value = Preset> {
    let names = PossibleValuesParser::new(Preset::ALL.map(Preset::name));
    names.try_map(|name| name.parse::<Preset>())
}

fn above_zero(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: paceline_core::SpanError| error.to_string())?;
    if span == Span::ZERO {
        Err("it is zero: leave it out for no gap".to_string())
    } else {
        Ok(span)
    }
}

/// Runs until Ctrl-C.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: &Arguments) -> anyhow::Result<Exit> {
    // Installed before the address is printed: its reader may send a signal at once.
    let ends = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let behaviour = arguments.behaviour();
    let written = arguments.log.as_ref().map(LogFile::open).transpose()?;
    let watcher = watcher(written.clone(), arguments.verbose);
    let mock = Mock::start_at(arguments.listen, behaviour.clone(), watcher).await;
    let mock = mock.with_context(|| {
        format!("cannot listen on `{}`, choose another with `--listen`", arguments.listen)
    })?;
    data(&format!("{}\n", mock.url("")))?;
    say(format_args!("allows {behaviour}"));
    ended(ends).await;
    let summary = mock.stop().await;
    data(&printed(&summary))?;
    if let Some((log, error)) = arguments.log.as_ref().zip(written.and_then(|log| log.failure())) {
        return Err(error).context(format!("the log `{}` is not complete", log.display()));
    }
    Ok(Exit::Done)
}

async fn ended([mut interrupt, mut terminate]: [Signal; 2]) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn watcher(log: Option<LogFile>, verbose: bool) -> impl FnMut(&LogEntry) + Send + 'static {
    move |entry| {
        if let Some(log) = &log {
            log.append(entry);
        }
        if verbose && entry.status == Some(429) {
            let (call, path, open) = (entry.call, &entry.path, entry.in_flight);
            let at = Span(entry.at_us);
            say(format_args!("refused call {call} to `{path}` at {at}, {open} in flight"));
        }
    }
}

/// The file of `--log`. It stops at the first error, which is reported at the end.
#[derive(Clone)]
struct LogFile(Arc<Mutex<Result<File, Option<anyhow::Error>>>>);

impl LogFile {
    fn open(path: &PathBuf) -> anyhow::Result<LogFile> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot append to `{}`", path.display()))?;
        Ok(LogFile(Arc::new(Mutex::new(Ok(file)))))
    }

    fn append(&self, entry: &LogEntry) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(file) = &mut *state
            && let Err(error) = append(file, entry)
        {
            *state = Err(Some(error.into()));
        }
    }

    fn failure(&self) -> Option<anyhow::Error> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.as_mut().err().and_then(Option::take)
    }
}

/// One write per line, so that the file can be followed.
fn append(file: &mut File, entry: &LogEntry) -> io::Result<()> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// The summary for people.
fn printed(summary: &Summary) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        writeln!(text, "{name:<16}{value}").expect("a string takes everything");
    };
    row("calls", summary.calls.to_string());
    for (status, calls) in &summary.by_status {
        row(&format!("  {status}"), calls.to_string());
    }
    if summary.bans > 0 {
        row("bans", summary.bans.to_string());
    }
    row("most in flight", summary.most_in_flight.to_string());
    if let Some(gap) = summary.shortest_gap_us {
        row("shortest gap", Span(gap).to_string());
    }
    for limit in &summary.limits {
        row(&limit.limit, format!("violations: {}", limit.violations));
    }
    if summary.forgotten > 0 {
        row(
            "forgotten",
            format!(
                "{} calls, dropped from the log and not checked against the limits",
                summary.forgotten
            ),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn behaviour(line: &str) -> Behaviour {
        let line = Line::try_parse_from(line.split(' ')).expect("a right line");
        line.arguments.behaviour()
    }

    #[test]
    fn options_change_the_preset() {
        let changed = behaviour("mock grumpy --limit 1/s --limit 9/min --in-flight 2 --fail 1/3");
        assert_eq!(
            changed.to_string(),
            "at most 1/s, 9/min, 2 in flight; beyond that 429 with Retry-After for 3s; fails: 1/3"
        );
        assert_eq!(behaviour("mock --hang all").to_string(), "everything; never answers: all");
    }
}
