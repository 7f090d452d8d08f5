//! Cron expressions: the moments that a text names, in a time zone (S1).

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::time::{Time, shown};

/// The longest expression, in bytes.
const LONGEST_CRON: usize = 200;

/// Moments that come again: minute, hour, day of the month, month, day of the week.
///
/// Where a clock is put forward, a fixed time that it skips is the first moment after it; where a
/// clock is put back, a fixed time that comes twice is the first of the two. Wildcards and steps
/// are moments like others: those skipped do not come, those that come twice do.
#[derive(Clone)]
pub struct Cron {
    text: Arc<str>,
    pattern: Arc<croner::Cron>,
    zone: TimeZone,
}

/// A text that is no cron expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// It does not have five valid fields.
    #[error(
        "`{0}` is not a cron expression: write minute, hour, day of the month, month and day of \
         the week, such as `0 3 * * mon-fri`"
    )]
    Form(String),
    /// It names no moment that ever comes, such as the thirtieth of February.
    #[error("`{0}` names a moment that never comes")]
    Never(String),
}

impl Cron {
    /// Reads an expression; its times are those that clocks in `zone` show.
    pub fn new(text: &str, zone: TimeZone) -> Result<Cron, CronError> {
        let form = || CronError::Form(shown(text));
        if text.len() > LONGEST_CRON {
            return Err(form());
        }
        let parser = croner::parser::CronParser::builder()
            .seconds(croner::parser::Seconds::Disallowed)
            .year(croner::parser::Year::Disallowed)
            .build();
        let pattern = parser.parse(text).map_err(|_| form())?;
        let cron = Cron { text: text.into(), pattern: Arc::new(pattern), zone };
        match cron.next_after(Time::ZERO) {
            Some(_) => Ok(cron),
            None => Err(CronError::Never(shown(text))),
        }
    }

    /// The first of its moments after `wall`.
    pub fn next_after(&self, wall: Time) -> Option<Time> {
        let micros = i64::try_from(wall.0).ok()?;
        let at = Timestamp::from_microsecond(micros).ok()?.to_zoned(self.zone.clone());
        let next = self.pattern.find_next_occurrence(&at, false).ok()?;
        u64::try_from(next.timestamp().as_microsecond()).ok().map(Time)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.text, self.zone)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Cron) -> bool {
        (&self.text, &self.zone) == (&other.text, &other.zone)
    }
}

impl Eq for Cron {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cron(text: &str) -> Cron {
        Cron::new(text, TimeZone::get("Europe/Sofia").expect("a zone")).expect(text)
    }

    fn wall(text: &str) -> Time {
        let at: Timestamp = text.parse().expect("a moment");
        Time(at.as_microsecond().cast_unsigned())
    }

    /// The moments between two others, in local time.
    #[track_caller]
    fn check(text: &str, from: &str, to: &str, expected: &[&str]) {
        let cron = cron(text);
        let (mut at, to, mut found) = (wall(from), wall(to), Vec::new());
        while let Some(next) = cron.next_after(at).filter(|next| *next <= to) {
            let zoned = Timestamp::from_microsecond(next.0.cast_signed()).expect("a moment");
            found.push(zoned.to_zoned(cron.zone.clone()).strftime("%d %H:%M %:z").to_string());
            at = next;
        }
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn s1_days_and_hours_are_those_of_the_zone() {
        check(
            "0 3 * * mon-fri",
            "2026-11-13T12:00:00Z",
            "2026-11-17T12:00:00Z",
            &["16 03:00 +02:00", "17 03:00 +02:00"],
        );
    }

    #[test]
    fn s1_a_time_that_the_clock_skips_comes_once_right_after() {
        // On 29 March 2026 at 03:00 the clocks in Sofia show 04:00.
        check(
            "30 3 * * *",
            "2026-03-28T12:00:00Z",
            "2026-03-30T12:00:00Z",
            &["29 04:00 +03:00", "30 03:30 +03:00"],
        );
    }

    #[test]
    fn s1_a_time_that_comes_twice_counts_once() {
        // On 25 October 2026 at 04:00 the clocks in Sofia show 03:00 again.
        check(
            "30 3 * * *",
            "2026-10-24T12:00:00Z",
            "2026-10-26T12:00:00Z",
            &["25 03:30 +03:00", "26 03:30 +02:00"],
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| Cron::new(text, TimeZone::UTC).expect_err(text).to_string();
        for text in ["", "* * *", "61 * * * *", "0 0 * * * *", "every day", "0 0 1 1 * 2026"] {
            assert!(error(text).contains("is not a cron expression"), "{text}: {}", error(text));
        }
        assert_eq!(error("0 0 30 2 *"), "`0 0 30 2 *` names a moment that never comes");
        assert!(error(&"1,".repeat(200)).len() < 300);
    }

    proptest! {
        #[test]
        fn s1_the_next_moment_is_later_and_never_skips_one(
            from in 1_700_000_000..1_900_000_000u64, ahead in 1..400_000u64,
            hour in 0..24u8, minute in 0..60u8,
        ) {
            let cron = cron(&format!("{minute} {hour} * * *"));
            let (from, later) = (Time(from * 1_000_000), Time((from + ahead) * 1_000_000));
            let next = cron.next_after(from).expect("every day has one");
            prop_assert!(next > from);
            prop_assert!(next.since(from) <= crate::time::Span::hours(49));
            if later < next {
                prop_assert_eq!(cron.next_after(later), Some(next));
            }
        }

        #[test]
        fn any_text_is_an_expression_or_an_error(text in "[0-9a-zA-Z*/,#?@ -]{0,40}") {
            if let Err(error) = Cron::new(&text, TimeZone::UTC) {
                prop_assert!(error.to_string().len() < 1_000);
            }
        }
    }
}
