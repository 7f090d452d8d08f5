//! The secrets of lanes never leave the process, except to their upstream.

use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::kit::{Upstream, made, reply};

const SECRET: &str = "hunter2-do-not-show";

/// A log that keeps what is written to it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_secret_of_a_lane_is_in_no_response_event_metric_or_log() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let lines = lines.with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(lines);
    // An upstream that fails and refuses, and whose responses do not contain the secret.
    let upstream = Upstream::start(|request| match request.split(' ').nth(1) {
        Some("/fail") => reply("500 Internal Server Error", "", "broken"),
        Some("/slow") => reply("429 Too Many Requests", "", ""),
        Some("/away") => reply("302 Found", "location: http://127.0.0.1:1/\r\n", ""),
        _ => reply("200 OK", "", "fine"),
    })
    .await;
    let mut made = made(upstream.address);
    if let Some(place) = made.endpoints.get_mut("shop") {
        let mut value: hyper::header::HeaderValue = SECRET.parse().expect("a value");
        value.set_sensitive(true);
        place.headers = vec![(hyper::header::AUTHORIZATION, value)];
    }
    let daemon = made.start().await;
    let mut shown: Vec<String> = Vec::new();
    for path in ["/fine", "/fail", "/away"] {
        let body = format!(
            r#"{{"kind":"http","lanes":["shop"],"payload":{{"path":"{path}","headers":{{"authorization":"mine"}}}},"attempts":1}}"#
        );
        shown.push(daemon.done(&body).await.to_string());
        shown.push(format!("{:?}", daemon.get(&format!("/to/shop{path}")).await));
    }
    shown.push(format!(
        "{:?}",
        daemon.ask("GET", "/to/shop/slow", &[("paceline-max-wait", "1s")], "").await
    ));
    for path in [
        "/api/v1/jobs",
        "/api/v1/jobs/1",
        "/api/v1/lanes",
        "/api/v1/lanes/shop",
        "/metrics",
        "/api/v1/summary",
        "/api/v1/openapi.json",
    ] {
        shown.push(format!("{:?}", daemon.get(path).await));
    }
    let (events, _) = daemon.pace.kept_events(0, 1_000).await.expect("it runs");
    shown.push(format!("{events:?}"));
    shown.push(String::from_utf8_lossy(&log.0.lock().expect("no panic")).into_owned());
    let shown = shown.concat();
    assert!(
        upstream.seen().iter().all(|request| request.contains(SECRET)),
        "the upstream gets the secret"
    );
    assert!(shown.contains("broken") || shown.contains("status_500"), "something was shown");
    assert!(!shown.contains(SECRET), "{shown}");
}
