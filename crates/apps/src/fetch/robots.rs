//! robots.txt: asked once per server and run, and heeded by each attempt.

mod obey;
mod rules;

pub(super) use rules::Rules;
