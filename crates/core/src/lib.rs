//! The words and the rules of Paceline. No I/O, no clock, no async, no randomness.
//!
//! Words: a [`JobSpec`] visits lanes whose [`Limits`] say how fast; each visit is a call, each
//! request of a call an attempt, and what they come to an [`Outcome`] and a [`Report`].
//!
//! Rules: [`Core`] is told what happened and when, and answers with a [`Plan`]: what must be
//! durable first, and what may start then. The verbs are files: `submit`, `stage` (admit and
//! queue), `decide`, `reserve`, `settle`; `why` explains and `restore` begins again.

// Values.
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

// Parts: each a rule of its own.
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

// The whole, verb by verb.
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
pub use why::{MOST_AHEAD, Reason, Why};
