//! The words and the rules of Paceline. No I/O, no clock, no async, no randomness.
//!
//! [`Core`] is told what happened and when. It answers with a [`Plan`]: what has to be durable
//! first, and what may start then. The engine (`paceline`) runs it in a loop, stores
//! (`paceline-store`) keep what it hands out, and the simulator (`paceline-sim`) runs the same loop
//! on a virtual clock. The promises are numbered in `docs/rules.md`; private comments and tests
//! name them by their codes.
//!
//! # The words
//!
//! Each has one meaning, in the code, the API, the dashboard and the docs.
//!
//! | word | is |
//! |---|---|
//! | **upstream** | the outside thing that is called: an API, a host, a database, a tracker |
//! | **lane** | one upstream, or one part of it, and its limits; found by its name |
//! | **limit** | one bound of a lane ([`Limits`]): a gap between starts, calls per [`Window`], calls in flight |
//! | **group** | lanes that share limits of their own ([`GroupLimits`]) |
//! | **template** | limits of lanes that are made when they are named: `host:*` |
//! | **job** | what a caller submits ([`Submission`], [`JobSpec`]) and gets one report for; it visits one or more lanes |
//! | **stage** | the lanes of a job that are asked together; the next stage starts if this one did not settle the job |
//! | **call** | one job's visit to one lane ([`CallId`]); it may take several attempts |
//! | **attempt** | one request on the wire ([`AttemptId`]), charged to its lane |
//! | **reservation** | the durable promise of one attempt, written before it starts ([`Reservation`]) |
//! | **`send_by`** | the moment after which a reserved attempt is no longer sent |
//! | **slack** | how much later than its start a request may arrive, and so counts |
//! | **ledger** | a lane's history of attempts, as long as its longest window ([`Ledger`]) |
//! | **slot** | the room of one running call, in its lane, its group or the pool of workers |
//! | **verdict** | the result of one attempt, as its worker reports it ([`Verdict`]) |
//! | **outcome** | the result of a call ([`Outcome`]); each call gets exactly one |
//! | **report** | the result of a job ([`Report`]): its answer and its coverage, lane by lane |
//! | **answer** | what a report amounts to ([`Answer`]): conclusive, all, empty or inconclusive |
//! | **response** | an upstream's HTTP reply; the rules see only the verdict that a worker made of it |
//! | **kind** | the stable name that says which worker runs a call ([`KindTerms`]) |
//! | **worker** | code that makes the attempt: one async method from call to outcome |
//! | **pool** | the slots that running calls share, beyond the first call of each lane ([`PoolSettings`]) |
//! | **caller** | one submission that waits for a job's report, until its own deadline ([`Callers`]) |
//! | **tenant** | callers that take turns with others at the same priority |
//! | **key** | says that two jobs are the same work |
//! | **cache key** | says that two calls of a lane have the same answer ([`Lookup`], [`CachedAnswer`]) |
//! | **priority** | one of four ([`Priority`]); the **rank** of a waiting call is its priority, risen with age |
//! | **budget** | how long a call waits for a closed lane before it is skipped (`max_wait`) |
//! | **cooldown** | a lane is closed until a moment, because its upstream said so or failed |
//! | **ladder** | the cooldowns of a lane that keeps failing, each longer than the one before ([`LADDER`]) |
//! | **probe** | the one call that goes out after a rung of the ladder |
//! | **service** | work that comes again, and nothing else ([`ServiceTerms`]) |
//! | **roster** | a named list of services that are run in turn ([`RosterTerms`]) |
//! | **cycle** | one pass over the due services of a roster |
//! | **turn** | one round of the engine's loop: gather, decide, commit, act |
//! | **plan** | the decisions of one turn ([`Plan`]) |
//! | **event** | what subscribers are told, after it is durable ([`Event`], [`Happened`]) |
//! | **store** | where promises survive: it keeps each [`Write`] and hands back each [`Record`] |
//! | **engine time** | the clock that limits run on: monotonic, continued through restarts ([`Time`], [`Now`]) |
//!
//! # The map
//!
//! A call lives through eight verbs. Six of them are here:
//!
//! | verb | file | does |
//! |---|---|---|
//! | submit | `submit.rs` | checks a job, joins it to the same work, or refuses it; `room.rs` and `foresee.rs` say when |
//! | admit | `submit.rs` | gives the job its number and its calls; `due.rs` holds work that is due later |
//! | queue | `stage.rs` | asks the cache, then puts the calls of a stage into their lanes' queues (`queue.rs`); `share.rs` joins equal calls |
//! | decide | `decide.rs` | handles moments that have come, and finds the call that goes next |
//! | reserve | `reserve.rs` | charges one attempt at the latest moment it could arrive, and follows its start and end |
//! | settle | `settle.rs` | turns a verdict into an outcome or another attempt; `finish.rs` ends the job |
//!
//! The other two, run and notify, are the engine's. Beside the verbs:
//!
//! - A lane is `lane.rs`: its limits are `limits.rs`, its history `ledger.rs` and `pending.rs`, its
//!   cooldowns and its slowing down `health.rs`, its budgets `waits.rs`, its group `group.rs`. `lanes.rs`
//!   finds, makes, changes and drops lanes.
//! - A call is `call.rs`, the callers of a job are `callers.rs`, what a job amounts to is `coverage.rs`.
//! - Services are `service.rs`, `rosters.rs` and `cycle.rs`.
//! - `why.rs` explains why a call waits, `restore.rs` takes up what a store kept, and `record.rs` is the
//!   form in which promises go there.
//! - `mutant.rs` breaks rules on purpose, for the simulator.

// Values that cross the border.
mod cron;
mod happened;
mod job;
mod limits;
mod name;
mod outcome;
mod plan;
mod priority;
mod rate;
mod record;
mod report;
mod service;
mod settings;
mod time;
mod value;

// Parts, each with rules of its own.
mod arena;
mod call;
mod callers;
mod calls;
mod coverage;
mod due;
mod group;
mod health;
mod keys;
mod lane;
mod ledger;
mod mutant;
mod pending;
mod pool;
mod queue;
mod retry;
mod room;
mod rosters;
mod timetable;
mod waits;

// The core, verb by verb.
mod core;
mod cycle;
mod decide;
mod finish;
mod foresee;
mod lanes;
mod reserve;
mod restore;
mod settle;
mod share;
mod stage;
mod submit;
mod why;

pub use crate::core::{Core, KindTerms, OnCrash, Setup, Summary};
pub use callers::{Callers, MOST_DEADLINES};
pub use cron::{Cron, CronError};
pub use cycle::{RosterStatus, RunError, ServiceStatus, UnknownService};
pub use due::{Due, DueAt};
pub use finish::Cancelled;
pub use happened::{Happened, Numbered};
pub use health::LADDER;
pub use job::*;
pub use lanes::{LaneStatus, UnknownLane};
pub use ledger::Ledger;
pub use limits::*;
pub use mutant::Mutant;
pub use name::*;
pub use outcome::{
    About, Announced, Answer, CallReport, Failure, JobState, Outcome, Report, Skip, Verdict,
};
pub use plan::{CallLookup, Event, Plan, Start};
pub use priority::*;
pub use rate::*;
pub use record::*;
pub use restore::Restore;
pub use retry::backoff;
pub use service::*;
pub use settings::*;
pub use settle::AttemptResult;
pub use time::{LONGEST_SPAN, Now, Span, SpanError, Time};
pub use value::ValueError;
pub use why::{MOST_AHEAD, Reason, Why};
