//! The kind `http` over a real socket: requests and responses as data.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use paceline::report::{Answer, CallOutcome, JobState};
use paceline::{Job, Lane, Paceline, Report};
use paceline_apps::http::proxy::Proxies;
use paceline_apps::request::{Endpoint, Endpoints, HTTP_KIND, HttpWorker};
use serde_json::{Value, json};

/// A request as the server received it: first line, headers in lower case, body.
#[derive(Debug)]
struct Seen {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

/// A server that responds by a script, one request per connection.
struct Server {
    address: String,
    seen: Receiver<Seen>,
}

fn server(answer: impl Fn(&Seen) -> String + Send + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let (tell, seen) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Some((request, mut stream)) = request(stream) else { continue };
            let reply = answer(&request);
            if tell.send(request).is_err() {
                return;
            }
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    Server { address, seen }
}

fn request(stream: TcpStream) -> Option<(Seen, TcpStream)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_string());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    Some((Seen { line: line.trim().to_string(), headers, body }, reader.into_inner()))
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}

/// An engine with lanes at these URLs; a lane without a URL accepts any.
fn engine(lanes: &[(&str, Option<&str>)]) -> Paceline {
    let endpoints = Endpoints::default();
    let place = |url: Option<&str>| Endpoint {
        url: url.map(|url| url.parse().expect("an address")),
        headers: vec![("x-key".parse().expect("a name"), "hunter2".parse().expect("a value"))],
        ..Endpoint::default()
    };
    endpoints.add(lanes.iter().map(|(name, url)| ((*name).to_string(), place(*url))).collect());
    let worker = HttpWorker::new(endpoints, &Proxies::default());
    let mut builder = Paceline::in_memory().worker(HTTP_KIND, worker);
    for (name, _) in lanes {
        builder = builder.lane(Lane::new(name).timeout("5s"));
    }
    builder.start().expect("it starts")
}

async fn ask(pace: &Paceline, lane: &str, payload: &Value) -> std::sync::Arc<Report> {
    let job = Job::new(HTTP_KIND, payload).on([lane]).attempts(1);
    let job = pace.submit(job).await.expect("accepted");
    tokio::time::timeout(Duration::from_secs(20), job.report())
        .await
        .expect("soon")
        .expect("a report")
}

/// The value of a job that is done.
#[track_caller]
fn found(report: &Report) -> Value {
    match &report.calls.last().expect("a call").outcome {
        CallOutcome::Done { value, .. } => serde_json::from_slice(value).expect("JSON"),
        other => panic!("not done but {other:?}"),
    }
}

#[track_caller]
fn class(report: &Report) -> String {
    match &report.calls.last().expect("a call").outcome {
        CallOutcome::Failed(failure) => failure.class.to_string(),
        other => panic!("not failed but {other:?}"),
    }
}

#[tokio::test]
async fn a_request_is_sent_as_described_and_its_response_is_kept() {
    let server = server(|_| reply("201 Created", "x-a: b\r\n", "{\"id\": 1}"));
    let pace = engine(&[("shop", Some(&format!("{}/v1", server.address)))]);
    let payload = json!({
        "method": "post", "path": "/item?a=1", "headers": {"X-B": "c"}, "body": {"n": 1},
    });
    let value = found(&*ask(&pace, "shop", &payload).await);
    assert_eq!((&value["status"], &value["body"]), (&json!(201), &json!("{\"id\": 1}")));
    assert_eq!(value["headers"]["x-a"], "b");
    let seen = server.seen.recv().expect("a request");
    assert_eq!(
        (seen.line.as_str(), seen.body.as_str()),
        ("POST /v1/item?a=1 HTTP/1.1", "{\"n\":1}")
    );
    assert_eq!(seen.headers["content-type"], "application/json");
    assert_eq!((seen.headers["x-b"].as_str(), seen.headers["x-key"].as_str()), ("c", "hunter2"));
    assert!(seen.headers["user-agent"].starts_with("paceline/"));
    assert!(!value.to_string().contains("hunter2"), "a lane's secret stays inside");
}

#[tokio::test]
async fn responses_mean_what_their_status_says_or_what_the_caller_expects() {
    let server = server(|seen| match seen.line.split(' ').nth(1) {
        Some("/none") => reply("404 Not Found", "", ""),
        Some("/bad") => reply("403 Forbidden", "", ""),
        Some("/down") => reply("500 Oops", "", ""),
        _ => reply("200 OK", "", "no results"),
    });
    let pace = engine(&[("shop", Some(&server.address))]);
    let path = |path: &str| json!({ "path": path });
    assert_eq!(ask(&pace, "shop", &path("/none")).await.answer, Answer::Empty);
    assert_eq!(class(&*ask(&pace, "shop", &path("/bad")).await), "status_403");
    assert_eq!(class(&*ask(&pace, "shop", &path("/down")).await), "status_500");
    let empty = json!({ "path": "/", "expect": {"empty": [{"contains": "no results"}]} });
    assert_eq!(ask(&pace, "shop", &empty).await.answer, Answer::Empty);
    let failed = json!({ "path": "/", "expect": {"failed": ["2xx"]} });
    assert_eq!(class(&*ask(&pace, "shop", &failed).await), "unexpected");
}

