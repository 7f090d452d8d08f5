//! The checkers notice every rule that is broken on purpose.

use paceline_sim::{MUTANTS, hunt};

#[test]
fn every_broken_rule_is_noticed() {
    let survivors: Vec<_> =
        MUTANTS.iter().filter(|(mutant, _)| hunt(*mutant, 1_000).is_none()).collect();
    assert!(survivors.is_empty(), "not noticed in 1,000 worlds: {survivors:?}");
}
