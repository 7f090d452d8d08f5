//! The simulator: random worlds by seed, or every broken rule in turn.

use std::process::ExitCode;

use paceline_core::Mutant;
use paceline_sim::{MUTANTS, Summary, hunt, notices, run};

/// Worlds are made of small pieces that come and go.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: paceline-sim [--seeds N] [--from N] | --seed N [--trace] | --mutants | \
--mutant NAME [--seeds N] [--from N]";
/// A broken rule must be noticed within so many worlds.
const WORLDS_PER_MUTANT: u64 = 1_000;
/// Every so many worlds one is run twice and compared.
const TWICE_EVERY: u64 = 50;

struct Wish {
    seeds: u64,
    from: u64,
    trace: bool,
    mutants: bool,
    mutant: Option<Mutant>,
}

fn main() -> ExitCode {
    let Some(wish) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let fine = match wish.mutant {
        Some(mutant) => how_often(mutant, &wish),
        None if wish.mutants => every_mutant(),
        None => every_seed(&wish),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn arguments() -> Option<Wish> {
    let mut wish = Wish { seeds: 500, from: 1, trace: false, mutants: false, mutant: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => wish.seeds = words.next()?.parse().ok()?,
            "--from" => wish.from = words.next()?.parse().ok()?,
            "--seed" => (wish.from, wish.seeds) = (words.next()?.parse().ok()?, 1),
            "--trace" => wish.trace = true,
            "--mutants" => wish.mutants = true,
            "--mutant" => wish.mutant = Some(mutant_named(&words.next()?)?),
            _ => return None,
        }
    }
    Some(wish)
}

fn every_seed(wish: &Wish) -> bool {
    let mut summary = Summary::default();
    let mut broken = 0;
    let started = stopwatch();
    for seed in wish.from..wish.from + wish.seeds {
        let mut ran = run(seed, wish.trace);
        if seed.is_multiple_of(TWICE_EVERY) && run(seed, wish.trace).fingerprint != ran.fingerprint
        {
            println!("seed {seed}: the same seed told another story");
            broken += 1;
        }
        print!("{}", ran.trace);
        broken += ran.violations.len();
        for violation in ran.violations.drain(..).take(3) {
            println!("seed {seed}: {violation}");
            println!("  cargo run --release -p paceline-sim -- --seed {seed} --trace");
        }
        summary.add(&ran);
    }
    let (took, calls) = (started.elapsed().as_secs_f64(), summary.calls() as f64);
    println!("{summary}{broken} violations");
    println!("{:.0} calls per second of wall time ({took:.1} s)", calls / took);
    if let Some(cpu) = cpu_seconds() {
        println!("{:.0} calls per second of CPU time ({cpu:.1} s, one core)", calls / cpu);
    }
    broken == 0
}

fn mutant_named(name: &str) -> Option<Mutant> {
    let mut mutants = MUTANTS.iter().map(|(mutant, _)| *mutant);
    mutants.find(|mutant| format!("{mutant:?}") == name)
}

/// In how many worlds one broken rule is noticed, and how.
fn how_often(mutant: Mutant, wish: &Wish) -> bool {
    std::panic::set_hook(Box::new(|_| {}));
    let mut noticed = 0;
    for seed in wish.from..wish.from + wish.seeds {
        if let Some(words) = notices(mutant, seed) {
            noticed += 1;
            println!("seed {seed}: {words}");
        }
    }
    println!("noticed in {noticed} of {} worlds", wish.seeds);
    noticed > 0
}

fn every_mutant() -> bool {
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = 0;
    for &(mutant, rule) in MUTANTS {
        let name = format!("{mutant:?}");
        if let Some(caught) = hunt(mutant, WORLDS_PER_MUTANT) {
            println!("{name:<24} {rule:<4} seed {:<4} {}", caught.seed, caught.words);
        } else {
            println!("{name:<24} {rule:<4} SURVIVED {WORLDS_PER_MUTANT} worlds");
            survivors += 1;
        }
    }
    Mutant::set(None);
    println!("{} of {} broken rules were noticed", MUTANTS.len() - survivors, MUTANTS.len());
    survivors == 0
}

/// Time on the processor so far, where the system tells.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanos: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanos / 1e9)
}

#[expect(clippy::disallowed_methods, reason = "how fast the simulator itself is")]
fn stopwatch() -> std::time::Instant {
    std::time::Instant::now()
}
