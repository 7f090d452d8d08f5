//! What the services saw, as a table.

use std::fmt::Write as _;

use paceline_mock::Summary;

use super::services::{ARRIVAL, Manners};

/// One row per service, from its own log.
pub(super) fn table(seen: &[(&Manners, Summary)]) -> String {
    let mut text = format!(
        "What the services saw, by their own logs ({ARRIVAL} allowed for the way there):\n\n"
    );
    row(&mut text, "service", "allows", &["calls", "failed", "429s", "at once", "violations"]);
    for (manners, summary) in seen {
        let status = |status: &str| summary.by_status.get(status).copied().unwrap_or(0);
        let numbers = [
            summary.calls,
            status("500"),
            status("429"),
            summary.most_in_flight as u64,
            summary.violations() as u64,
        ];
        row(&mut text, manners.name, manners.allows, &numbers);
    }
    text
}

fn row(text: &mut String, name: &str, allows: &str, cells: &[impl std::fmt::Display; 5]) {
    write!(text, "{name:8} {allows:24}").expect("a string takes everything");
    for (cell, width) in cells.iter().zip([6, 8, 6, 9, 12]) {
        write!(text, "{cell:>width$}").expect("a string takes everything");
    }
    text.push('\n');
}
