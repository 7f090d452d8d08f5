//! The simulator: it runs the engine's real turn with a virtual clock, fake upstreams, a failing
//! disk and crashes. Checkers measure at the upstreams. Never shipped.

// The world.
mod agenda;
mod clock;
mod disk;
mod rng;
mod trace;
mod upstream;
mod wire;
mod world;

// The checkers, written from the rules.
mod check;

// The three uses: random worlds, broken rules, and scenarios.
mod chaos;
mod counts;
mod mutants;
mod scenario;
mod vocabulary;

pub use chaos::{RunResult, Summary, run};
pub use check::Violation;
pub use mutants::{Caught, MUTANTS, hunt, notices};
pub use scenario::*;
pub use upstream::Response;
pub use vocabulary::*;
pub use world::World;
