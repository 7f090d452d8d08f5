//! A response ready to be sent: its head, its body, and how they are delivered.

use std::time::{Duration, SystemTime};

use hyper::StatusCode;

use super::content::Content;
use super::fault::{Ending, Fault};
use super::file::{File, Framing, Headers, Ranges, Resource, Response};
use super::range::{Selection, select};
use crate::request::{Request, Version};

/// The action that a request triggers.
#[derive(Debug)]
pub(crate) enum Action {
    Respond(PreparedResponse),
    Hang,
    Close,
    Reset,
    Raw(Vec<u8>),
    EndlessHeaders,
}

impl Action {
    /// The status that the client sees.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Action::Respond(response) => Some(response.status),
            Action::EndlessHeaders => Some(200),
            Action::Hang | Action::Close | Action::Reset | Action::Raw(_) => None,
        }
    }
}

/// How a response is delivered.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    pub(crate) latency: Duration,
    pub(crate) before: Vec<u8>,
    pub(crate) head_pace: Option<u32>,
    pub(crate) body_pace: Option<u32>,
    pub(crate) cut: Option<(u64, Ending)>,
    pub(crate) beyond: usize,
}

impl Delivery {
    pub(crate) fn of(faults: &[Fault]) -> Delivery {
        let mut delivery = Delivery::default();
        for fault in faults {
            match fault {
                Fault::Latency(latency) => delivery.latency += *latency,
                Fault::Before(bytes) => delivery.before.extend(bytes),
                Fault::SlowHead(pace) => delivery.head_pace = Some(*pace),
                Fault::SlowBody(pace) => delivery.body_pace = Some(*pace),
                Fault::Cut(after, ending) => delivery.cut = Some((*after, *ending)),
                Fault::Beyond(bytes) => delivery.beyond = *bytes,
                _ => {}
            }
        }
        delivery
    }

    /// Returns `true` if the response ends with the last byte of its body.
    pub(crate) fn ends_with_body(&self, response: &PreparedResponse) -> bool {
        response.framing == Framing::Length && self.cut.is_none() && self.beyond == 0
    }
}

/// A response, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct PreparedResponse {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) content: Content,
    /// The offset and the length of the body within the content.
    pub(crate) first: u64,
    pub(crate) length: u64,
    pub(crate) framing: Framing,
    /// No body follows, even if the head announces one: the response to HEAD, or 304.
    pub(crate) bodiless: bool,
}

impl PreparedResponse {
    pub(crate) fn to(request: &Request, resource: &Resource, faults: &[Fault]) -> PreparedResponse {
        let mut response = match resource {
            Resource::File(file) => PreparedResponse::of_file(request, file, faults),
            Resource::Response(response) => PreparedResponse::of_response(response),
        };
        for fault in faults {
            match fault {
                Fault::EndlessBody(framing) => {
                    (response.content, response.first, response.length) =
                        (Content::endless(), 0, u64::MAX);
                    response.framing = *framing;
                }
                Fault::Framing(framing) => response.framing = *framing,
                _ => {}
            }
        }
        response.frame(request);
        for fault in faults {
            response.edit(fault);
        }
        response
    }

    fn of_response(response: &Response) -> PreparedResponse {
        let content = Content::Kept(response.body.clone().into());
        PreparedResponse {
            status: response.status,
            headers: response.headers.clone(),
            ..PreparedResponse::whole(content, Framing::Length)
        }
    }

    fn whole(content: Content, framing: Framing) -> PreparedResponse {
        let length = content.size();
        let headers = Headers::new();
        PreparedResponse {
            status: 200,
            headers,
            content,
            first: 0,
            length,
            framing,
            bodiless: false,
        }
    }

    fn of_file(request: &Request, file: &File, faults: &[Fault]) -> PreparedResponse {
        let size = file.content.size();
        let selection = faults
            .iter()
            .find_map(|fault| match fault {
                Fault::Part(first, last) if *first <= *last && *last < size => {
                    Some(Selection::Part { first: *first, last: *last })
                }
                _ => None,
            })
            .unwrap_or_else(|| select(request, file));
        let mut response = PreparedResponse::whole(file.content.clone(), file.framing);
        match selection {
            Selection::Whole => {}
            Selection::Part { first, last } => {
                (response.status, response.first, response.length) = (206, first, last - first + 1);
                response.add("content-range", format!("bytes {first}-{last}/{size}"));
            }
            Selection::Unsatisfiable => {
                (response.status, response.length, response.framing) = (416, 0, Framing::Length);
                response.add("content-range", format!("bytes */{size}"));
                return response;
            }
            Selection::NotModified => response.status = 304,
            Selection::ConditionFailed => {
                (response.status, response.length, response.framing) = (412, 0, Framing::Length);
                return response;
            }
        }
        response.describe(file);
        response
    }

    fn describe(&mut self, file: &File) {
        let ranges = match file.ranges {
            Ranges::Offered => "bytes",
            Ranges::Refused => "none",
        };
        self.add("accept-ranges", ranges);
        if let Some(tag) = &file.etag {
            self.add("etag", tag.as_str());
        }
        if let Some(date) = &file.last_modified {
            self.add("last-modified", date.as_str());
        }
        self.headers.extend(file.headers.iter().cloned());
    }

    /// Adds the headers that frame the body.
    fn frame(&mut self, request: &Request) {
        if request.version == Version::Http10 && self.framing == Framing::Chunked {
            self.framing = Framing::UntilClose;
        }
        self.add("date", date());
        self.bodiless = request.method == "HEAD" || matches!(self.status, 204 | 304);
        match self.framing {
            _ if matches!(self.status, 204 | 304) => {}
            Framing::Length => self.add("content-length", self.length.to_string()),
            Framing::Chunked => self.add("transfer-encoding", "chunked"),
            Framing::UntilClose => {}
        }
        if self.closes(request) {
            self.add("connection", "close");
        } else if request.version == Version::Http10 {
            self.add("connection", "keep-alive");
        }
    }

    /// Returns `true` if the connection closes after this response.
    pub(crate) fn closes(&self, request: &Request) -> bool {
        (self.framing == Framing::UntilClose && !self.bodiless) || !request.keeps_alive()
    }

    fn edit(&mut self, fault: &Fault) {
        match fault {
            Fault::Header(name, value) => {
                self.remove(name);
                self.add(name, value.clone());
            }
            Fault::AddHeader(name, value) => self.add(name, value.clone()),
            Fault::WithoutHeader(name) => self.remove(name),
            Fault::LongHeader(bytes) => self.add("x-long", "a".repeat(*bytes)),
            Fault::ManyHeaders(lines) => {
                (0..*lines).for_each(|line| self.add(&format!("x-{line}"), "a"));
            }
            _ => {}
        }
    }

    fn add(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.headers.push((name.to_string(), value.into()));
    }

    fn remove(&mut self, name: &str) {
        self.headers.retain(|(present, _)| !present.eq_ignore_ascii_case(name));
    }

    /// The status line and the header lines, as bytes.
    pub(crate) fn head(&self) -> Vec<u8> {
        let reason = StatusCode::from_u16(self.status).ok().and_then(|s| s.canonical_reason());
        let line = format!("HTTP/1.1 {} {}\r\n", self.status, reason.unwrap_or("As Asked"));
        let mut bytes = line.into_bytes();
        for (name, value) in &self.headers {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        bytes
    }
}

/// The `Date` header of a response sent now.
#[expect(clippy::disallowed_methods, reason = "the `Date` header is wall-clock time")]
fn date() -> String {
    httpdate::fmt_http_date(SystemTime::now())
}
