//! Idle lanes while other lanes hang (P5): the time until calls start through the library, and until
//! the daemon grants permits and relays requests on them.

mod daemon;
mod library;

use std::time::Duration;

use anyhow::Context as _;

use super::{Figure, Target};

/// The numbers of lanes that hang at once.
const HUNG: [usize; 3] = [1, 2, 50];
/// The calls on each of them, and the calls it may run at once.
const CALLS_EACH: usize = 500;
const IN_FLIGHT: u32 = 20;
/// Idle lanes.
const IDLE: usize = 5;
/// The number of runs; the median counts.
const LIBRARY_RUNS: usize = 5;
const DAEMON_RUNS: usize = 3;
/// How long a start or a response may take before the benchmark gives up.
const GIVE_UP: Duration = Duration::from_secs(20);

/// The targets of the library and the daemon.
const LIBRARY: Target = Target::AtMost(5.0);
const DAEMON: Target = Target::AtMost(20.0);

pub(crate) fn measure(scale: usize) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let loads = HUNG.map(|hung| Load { hung, calls_each: CALLS_EACH / scale, scale });
    let library =
        in_turn(loads, LIBRARY_RUNS.div_ceil(scale), |load| runtime.block_on(library::run(load)))?;
    let daemon =
        in_turn(loads, DAEMON_RUNS.div_ceil(scale), |load| runtime.block_on(daemon::run(load)))?;
    let mut figures = Vec::new();
    for (hung, mut runs) in HUNG.into_iter().zip(library) {
        figures.extend(library::figures(hung, &mut runs)?);
    }
    for (hung, mut runs) in HUNG.into_iter().zip(daemon) {
        figures.extend(daemon::figures(hung, &mut runs)?);
    }
    Ok(figures)
}

/// Runs all loads in turn, several times, so that noise on the machine does not hit only one of them.
fn in_turn<R>(
    loads: [Load; HUNG.len()],
    times: usize,
    run: impl Fn(Load) -> anyhow::Result<R>,
) -> anyhow::Result<[Vec<R>; HUNG.len()]> {
    let mut runs = std::array::from_fn(|_| Vec::with_capacity(times));
    for _ in 0..times {
        for (runs, load) in runs.iter_mut().zip(loads) {
            runs.push(run(load)?);
        }
    }
    Ok(runs)
}

/// The load of one run.
#[derive(Clone, Copy)]
struct Load {
    /// Lanes that hang.
    hung: usize,
    /// Calls that wait on each of them.
    calls_each: usize,
    /// The divisor of the number of measured calls.
    scale: usize,
}

impl Load {
    fn hung_lanes(self) -> impl Iterator<Item = String> {
        (0..self.hung).map(|lane| format!("hung-{lane}"))
    }
}

/// Measured spans.
#[derive(Default)]
struct Spans(Vec<Duration>);

impl Spans {
    /// The smallest span that this percentage of all does not exceed, in milliseconds.
    fn percentile(&mut self, percent: usize) -> anyhow::Result<f64> {
        self.0.sort_unstable();
        let rank = (self.0.len() * percent).div_ceil(100);
        let span = self.0.get(rank.saturating_sub(1)).context("nothing was measured")?;
        Ok(span.as_secs_f64() * 1_000.0)
    }
}

/// `SUBJECT_HUNG_p50_ms` and so on: the median of each percentile over all runs, and the worst of all.
fn figures_of<R>(
    subject: &str,
    hung: usize,
    runs: &mut [R],
    spans: impl Fn(&mut R) -> &mut Spans,
    target: Target,
) -> anyhow::Result<[Figure; 3]> {
    let figure = |what: &str, value, target| {
        Figure::new("hung", format!("{subject}_{hung}_{what}_ms"), value, "ms", target)
    };
    let p50 = median(runs, |run| spans(run).percentile(50))?;
    let p99 = median(runs, |run| spans(run).percentile(99))?;
    let worst: Vec<f64> =
        runs.iter_mut().map(|run| spans(run).percentile(100)).collect::<anyhow::Result<_>>()?;
    Ok([
        figure("p50", p50, Target::None),
        figure("p99", p99, target),
        figure("worst", worst.into_iter().fold(0.0, f64::max), Target::None),
    ])
}

fn median<R>(runs: &mut [R], of: impl FnMut(&mut R) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let mut values = runs.iter_mut().map(of).collect::<anyhow::Result<Vec<f64>>>()?;
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("there was no run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_span_that_this_share_does_not_exceed() {
        let mut spans = Spans((1..=200).rev().map(Duration::from_millis).collect());
        let mut at = |percent| spans.percentile(percent).expect("spans") as u64;
        assert_eq!([at(50), at(99), at(100)], [100, 198, 200]);
        assert!(Spans::default().percentile(50).is_err());
    }
}
