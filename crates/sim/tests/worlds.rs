//! Five hundred random worlds. The binary `paceline-sim` runs any number.

use paceline_sim::run;

#[test]
fn no_rule_is_broken_in_five_hundred_worlds() {
    for seed in 1..=500 {
        let ran = run(seed, false);
        let broken: Vec<String> = ran.violations.iter().map(ToString::to_string).collect();
        assert!(
            broken.is_empty(),
            "{}\nreplay: cargo run --release -p paceline-sim -- --seed {seed} --trace",
            broken.join("\n")
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 7, 24, 49] {
        let (once, again) = (run(seed, true), run(seed, true));
        assert_eq!(once.fingerprint, again.fingerprint, "seed {seed}");
        assert_eq!(once.trace, again.trace, "seed {seed}");
        assert!(!once.trace.is_empty());
    }
}
