//! Tables for people: columns, moments and spans.

use std::fmt::{Display, Write as _};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use paceline::Span;
use serde_json::Value;

/// Columns as wide as their widest entry; the last one is not padded.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let cell = plain(cell);
            write!(line, "{cell:width$}  ").expect("a string takes everything");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One item per line.
pub(crate) fn lines(things: impl IntoIterator<Item = impl Display>) -> String {
    things.into_iter().fold(String::new(), |mut text, thing| {
        writeln!(text, "{thing}").expect("a string takes everything");
        text
    })
}

/// Replaces control characters, so that text from outside cannot control the terminal or break a line.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// Words separated by commas, or a dash if there are none.
pub(crate) fn joined(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { "-".to_string() } else { words.join(", ") }
}

/// A JSON value as text, or a dash for null.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The entries of a JSON array.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A JSON timestamp in local time, without the date if it is today.
pub(crate) fn clock(moment: &Value) -> String {
    let Some(at) = moment.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return "-".to_string();
    };
    let zone = TimeZone::system();
    let (at, now) = (at.to_zoned(zone.clone()), Timestamp::now().to_zoned(zone));
    let form = if at.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
    at.strftime(form).to_string()
}

/// JSON milliseconds as a span.
pub(crate) fn span(ms: &Value) -> String {
    ms.as_u64().map_or_else(|| "-".to_string(), |ms| Span::millis(ms).to_string())
}

/// JSON milliseconds in their two largest units.
pub(crate) fn rough(ms: &Value) -> String {
    let Some(seconds) = ms.as_u64().map(|ms| ms / 1_000) else { return "-".to_string() };
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_in_their_two_largest_units() {
        let shown = |seconds: u64| rough(&(seconds * 1_000).into());
        assert_eq!([9, 61, 11_109, 180_000].map(shown), ["9s", "1m 1s", "3h 5m", "2d 2h"]);
    }

    #[test]
    fn text_from_outside_cannot_control_the_terminal() {
        let rows = [["A", "B"], ["x\x1b[2J", "two\nlines"]].map(|row| row.map(String::from));
        assert_eq!(aligned(&rows), "A      B\nx [2J  two lines\n");
    }

    #[test]
    fn a_moment_of_another_day_has_its_date() {
        assert!(clock(&"2001-02-03T12:00:00Z".into()).starts_with("2001-02-0"));
        assert_eq!(clock(&Value::Null), "-");
    }
}