#[tokio::test]
async fn l6_an_upstream_with_retry_after_closes_its_lane() {
    let server = server(|_| reply("429 Too Many Requests", "retry-after: 100\r\n", ""));
    let pace = engine(&[("shop", Some(&server.address))]);
    let job = Job::new(HTTP_KIND, &json!({ "path": "/" })).on(["shop"]).max_wait("1s");
    let report = pace.submit(job).await.expect("accepted").report().await.expect("a report");
    assert_eq!(report.state, JobState::Skipped);
    let lanes = pace.lanes().await.expect("lanes");
    let until = lanes[0].cooldown_until.expect("it cools");
    assert!(pace.until(until) > Duration::from_secs(90));
}

#[tokio::test]
async fn a_redirect_carries_no_login_of_the_lanes_url() {
    let server = server(|seen| match seen.line.split(' ').nth(1) {
        Some("/absolute") => {
            let location = format!("location: http://{}/there\r\n", seen.headers["host"]);
            reply("302 Found", &location, "")
        }
        Some("/relative") => reply("302 Found", "location: /there\r\n", ""),
        _ => reply("200 OK", "", "there"),
    });
    let url = server.address.replace("http://", "http://user:secret@");
    let pace = engine(&[("shop", Some(&url))]);
    for path in ["/absolute", "/relative"] {
        let report = ask(&pace, "shop", &json!({ "path": path })).await;
        assert_eq!(found(&report)["body"], "there", "{path}: {report}");
    }
}

#[tokio::test]
async fn j7_a_redirect_is_followed_on_the_lane_of_the_server_it_leads_to() {
    let far = server(|_| reply("200 OK", "", "there"));
    let location = format!("location: {}/new\r\n", far.address);
    let near = server(move |seen| match seen.line.split(' ').nth(1) {
        Some("/here") => reply("307 Temporary Redirect", "location: /there\r\n", ""),
        Some("/lost") => reply("302 Found", "location: http://127.0.0.1:9/\r\n", ""),
        _ => reply("302 Found", &location, ""),
    });
    let pace = engine(&[("near", Some(&near.address)), ("far", Some(&far.address))]);
    let payload = json!({ "path": "/here", "headers": {"Authorization": "secret"} });
    let report = ask(&pace, "near", &payload).await;
    assert_eq!(found(&report)["body"], "there");
    let lanes: Vec<&str> = report.calls.iter().map(|call| &*call.lane).collect();
    assert_eq!(lanes, ["near", "near", "far"]);
    let seen = far.seen.recv().expect("a request");
    assert!(!seen.headers.contains_key("authorization"), "that was for the other server");
    assert_eq!(class(&*ask(&pace, "near", &json!({ "path": "/lost" })).await), "redirect");
    let kept = found(&*ask(&pace, "near", &json!({ "path": "/here", "redirects": "keep" })).await);
    assert_eq!(kept["status"], 307);
}

#[tokio::test]
async fn a_private_address_is_asked_only_on_a_lane_whose_url_it_is() {
    let server = server(|_| reply("200 OK", "", "secrets of this machine"));
    let pace = engine(&[("open", None), ("host:*", None)]);
    let port = server.address.rsplit(':').next().expect("a port").to_string();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433"] {
        let payload = json!({ "url": format!("http://{host}:{port}/") });
        let report = ask(&pace, "open", &payload).await;
        assert_eq!(class(&report), "private", "{host}");
    }
    let payload = json!({ "url": format!("http://127.0.0.1:{port}/") });
    let report = ask(&pace, &format!("host:127.0.0.1:{port}"), &payload).await;
    assert_eq!(class(&report), "private");
    assert!(server.seen.try_recv().is_err(), "nothing was sent");
}

#[tokio::test]
async fn an_invalid_payload_is_a_failure_that_says_so() {
    let pace = engine(&[("shop", Some("http://127.0.0.1:9"))]);
    for payload in
        [json!({}), json!({ "url": "http://127.0.0.1:10/" }), json!({ "path": "/", "x": 1 })]
    {
        assert_eq!(class(&*ask(&pace, "shop", &payload).await), "payload", "{payload}");
    }
    assert_eq!(class(&*ask(&pace, "shop", &json!({ "path": "/" })).await), "connect");
}

#[tokio::test]
async fn a_long_body_is_cut_and_says_so() {
    let server = server(|_| reply("200 OK", "", &"x".repeat(2 << 20)));
    let pace = engine(&[("shop", Some(&server.address))]);
    let value = found(&*ask(&pace, "shop", &json!({ "path": "/" })).await);
    assert_eq!(value["body_cut"], true);
    assert_eq!(value["body"].as_str().map(str::len), Some(512 << 10));
}
