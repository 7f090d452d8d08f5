//! robots.txt: fetched once per server and run, and obeyed by each attempt.

mod obey;
mod rules;

pub(super) use rules::Rules;
