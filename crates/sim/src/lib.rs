//! A world to test Paceline in: a virtual clock, fake services, a failing disk, crashes, and
//! checkers that measure at the services. It drives the real turn. Never shipped.

// The world.
mod agenda;
mod clock;
mod disk;
mod rng;
mod service;
mod trace;
mod wire;
mod world;

// Its checkers, written from the rules.
mod check;

// Its uses: random worlds, broken rules, and stories.
mod chaos;
mod counts;
mod mutants;
mod story;
mod vocabulary;

pub use chaos::{Ran, Summary, run};
pub use check::Violation;
pub use mutants::{Caught, MUTANTS, hunt, notices};
pub use service::Reaction;
pub use story::*;
pub use vocabulary::*;
pub use world::World;
