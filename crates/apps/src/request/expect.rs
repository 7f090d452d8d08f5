//! The meaning of a response: conclusive, empty or failed.

use hyper::StatusCode;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The meaning of responses. If several lists match, `failed` goes before `empty`, and both before
/// `conclusive`. If none matches, the status decides as usual.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Conclusive responses. Other responses of 2xx and 3xx are then inconclusive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conclusive: Vec<Sign>,
    /// Empty responses. Default: 404 and 410.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub empty: Vec<Sign>,
    /// Failures, whatever their status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Sign>,
}

/// A test of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A range of statuses.
    Status(Statuses),
    /// A text in the body.
    Contains(String),
}

/// The first and the last status, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    first: u16,
    last: u16,
}

/// The meaning of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Conclusive,
    Inconclusive,
    Empty,
    Failed,
}

impl Expect {
    pub(super) fn is_usual(&self) -> bool {
        *self == Expect::default()
    }

    /// The meaning of this response.
    pub(super) fn meaning(&self, status: StatusCode, body: &[u8]) -> Meaning {
        let fits = |signs: &[Sign]| signs.iter().any(|sign| sign.fits(status, body));
        let good = status.is_success() || status.is_redirection();
        if fits(&self.failed) {
            Meaning::Failed
        } else if fits(&self.empty) {
            Meaning::Empty
        } else if fits(&self.conclusive) || (good && self.conclusive.is_empty()) {
            Meaning::Conclusive
        } else if good {
            Meaning::Inconclusive
        } else if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            Meaning::Empty
        } else {
            Meaning::Failed
        }
    }
}

impl Sign {
    /// All statuses of a class, such as 4 for `4xx`.
    pub fn hundred(hundred: u16) -> Sign {
        Sign::Status(Statuses { first: hundred * 100, last: hundred * 100 + 99 })
    }

    fn fits(&self, status: StatusCode, body: &[u8]) -> bool {
        match self {
            Sign::Status(statuses) => (statuses.first..=statuses.last).contains(&status.as_u16()),
            Sign::Contains(words) => {
                let words = words.as_bytes();
                words.is_empty() || body.windows(words.len()).any(|place| place == words)
            }
        }
    }

    /// `404`, `"404"`, `"4xx"` or `{"contains": "no results"}`.
    fn read(text: &str) -> Option<Sign> {
        let hundred = text.strip_suffix("xx").and_then(|digit| digit.parse::<u16>().ok());
        if let Some(hundred) = hundred {
            return (1..=5).contains(&hundred).then(|| Sign::hundred(hundred));
        }
        let status = text.parse().ok().filter(|status| (100..=999).contains(status))?;
        Some(Sign::Status(Statuses { first: status, last: status }))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u16),
    Text(String),
    Words { contains: String },
}

impl<'de> Deserialize<'de> for Sign {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sign, D::Error> {
        let wrong = || {
            let what =
                "expected a status like 404, a class like \"4xx\", or {\"contains\": \"words\"}";
            serde::de::Error::custom(what)
        };
        match Written::deserialize(deserializer).map_err(|_| wrong())? {
            Written::Number(status) => Sign::read(&status.to_string()).ok_or_else(wrong),
            Written::Text(text) => Sign::read(&text).ok_or_else(wrong),
            Written::Words { contains } => Ok(Sign::Contains(contains)),
        }
    }
}

impl Serialize for Sign {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Sign::Status(it) if it.first == it.last => serializer.serialize_u16(it.first),
            Sign::Status(it) => serializer.collect_str(&format_args!("{}xx", it.first / 100)),
            Sign::Contains(words) => serde_json::json!({ "contains": words }).serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expect: &str, status: u16, body: &str, expected: Meaning) {
        let expect: Expect = serde_json::from_str(expect).expect(expect);
        let written = serde_json::to_string(&expect).expect("JSON");
        assert_eq!(serde_json::from_str::<Expect>(&written).expect("it reads back"), expect);
        let status = StatusCode::from_u16(status).expect("a status");
        assert_eq!(expect.meaning(status, body.as_bytes()), expected, "{written} {status}");
    }

    #[test]
    fn a_status_means_what_it_usually_does_unless_the_caller_says_otherwise() {
        check("{}", 200, "", Meaning::Conclusive);
        check("{}", 404, "", Meaning::Empty);
        check("{}", 403, "", Meaning::Failed);
        check("{}", 500, "", Meaning::Failed);
        check(r#"{"conclusive": [200]}"#, 204, "", Meaning::Inconclusive);
        check(r#"{"conclusive": ["404"]}"#, 404, "", Meaning::Conclusive);
        check(
            r#"{"empty": [{"contains": "no results"}]}"#,
            200,
            "sorry, no results.",
            Meaning::Empty,
        );
        check(
            r#"{"failed": [{"contains": "<error"}]}"#,
            200,
            "<error code='500'/>",
            Meaning::Failed,
        );
        check(r#"{"failed": ["2xx"], "empty": [204]}"#, 204, "", Meaning::Failed);
    }

    #[test]
    fn control_characters_are_refused() {
        for text in [r#"["9xx"]"#, "[7]", r#"["xx"]"#, r#"[{"contain": "a"}]"#, "[true]", "[-1]"] {
            let error = serde_json::from_str::<Vec<Sign>>(text).expect_err(text).to_string();
            assert!(error.contains("expected a status like 404"), "{text}: {error}");
        }
    }
}
