//! Spans and rates as a program writes them: `"3s"`, a `Duration`, a `Span`.

use std::time::Duration;

use paceline_core::{Rate, RateError, Span, SpanError};

/// Anything that names a span of time.
pub trait IntoSpan {
    /// The span, or why it is none.
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

/// Anything that names a rate.
pub trait IntoRate {
    /// The rate, or why it is none.
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
