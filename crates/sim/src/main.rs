//! The command `paceline-sim`: runs random worlds by seed, or checks that each broken rule is
//! caught.

use std::process::ExitCode;

use paceline_core::Mutant;
use paceline_sim::{MUTANTS, Summary, hunt, notices, run};

/// A world makes many small short-lived allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
usage: paceline-sim [--seeds N] [--from N]          run N random worlds (500), from this seed (1) on
       paceline-sim --seed N [--trace]              run the world of one seed, and print its events
       paceline-sim --mutants                       break each rule once: a checker must notice it
       paceline-sim --mutant NAME [--seeds N] [--from N]
                                                    count the worlds that notice one broken rule";
/// The most worlds within which a broken rule must be noticed.
const WORLDS_PER_MUTANT: u64 = 1_000;
/// One in this many worlds is run twice, and the two traces are compared.
const TWICE_EVERY: u64 = 50;

struct Arguments {
    seeds: u64,
    from: u64,
    trace: bool,
    mutants: bool,
    mutant: Option<Mutant>,
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let passed = match arguments.mutant {
        Some(mutant) => count_detections(mutant, &arguments),
        None if arguments.mutants => every_mutant(),
        None => every_seed(&arguments),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn arguments() -> Option<Arguments> {
    let mut arguments =
        Arguments { seeds: 500, from: 1, trace: false, mutants: false, mutant: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => arguments.seeds = words.next()?.parse().ok()?,
            "--from" => arguments.from = words.next()?.parse().ok()?,
            "--seed" => (arguments.from, arguments.seeds) = (words.next()?.parse().ok()?, 1),
            "--trace" => arguments.trace = true,
            "--mutants" => arguments.mutants = true,
            "--mutant" => arguments.mutant = Some(mutant_named(&words.next()?)?),
            _ => return None,
        }
    }
    Some(arguments)
}

fn every_seed(arguments: &Arguments) -> bool {
    let mut summary = Summary::default();
    let mut broken = 0;
    let started = stopwatch();
    for seed in arguments.from..arguments.from + arguments.seeds {
        let mut ran = run(seed, arguments.trace);
        if seed.is_multiple_of(TWICE_EVERY)
            && run(seed, arguments.trace).fingerprint != ran.fingerprint
        {
            println!("seed {seed}: two runs differ: the simulation is not deterministic");
            println!("  replay: cargo run --release -p paceline-sim -- --seed {seed} --trace");
            broken += 1;
        }
        print!("{}", ran.trace);
        broken += ran.violations.len();
        for violation in ran.violations.drain(..).take(3) {
            println!("seed {seed}: {violation}");
            println!("  replay: cargo run --release -p paceline-sim -- --seed {seed} --trace");
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

/// Prints the worlds that notice one broken rule, and their number.
fn count_detections(mutant: Mutant, arguments: &Arguments) -> bool {
    std::panic::set_hook(Box::new(|_| {}));
    let mut noticed = 0;
    for seed in arguments.from..arguments.from + arguments.seeds {
        if let Some(words) = notices(mutant, seed) {
            noticed += 1;
            println!("seed {seed}: {words}");
        }
    }
    println!("noticed in {noticed} of {} worlds", arguments.seeds);
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
            println!("{name:<24} {rule:<4} NOT NOTICED in {WORLDS_PER_MUTANT} worlds");
            survivors += 1;
        }
    }
    Mutant::set(None);
    println!("{} of {} broken rules were noticed", MUTANTS.len() - survivors, MUTANTS.len());
    survivors == 0
}

/// The CPU time of this process so far, on systems that report it.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanos: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanos / 1e9)
}

#[expect(clippy::disallowed_methods, reason = "measures the speed of the simulator itself")]
fn stopwatch() -> std::time::Instant {
    std::time::Instant::now()
}
