//! The arguments of `paceline job add`, and the job that they describe.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use data_encoding::BASE64;
use paceline::Span;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::exit::Usage;
use crate::form::Format;

/// The largest file that is read: no configuration allows larger requests.
const LARGEST_FILE: u64 = 1 << 30;

/// The work, its lanes and its terms.
#[derive(Debug, Args)]
#[command(
    after_help = AFTER,
    group = clap::ArgGroup::new("what").required(true).args(["path", "url", "command", "json"]),
)]
pub(super) struct Arguments {
    /// The lane to ask; repeat it to ask several lanes together
    #[arg(long, value_name = "NAME", required_unless_present_any = ["stage", "json"])]
    lane: Vec<String>,
    /// Lanes to ask together, like a,b; repeat it for a next stage, which is asked only if this one
    /// brings no conclusive answer
    #[arg(long, value_name = "NAMES", conflicts_with = "lane")]
    stage: Vec<String>,
    #[command(flatten)]
    request: Request,
    /// Run this command of the configuration instead of sending a request
    #[arg(long, value_name = "NAME")]
    command: Option<String>,
    /// The input of the command, as JSON
    #[arg(long, value_name = "JSON", requires = "command")]
    input: Option<String>,
    /// Submit the job, or the array of jobs, in this file as it is, `-` for stdin; the API describes
    /// the format
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lane", "stage", "Request", "Terms"])]
    json: Option<PathBuf>,
    #[command(flatten)]
    terms: Terms,
    /// Wait for the reports and print them; with a value, like --wait=90s, at most this long
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "an option whose value may be left out")]
    pub(super) wait: Option<Option<Span>>,
    #[command(flatten)]
    pub(super) format: Format,
}

const AFTER: &str = "\
An accepted job is durable. The id of each job goes to stdout.

  paceline job add --lane shop --path /item/1 --wait
  paceline job add --stage local --stage crossref,openalex --path '/works?q=x' --until conclusive
  paceline job add --lane local --command look-up --input '{\"id\": 7}'
  paceline job add --json jobs.json --format jsonl";

/// A request to the upstream of the lane.
#[derive(Debug, Args)]
struct Request {
    /// Request this path below the url of the lane, like /item/1
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Request this full URL
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The request method [default: GET, or POST with a body]
    #[arg(long, value_name = "METHOD", conflicts_with = "command")]
    method: Option<String>,
    /// A request header, like 'Accept: text/plain'; may be repeated
    #[arg(long, value_name = "HEADER", conflicts_with = "command")]
    header: Vec<String>,
    /// Send this text as the body
    #[arg(long, value_name = "TEXT", conflicts_with = "command")]
    body: Option<String>,
    /// Send the bytes of this file as the body, `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "body"])]
    body_file: Option<PathBuf>,
}

/// The terms of a job.
#[derive(Debug, Args)]
struct Terms {
    /// The priority of the job [default: background]
    #[arg(long, value_name = "P", value_parser = ["interactive", "rss", "completion", "background"])]
    priority: Option<String>,
    /// The key of the work: unfinished jobs with the same key are duplicates
    #[arg(long)]
    key: Option<String>,
    /// What to do if an unfinished job has the same key [default: join]
    #[arg(long, value_name = "CHOICE", requires = "key", value_parser = ["join", "refuse", "replace"])]
    on_duplicate: Option<String>,
    /// Skip lanes that stay closed longer than this
    #[arg(long, value_name = "SPAN")]
    max_wait: Option<Span>,
    /// Report the answers so far after this long
    #[arg(long, value_name = "SPAN")]
    deadline: Option<Span>,
    /// Start after this delay
    #[arg(long, value_name = "SPAN")]
    delay: Option<Span>,
    /// Attempts at most, the first one included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    attempts: Option<u16>,
    /// The tenant that the job belongs to; tenants take turns
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Ask all lanes, or stop at the first conclusive answer [default: all]
    #[arg(long, value_name = "WHEN", value_parser = ["all", "conclusive"])]
    until: Option<String>,
}

