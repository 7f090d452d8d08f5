//! Rules broken on purpose, one at a time, to show that the simulator's checkers can fail.

/// One broken rule. The codes are those of `docs/rules.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// L3: a window lets one more attempt in.
    WindowOffByOne,
    /// L3: windows forget attempts a tenth too early.
    WindowTooShort,
    /// L4: an attempt is charged at the start of its interval instead of its end.
    ChargedAtReserve,
    /// L4: an attempt counts at its start, however long it is on its way.
    SlackIgnored,
    /// L4: an attempt that has a reservation is sent although `send_by` has passed.
    SendByUnchecked,
    /// L4: a power cut takes promises with it that limits count.
    PromisesPass,
    /// L4: workers are started before their reservation is durable.
    ReservationNotAwaited,
    /// L2: the gap is forgotten between different priorities.
    GapPerPriority,
    /// L2: history is kept for the gap of background work, also where another is longer.
    BackgroundMemory,
    /// L5: an abandoned attempt frees its slot while it is still on the wire.
    SlotFreedEarly,
    /// L5: an answered attempt's slot is given back again when the attempt is over.
    SlotFreedTwice,
    /// L5: an answered attempt's slot is never given back.
    SlotLost,
    /// L5: an attempt that outlives its process is taken up without its slot.
    TakenUpFree,
    /// L6: a cooldown is forgotten by a restart.
    CooldownForgotten,
    /// L6: a later, shorter cooldown shortens the first.
    CooldownShortened,
    /// L7: after a rung of the ladder all calls go out, not one probe.
    ProbeByAll,
    /// L7: the next probe goes out when the last one is answered, before its verdict is known.
    ProbeNotAwaited,
    /// L9: a group's window is not charged.
    GroupUncharged,
    /// P1: the youngest call goes first.
    YoungestFirst,
    /// P2: calls never rise.
    NoAgeing,
    /// P3: reserved slots are given to any call.
    ReserveIgnored,
    /// W1: a call that cannot be in time waits all the same.
    MaxWaitIgnored,
    /// W4: a cancelled waiting call ends only when its lane opens.
    CancelLate,
    /// J2: calls that wait are not withdrawn at an early exit.
    EarlyExitLate,
    /// J2: an answer that settles nothing is taken for one that does.
    HintsConclude,
    /// J1: a failure loses its class.
    FailureRenamed,
    /// J3: all stages of a job begin at once.
    StagesAtOnce,
    /// J3: the next stage does not begin.
    StageForgotten,
    /// J3: the next stage begins although this one has the answer.
    StageAfterAnswer,
    /// J4: a job without an answer looks empty.
    CoverageLies,
    /// D1: a key is released while its call waits for a retry.
    KeyReleasedOnRetry,
    /// D1: a finished job cannot be found by its key.
    FinishedKeyLost,
    /// D1: a caller that joins has no later deadline than those before it.
    JoinedDeadlineIgnored,
    /// Q1: the queue has no bound.
    NoBound,
    /// Q1: calls that ask the cache take no room.
    AskingUncounted,
    /// Q1: calls that wait for a retry take room.
    BackoffTakesRoom,
    /// Q1: calls that keep no worker take room beside those of other lanes.
    PermitsTakeRoom,
    /// R1: a failure that stays is tried again.
    RetriesEverything,
    /// D1: the payload of a replacement is not written.
    ReplacedPayloadLost,
    /// J7: a call that is moved carries what it carried before.
    MovedPayloadLost,
    /// B1: a store loses a write now and then.
    StoreLosesWrite,
    /// B1: ledger entries are not restored.
    LedgerForgotten,
    /// W5: due moments are taken for engine time.
    DueOnEngineTime,
    /// W5: work with a date is due 900 ms early.
    DueEarly,
    /// W5: what is promised ahead of its moment starts at once.
    StartsEarly,
    /// The lane index sleeps a little too long.
    WakesLate,
    /// L10: a lane that is slowed is dropped like a fresh one.
    SlowedDropped,
    /// L10: a lane whose upstream has failed is dropped like a new one.
    LadderDropped,
    /// L11: calls of any priority spend the part of a window that is kept for higher ones.
    KeepIgnored,
    /// L8: limits that an upstream announces are ignored.
    AnnouncedIgnored,
    /// L8: a number of calls in flight that an upstream announces is ignored.
    AnnouncedWidthIgnored,
    /// P5: the first running call of a lane takes a slot of the pool.
    FirstCallPooled,
    /// P5: one lane may hold the whole pool.
    LaneShareIgnored,
    /// D3: a feed is read while it is being read.
    RssTwice,
    /// C1: the cache is asked, and its answer is not used.
    CacheIgnored,
    /// L6: a throttled call comes back behind all others.
    PlaceLost,
    /// L7: a restart forgets how narrow throttling made a lane.
    NarrowForgotten,
    /// L7: a gap from the finish stays as it is configured, however often its lane is throttled.
    FinishNotSlowed,
    /// L8: the number of calls left is not reduced by those that the upstream may not have counted
    /// yet.
    LeftUncut,
    /// C2: what was found is kept no longer than what was not.
    FoundAsEmpty,
    /// L6: a throttled call comes back without end.
    ThrottledForEver,
    /// B2: a call is repeated however often the process dies under it.
    CrashesForEver,
    /// B2: the process died only under the call that led those which shared a request.
    SharersUnscathed,
    /// W1: a call that comes back to a paused lane is skipped, however long it would wait.
    PauseAtOnce,
    /// L7: a request that is not processed is sent again without end.
    UnprocessedForEver,
    /// W1: a call that costs more than 1 has no budget.
    CostlyWait,
    /// W1: a skip tells a longer wait than the call would have had.
    WaitOverstated,
    /// W1: a call that shares another's request has no budget.
    FollowersWait,
    /// W1: default budgets stay as they are when their lane's gap grows.
    BudgetsKept,
    /// W1: a budget that a caller named outlasts any pause.
    PauseIgnored,
    /// R1, C2: a shared attempt counts for the call that made it alone.
    SharedUncounted,
    /// R1, C2: calls with attempts left fail with the one whose request they shared.
    FailsWithLeader,
    /// L9: a lane that joins a group leaves behind what it has promised.
    JoinsUncharged,
    /// L9: a group forgets the lanes that are configured no more.
    StrangersUncounted,
    /// L2: an attempt that outlived its process does not count as finished at the restart.
    TakenUpUnfinished,
    /// S1: every service has its roster's interval.
    OneInterval,
    /// S1: a run that failed counts as a success.
    TimedOnFailure,
    /// S2: a cycle does not look again whether a service is due.
    CycleRepeats,
    /// S3: two rosters run one service at once.
    ServiceTwice,
    /// S3: a check that finds nothing due arms no other.
    CheckLost,
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::cell::Cell;

    thread_local!(static ON: Cell<Option<Mutant>> = const { Cell::new(None) });

    impl Mutant {
        /// Breaks one rule on this thread, or none.
        pub fn set(mutant: Option<Mutant>) {
            ON.set(mutant);
        }

        /// Returns `true` if this rule is broken now.
        pub fn on(self) -> bool {
            ON.get() == Some(self)
        }
    }
}

#[cfg(not(feature = "mutants"))]
impl Mutant {
    /// Never: shipped code has no broken rules.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the branch must vanish from shipped code")]
    pub const fn on(self) -> bool {
        false
    }
}
