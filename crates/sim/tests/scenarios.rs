//! Scenarios: small worlds without chance. Each pins a rule by its whole trace.

#[path = "scenarios/answered.rs"]
mod answered;
#[path = "scenarios/callers.rs"]
mod callers;
#[path = "scenarios/durability.rs"]
mod durability;
#[path = "scenarios/jobs.rs"]
mod jobs;
#[path = "scenarios/limits.rs"]
mod limits;
#[path = "scenarios/order.rs"]
mod order;
#[path = "scenarios/room.rs"]
mod room;
#[path = "scenarios/same_work.rs"]
mod same_work;
#[path = "scenarios/services.rs"]
mod services;
#[path = "scenarios/shared.rs"]
mod shared;
#[path = "scenarios/together.rs"]
mod together;
#[path = "scenarios/waiting.rs"]
mod waiting;