/// Parsed here, not by clap, whose error would show a value that may be a secret.
fn header(text: &str) -> Result<(String, String), Usage> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| Usage("a header is written `NAME: VALUE`".to_string()))?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_string()))
}

fn bytes_of(file: &Path) -> Result<Vec<u8>, Usage> {
    let stdin = file == Path::new("-");
    let name = if stdin { "stdin".to_string() } else { format!("`{}`", file.display()) };
    let mut bytes = Vec::new();
    let read = if stdin {
        io::stdin().lock().take(LARGEST_FILE + 1).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| Usage(format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(Usage(format!("{name} is larger than 1 GiB, which no request may be")));
    }
    Ok(bytes)
}

impl Arguments {
    /// The body of the request to the API.
    pub(super) fn jobs(&self) -> anyhow::Result<Bytes> {
        if let Some(file) = &self.json {
            return Ok(bytes_of(file)?.into());
        }
        let mut job = Map::new();
        if self.stage.is_empty() {
            job.insert("lanes".to_string(), json!(self.lane));
        } else {
            let stages = self.stage.iter().map(|names| names.split(',').map(str::trim));
            let stages: Vec<Vec<&str>> = stages.map(Iterator::collect).collect();
            job.insert("stages".to_string(), json!(stages));
        }
        self.terms.put_into(&mut job);
        let sent = if let Some(command) = &self.command {
            let input = self.input.as_deref().map(serde_json::from_str::<&RawValue>);
            let wrong = |error| Usage(format!("`--input` is not JSON: {error}"));
            let input = input.transpose().map_err(wrong)?;
            let payload = CommandPayload { command, input };
            serde_json::to_vec(&Sent { kind: "command", payload, terms: job })?
        } else {
            let payload = self.request.payload()?;
            serde_json::to_vec(&Sent { kind: "http", payload, terms: job })?
        };
        Ok(sent.into())
    }
}

/// A job as it is submitted.
#[derive(Serialize)]
struct Sent<P> {
    kind: &'static str,
    payload: P,
    #[serde(flatten)]
    terms: Map<String, Value>,
}

/// The payload of a command. The input is passed on as written, so no number loses a digit.
#[derive(Serialize)]
struct CommandPayload<'a> {
    command: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a RawValue>,
}

impl Request {
    fn payload(&self) -> anyhow::Result<Value> {
        let mut payload = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            value.map(|value| payload.insert(name.to_string(), value));
        };
        let text = |text: &Option<String>| text.clone().map(Value::String);
        put("path", text(&self.path));
        put("url", text(&self.url));
        let mut headers = BTreeMap::new();
        for text in &self.header {
            let (name, value) = header(text)?;
            if headers.insert(name.clone(), value).is_some() {
                return Err(Usage(format!("the header `{name}` is given twice")).into());
            }
        }
        put("headers", (!headers.is_empty()).then(|| json!(headers)));
        let body = match &self.body_file {
            Some(file) => Some(String::from_utf8(bytes_of(file)?).map_err(|error| {
                let bytes = error.into_bytes();
                BASE64.encode(&bytes)
            })),
            None => self.body.clone().map(Ok),
        };
        let method = body.is_some().then(|| "POST".to_string());
        put("method", self.method.clone().or(method).map(Value::String));
        match body {
            Some(Ok(body)) => put("body", Some(body.into())),
            Some(Err(base64)) => put("body_base64", Some(base64.into())),
            None => {}
        }
        Ok(Value::Object(payload))
    }
}

impl Terms {
    fn put_into(&self, job: &mut Map<String, Value>) {
        let mut put = |name: &str, value: Option<Value>| {
            value.map(|value| job.insert(name.to_string(), value));
        };
        let text = |text: &Option<String>| text.clone().map(Value::String);
        let span = |span: Option<Span>| span.map(|span| Value::String(span.to_string()));
        put("priority", text(&self.priority));
        put("key", text(&self.key));
        put("on_duplicate", text(&self.on_duplicate));
        put("max_wait", span(self.max_wait));
        put("deadline", span(self.deadline));
        put("delay", span(self.delay));
        put("attempts", self.attempts.map(Value::from));
        put("tenant", text(&self.tenant));
        put("until", text(&self.until));
    }
}
