//! Spans and rates as arguments: `"3s"`, a `Duration`, a `Span`; `"100/min"`, a `Rate`.

use std::time::Duration;

use paceline_core::{Rate, RateError, Span, SpanError};

/// A span of time as an argument: text such as `"250ms"`, `"90s"` or `"1h30m"`, a [`Duration`], or a
/// [`Span`]. Text that is none is an error of the operation that takes it.
pub trait IntoSpan {
    /// The span, or why this is none.
    fn into_span(self) -> Result<Span, SpanError>;
}

impl IntoSpan for &str {
    fn into_span(self) -> Result<Span, SpanError> {
        self.parse()
    }
}

impl IntoSpan for &String {
    fn into_span(self) -> Result<Span, SpanError> {
        self.parse()
    }
}

impl IntoSpan for String {
    fn into_span(self) -> Result<Span, SpanError> {
        self.parse()
    }
}

impl IntoSpan for Span {
    fn into_span(self) -> Result<Span, SpanError> {
        Ok(self)
    }
}

impl IntoSpan for Duration {
    fn into_span(self) -> Result<Span, SpanError> {
        Ok(self.into())
    }
}

/// A rate as an argument: text such as `"2/s"`, `"100/min"` or `"3/5s"`, or a [`Rate`].
pub trait IntoRate {
    /// The rate, or why this is none.
    fn into_rate(self) -> Result<Rate, RateError>;
}

impl IntoRate for &str {
    fn into_rate(self) -> Result<Rate, RateError> {
        self.parse()
    }
}

impl IntoRate for Rate {
    fn into_rate(self) -> Result<Rate, RateError> {
        Ok(self)
    }
}
