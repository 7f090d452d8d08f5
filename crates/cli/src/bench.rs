//! `paceline bench`: measures this machine. It prints targets beside the figures, and always exits
//! with 0.

mod api;
mod bare;
mod core;
mod daemon;
mod durable;
mod hung;
mod latency;
mod limits;
mod recover;
pub(crate) mod stopwatch;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::exit::Exit;
use crate::output::{data, say};

/// Measure this machine.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The benchmark to run [default: all]
    pub name: Option<Name>,
    /// The format of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Do a tenth of the work: for a first look, not for figures to quote
    #[arg(long)]
    pub quick: bool,
    /// The measuring half of `recover`, which needs a process of its own
    #[arg(long, value_name = "FILE", hide = true)]
    pub reopen: Option<PathBuf>,
}

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The rules in memory: submit, decide and settle with up to a million waiting calls
    Core,
    /// Jobs from submission to report through SQLite, each acknowledged when durable
    Durable,
    /// An idle engine: the time from submission to worker, and how late timers are
    Latency,
    /// The time to open a store with a million waiting jobs
    Recover,
    /// Limits against mock upstreams: violations, and the share of the limits that is used
    Limits,
    /// The daemon over HTTP: single and batched submissions, and reads meanwhile
    Api,
    /// Idle lanes while 1, 2 and 50 other lanes hang: library, permits and relay
    Hung,
}

/// A format of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    Table,
    /// One JSON object per figure and line
    Json,
}

/// A measured value and its target.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    bench: &'static str,
    metric: String,
    value: f64,
    unit: &'static str,
    target: Target,
}

/// The target of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// No target.
    None,
}

impl Figure {
    pub(crate) fn new(
        bench: &'static str,
        metric: impl Into<String>,
        value: f64,
        unit: &'static str,
        target: Target,
    ) -> Figure {
        Figure { bench, metric: metric.into(), value, unit, target }
    }

    fn reached(&self) -> bool {
        match self.target {
            Target::AtLeast(least) => self.value >= least,
            Target::AtMost(most) => self.value <= most,
            Target::None => true,
        }
    }

    fn target_text(&self) -> String {
        match self.target {
            Target::AtLeast(least) => format!(">={least}"),
            Target::AtMost(most) => format!("<={most}"),
            Target::None => String::new(),
        }
    }

    fn json(&self) -> String {
        let object = serde_json::json!({
            "bench": self.bench,
            "metric": self.metric,
            "value": rounded(self.value),
            "unit": self.unit,
            "target": self.target_text(),
            "ok": self.reached(),
        });
        format!("{object}\n")
    }

    fn row(&self) -> String {
        let mut row = format!(
            "{:8} {:24} {:>14} {:6}",
            self.bench,
            self.metric,
            thousands(self.value),
            self.unit
        );
        if !matches!(self.target, Target::None) {
            let verdict = if self.reached() { "ok" } else { "MISSED" };
            let _ = write!(row, " {:>10}  {verdict}", self.target_text());
        }
        row.truncate(row.trim_end().len());
        row.push('\n');
        row
    }
}

fn rounded(value: f64) -> f64 {
    if value.abs() >= 100.0 { value.round() } else { (value * 1_000.0).round() / 1_000.0 }
}

/// `1,234,567` and `0.253`.
fn thousands(value: f64) -> String {
    let text = rounded(value).to_string();
    let (whole, part) = text.split_once('.').map_or((&*text, None), |(w, p)| (w, Some(p)));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 && digit.is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    part.map_or(grouped.clone(), |part| format!("{grouped}.{part}"))
}

/// Runs one benchmark or all. Exits with 0 even if a target is missed.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if let Some(file) = &arguments.reopen {
        data(&recover::reopen(file)?)?;
        return Ok(Exit::Done);
    }
    let scale = if arguments.quick { 10 } else { 1 };
    let all = Name::value_variants();
    for &name in all.iter().filter(|name| arguments.name.is_none_or(|only| only == **name)) {
        say(format_args!(
            "measuring {}",
            name.to_possible_value().expect("none is hidden").get_name()
        ));
        let figures = match name {
            Name::Core => core::measure(scale),
            Name::Durable => durable::measure(scale)?,
            Name::Latency => latency::measure(scale)?,
            Name::Recover => recover::measure(scale)?,
            Name::Limits => limits::measure(scale)?,
            Name::Api => api::measure(scale)?,
            Name::Hung => hung::measure(scale)?,
        };
        for figure in figures {
            data(&match arguments.format {
                Format::Table => figure.row(),
                Format::Json => figure.json(),
            })?;
        }
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_one_json_object_per_line() {
        let figure = Figure::new("core", "cost_ratio", 1.8004, "", Target::AtMost(3.0));
        let expected = r#"{"bench":"core","metric":"cost_ratio","ok":true,"target":"<=3","unit":"","value":1.8}"#;
        assert_eq!(figure.json().trim(), expected);
        assert!(!Figure { value: 3.1, ..figure }.reached());
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(123.0), "123");
        assert_eq!(thousands(0.2534), "0.253");
    }
}
