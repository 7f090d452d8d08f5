//! Mutants: rules broken on purpose. A checker must notice each of them in some world.

use paceline_core::Mutant;

use crate::chaos::run;

/// Every mutant, with the rule that it breaks.
pub const MUTANTS: &[(Mutant, &str)] = &[
    (Mutant::WindowOffByOne, "L3"),
    (Mutant::WindowTooShort, "L3"),
    (Mutant::ChargedAtReserve, "L4"),
    (Mutant::SlackIgnored, "L4"),
    (Mutant::SendByUnchecked, "L4"),
    (Mutant::ReservationNotAwaited, "L4"),
    (Mutant::PromisesPass, "L4"),
    (Mutant::GapPerPriority, "L2"),
    (Mutant::BackgroundMemory, "L2"),
    (Mutant::SlotFreedEarly, "L5"),
    (Mutant::SlotFreedTwice, "L5"),
    (Mutant::SlotLost, "L5"),
    (Mutant::TakenUpFree, "L5"),
    (Mutant::CooldownForgotten, "L6"),
    (Mutant::CooldownShortened, "L6"),
    (Mutant::ProbeByAll, "L7"),
    (Mutant::ProbeNotAwaited, "L7"),
    (Mutant::GroupUncharged, "L9"),
    (Mutant::YoungestFirst, "P1"),
    (Mutant::NoAgeing, "P2"),
    (Mutant::ReserveIgnored, "P3"),
    (Mutant::MaxWaitIgnored, "W1"),
    (Mutant::CancelLate, "W4"),
    (Mutant::EarlyExitLate, "J2"),
    (Mutant::HintsConclude, "J2"),
    (Mutant::FailureRenamed, "J1"),
    (Mutant::StagesAtOnce, "J3"),
    (Mutant::StageForgotten, "J3"),
    (Mutant::StageAfterAnswer, "J3"),
    (Mutant::CoverageLies, "J4"),
    (Mutant::KeyReleasedOnRetry, "D1"),
    (Mutant::FinishedKeyLost, "D1"),
    (Mutant::JoinedDeadlineIgnored, "D1"),
    (Mutant::NoBound, "Q1"),
    (Mutant::AskingUncounted, "Q1"),
    (Mutant::BackoffTakesRoom, "Q1"),
    (Mutant::PermitsTakeRoom, "Q1"),
    (Mutant::RetriesEverything, "R1"),
    (Mutant::ReplacedPayloadLost, "D1"),
    (Mutant::MovedPayloadLost, "J7"),
    (Mutant::StoreLosesWrite, "B1"),
    (Mutant::LedgerForgotten, "B1"),
    (Mutant::DueOnEngineTime, "W5"),
    (Mutant::DueEarly, "W5"),
    (Mutant::StartsEarly, "W5"),
    (Mutant::WakesLate, "W5"),
    (Mutant::SlowedDropped, "L10"),
    (Mutant::LadderDropped, "L10"),
    (Mutant::KeepIgnored, "L11"),
    (Mutant::AnnouncedIgnored, "L8"),
    (Mutant::AnnouncedWidthIgnored, "L8"),
    (Mutant::LaneShareIgnored, "P5"),
    (Mutant::FirstCallPooled, "P5"),
    (Mutant::RssTwice, "D3"),
    (Mutant::CacheIgnored, "C1"),
    (Mutant::PlaceLost, "L6"),
    (Mutant::NarrowForgotten, "L7"),
    (Mutant::FinishNotSlowed, "L7"),
    (Mutant::LeftUncut, "L8"),
    (Mutant::FoundAsEmpty, "C2"),
    (Mutant::ThrottledForEver, "L6"),
    (Mutant::CrashesForEver, "B2"),
    (Mutant::SharersUnscathed, "B2"),
    (Mutant::UnprocessedForEver, "L7"),
    (Mutant::PauseAtOnce, "W1"),
    (Mutant::CostlyWait, "W1"),
    (Mutant::WaitOverstated, "W1"),
    (Mutant::FollowersWait, "W1"),
    (Mutant::BudgetsKept, "W1"),
    (Mutant::PauseIgnored, "W1"),
    (Mutant::SharedUncounted, "R1"),
    (Mutant::FailsWithLeader, "R1"),
    (Mutant::JoinsUncharged, "L9"),
    (Mutant::StrangersUncounted, "L9"),
    (Mutant::TakenUpUnfinished, "L2"),
    (Mutant::OneInterval, "S1"),
    (Mutant::TimedOnFailure, "S1"),
    (Mutant::CycleRepeats, "S2"),
    (Mutant::ServiceTwice, "S3"),
    (Mutant::CheckLost, "S3"),
];

/// How a mutant was noticed.
#[derive(Debug)]
pub struct Caught {
    /// The seed of the world.
    pub seed: u64,
    /// The violation that the checker reported.
    pub words: String,
}

/// Runs at most `worlds` worlds with one mutant, until a checker notices it.
pub fn hunt(mutant: Mutant, worlds: u64) -> Option<Caught> {
    (1..=worlds).find_map(|seed| Some(Caught { seed, words: notices(mutant, seed)? }))
}

/// Runs one world with one mutant. Returns the first violation, if there is one.
pub fn notices(mutant: Mutant, seed: u64) -> Option<String> {
    Mutant::set(Some(mutant));
    let ran = run(seed, false);
    Mutant::set(None);
    ran.violations.first().map(ToString::to_string)
}
