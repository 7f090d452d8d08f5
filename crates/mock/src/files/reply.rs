//! An answer as it goes out: its head as bytes, what follows, and in what manner.

use std::time::{Duration, SystemTime};

use hyper::StatusCode;

use super::content::Content;
use super::fault::{Ending, Fault};
use super::file::{File, Framing, Headers, Ranges, Resource, Response};
use super::range::{Selection, select};
use crate::request::{Request, Version};

/// What to do about a request.
#[derive(Debug)]
pub(crate) enum Deed {
    Reply(Reply),
    Hang,
    Close,
    Reset,
    Raw(Vec<u8>),
    EndlessHeaders,
}

impl Deed {
    /// The status that the client gets to see.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Deed::Reply(reply) => Some(reply.status),
            Deed::EndlessHeaders => Some(200),
            Deed::Hang | Deed::Close | Deed::Reset | Deed::Raw(_) => None,
        }
    }
}

/// How it is done.
#[derive(Debug, Default)]
pub(crate) struct Manner {
    pub(crate) latency: Duration,
    pub(crate) before: Vec<u8>,
    pub(crate) head_pace: Option<u32>,
    pub(crate) body_pace: Option<u32>,
    pub(crate) cut: Option<(u64, Ending)>,
    pub(crate) beyond: usize,
}

impl Manner {
    pub(crate) fn of(faults: &[Fault]) -> Manner {
        let mut manner = Manner::default();
        for fault in faults {
            match fault {
                Fault::Latency(latency) => manner.latency += *latency,
                Fault::Before(bytes) => manner.before.extend(bytes),
                Fault::SlowHead(pace) => manner.head_pace = Some(*pace),
                Fault::SlowBody(pace) => manner.body_pace = Some(*pace),
                Fault::Cut(after, ending) => manner.cut = Some((*after, *ending)),
                Fault::Beyond(bytes) => manner.beyond = *bytes,
                _ => {}
            }
        }
        manner
    }

    /// Whether the last byte of the body is the last of the answer.
    pub(crate) fn tells_end(&self, reply: &Reply) -> bool {
        reply.framing == Framing::Length && self.cut.is_none() && self.beyond == 0
    }
}

/// An answer, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) content: Content,
    /// The part of the content that is the body.
    pub(crate) first: u64,
    pub(crate) length: u64,
    pub(crate) framing: Framing,
    /// A head that speaks of a body which does not follow: answers to HEAD, and 304.
    pub(crate) bodiless: bool,
}

impl Reply {
    pub(crate) fn to(request: &Request, resource: &Resource, faults: &[Fault]) -> Reply {
        let mut reply = match resource {
            Resource::File(file) => Reply::of_file(request, file, faults),
            Resource::Response(response) => Reply::of_response(response),
        };
        for fault in faults {
            match fault {
                Fault::EndlessBody(framing) => {
                    (reply.content, reply.first, reply.length) = (Content::endless(), 0, u64::MAX);
                    reply.framing = *framing;
                }
                Fault::Framing(framing) => reply.framing = *framing,
                _ => {}
            }
        }
        reply.frame(request);
        for fault in faults {
            reply.edit(fault);
        }
        reply
    }

    fn of_response(response: &Response) -> Reply {
        let content = Content::Kept(response.body.clone().into());
        let reply = Reply { status: response.status, ..Reply::whole(content, Framing::Length) };
        Reply { headers: response.headers.clone(), ..reply }
    }

    fn whole(content: Content, framing: Framing) -> Reply {
        let length = content.size();
        let headers = Headers::new();
        Reply { status: 200, headers, content, first: 0, length, framing, bodiless: false }
    }

    fn of_file(request: &Request, file: &File, faults: &[Fault]) -> Reply {
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
        let mut reply = Reply::whole(file.content.clone(), file.framing);
        match selection {
            Selection::Whole => {}
            Selection::Part { first, last } => {
                (reply.status, reply.first, reply.length) = (206, first, last - first + 1);
                reply.add("content-range", format!("bytes {first}-{last}/{size}"));
            }
            Selection::Unsatisfiable => {
                (reply.status, reply.length, reply.framing) = (416, 0, Framing::Length);
                reply.add("content-range", format!("bytes */{size}"));
                return reply;
            }
            Selection::NotModified => reply.status = 304,
            Selection::ConditionFailed => {
                (reply.status, reply.length, reply.framing) = (412, 0, Framing::Length);
                return reply;
            }
        }
        reply.describe(file);
        reply
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

    /// The headers that tell where the body ends.
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

    /// Whether the connection ends with this answer.
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
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
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

/// The `Date` of an answer sent now.
#[expect(clippy::disallowed_methods, reason = "the date of an answer is the wall clock's")]
fn date() -> String {
    httpdate::fmt_http_date(SystemTime::now())
}
