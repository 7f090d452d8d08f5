//! Permits: turns for programs that make their own calls.

use std::time::Duration;

use serde_json::json;

use crate::kit::{Daemon, Upstream, made, soon};

async fn permit(daemon: &Daemon, lane: &str, form: &str) -> u64 {
    let answer = daemon.post(&format!("/api/v1/lanes/{lane}/permits"), form).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["permit"].as_u64().expect("a number")
}

async fn settle(daemon: &Daemon, permit: u64, form: &str) -> crate::kit::Answer {
    daemon.post(&format!("/api/v1/permits/{permit}/settle"), form).await
}

#[tokio::test]
async fn a_permit_holds_the_slot_until_it_is_settled() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let first = permit(&daemon, "bare", "{}").await;
    let waiting = daemon.post("/api/v1/lanes/bare/permits", r#"{"max_wait": "10s"}"#);
    let mut waiting = std::pin::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(early.is_err(), "one at a time");
    let settled = settle(&daemon, first, r#"{"status": 200}"#).await;
    assert_eq!(settled.json(), json!({"permit": first, "outcome": "done"}));
    assert_eq!(soon(waiting).await.status, 201);
}

#[tokio::test]
async fn l6_limits_that_the_upstream_announces_close_the_lane_for_all_callers() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let first = permit(&daemon, "shop", "{}").await;
    let settled = settle(&daemon, first, r#"{"status": 429, "retry_after": "30"}"#).await;
    assert_eq!(settled.json()["outcome"], "failed");
    let lane = daemon.get("/api/v1/lanes/shop").await.json();
    assert_eq!(lane["why_closed"], "cooldown");
    let refused = daemon.post("/api/v1/lanes/shop/permits", r#"{"max_wait": "5s"}"#).await;
    assert_eq!(refused.status, 429);
    let wait = refused.json()["wait_ms"].as_u64().expect("the time it would take");
    assert!((28_000..=30_000).contains(&wait), "{wait}");
    let after: u64 = refused.headers["retry-after"].parse().expect("seconds");
    assert!((23..=25).contains(&after), "{after}");
}

#[tokio::test]
async fn a_permit_that_is_not_settled_in_its_time_is_unknown_and_its_slot_is_free() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let lost = permit(&daemon, "bare", r#"{"ttl": "100ms"}"#).await;
    permit(&daemon, "bare", r#"{"max_wait": "10s"}"#).await;
    let job = daemon.get(&format!("/api/v1/jobs/{lost}")).await.json();
    assert_eq!((&job["state"], &job["calls"][0]["class"]), (&json!("failed"), &json!("unknown")));
    let late = settle(&daemon, lost, "{}").await;
    assert_eq!((late.status, &*late.reason()), (409, "settled"));
    // The result of the call is unknown, so it does not change the lane's health.
    assert_eq!(daemon.get("/api/v1/lanes/bare").await.json()["cooldown_until"], json!(null));
}

#[tokio::test]
async fn l3_permits_keep_the_limits_of_their_lane() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.builder = made.builder.lane(paceline::Lane::new("two").limit("2/10s").in_flight(9));
    let daemon = made.start().await;
    for _ in 0..2 {
        permit(&daemon, "two", "{}").await;
    }
    let third = daemon.post("/api/v1/lanes/two/permits", r#"{"max_wait": "1s"}"#).await;
    assert_eq!((third.status, &*third.reason()), (429, "start_within"));
    // A restart forgets no charge: both count in the window.
    assert_eq!(daemon.get("/api/v1/lanes/two").await.json()["limits"][0]["used"], 2);
}

#[tokio::test]
async fn a_caller_that_leaves_while_it_waits_leaves_no_trace_in_the_queue() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let held = permit(&daemon, "bare", "{}").await;
    let waiting = daemon.post("/api/v1/lanes/bare/permits", "{}");
    let _ = tokio::time::timeout(Duration::from_millis(100), waiting).await;
    let gone = async { while daemon.get("/api/v1/lanes/bare").await.json()["waiting"] != 0 {} };
    soon(gone).await;
    assert_eq!(settle(&daemon, held, "{}").await.status, 200);
    permit(&daemon, "bare", "{}").await;
}

#[tokio::test]
async fn invalid_permit_requests_have_reasons_of_their_own() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let ask = async |form: &str| daemon.post("/api/v1/lanes/shop/permits", form).await.status;
    assert_eq!(ask(r#"{"max_wait": "2h"}"#).await, 422);
    assert_eq!(ask(r#"{"ttl": "0s"}"#).await, 422);
    assert_eq!(ask(r#"{"ttl": "soon"}"#).await, 422);
    assert_eq!(ask(r#"{"cost": 0}"#).await, 422);
    assert_eq!(ask("{").await, 400);
    assert_eq!(daemon.post("/api/v1/lanes/none/permits", "{}").await.status, 404);
    assert_eq!(settle(&daemon, 99, "{}").await.reason(), "unknown_permit");
    let held = permit(&daemon, "shop", "{}").await;
    assert_eq!(settle(&daemon, held, r#"{"status": 9}"#).await.status, 422);
    assert_eq!(settle(&daemon, held, r#"{"retry_after": "soon"}"#).await.status, 422);
    assert_eq!(settle(&daemon, held, r#"{"headers": {"a b": "c"}}"#).await.status, 422);
    assert_eq!(settle(&daemon, held, "{}").await.status, 200);
}

#[tokio::test]
async fn a_caller_that_does_not_wait_gets_its_turn_on_an_open_lane() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let held = permit(&daemon, "bare", r#"{"max_wait": "0s"}"#).await;
    let second = daemon.post("/api/v1/lanes/bare/permits", r#"{"max_wait": "0s"}"#).await;
    assert_eq!(second.status, 429);
    let again = daemon.post(&format!("/api/v1/jobs/{held}/retry"), "").await;
    assert_eq!((again.status, &*again.reason()), (409, "once"));
}

#[tokio::test]
async fn permits_that_are_out_take_no_worker_from_others() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.builder = made.builder.lane(paceline::Lane::new("many:*"));
    let daemon = made.start().await;
    for n in 0..40 {
        permit(&daemon, &format!("many:{n}"), "{}").await;
    }
    let body = r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"}}"#;
    assert_eq!(daemon.done(body).await["state"], "done");
}

#[tokio::test]
async fn p5_as_many_permits_are_out_as_their_lane_allows_whatever_the_pool() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.builder = made
        .builder
        .lane(paceline::Lane::new("wide").in_flight(40))
        .settings(|settings| settings.pool.lane_share = paceline::lanes::Portion::thousandths(500));
    let daemon = made.start().await;
    for _ in 0..40 {
        permit(&daemon, "wide", r#"{"max_wait": "0s"}"#).await;
    }
    let one_more = daemon.post("/api/v1/lanes/wide/permits", r#"{"max_wait": "0s"}"#).await;
    assert_eq!(one_more.status, 429);
}

#[tokio::test]
async fn w1_a_permit_on_a_paused_lane_is_refused_at_once_and_names_the_remedy() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    for form in ["{}", r#"{"max_wait": "0s"}"#, r#"{"max_wait": "10m"}"#] {
        daemon.post("/api/v1/lanes/shop/permits", form).await.assert_paused("shop");
    }
    daemon.post("/api/v1/lanes/shop/resume", "{}").await;
    permit(&daemon, "shop", "{}").await;
}

#[tokio::test]
async fn w1_a_permit_whose_lane_is_paused_while_it_waits_is_refused_for_the_pause() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    permit(&daemon, "bare", "{}").await;
    let waiting = daemon.post("/api/v1/lanes/bare/permits", r#"{"max_wait": "2s"}"#);
    let paused = async {
        while daemon.get("/api/v1/lanes/bare").await.json()["waiting"] != 1 {}
        daemon.post("/api/v1/lanes/bare/pause", "{}").await
    };
    let (answer, _) = soon(futures_util::future::join(waiting, paused)).await;
    answer.assert_paused("bare");
}

#[tokio::test]
async fn a_permit_request_needs_no_body() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let mut client = tokio::net::TcpStream::connect(daemon.address).await.expect("it listens");
    let request = format!(
        "POST /api/v1/lanes/shop/permits HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        daemon.address
    );
    tokio::io::AsyncWriteExt::write_all(&mut client, request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let read = tokio::io::AsyncReadExt::read_to_string(&mut client, &mut answer);
    soon(read).await.expect("text");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

#[tokio::test]
async fn permits_that_wait_take_no_room_from_settlements() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.terms.max_body = 10;
    let daemon = made.start().await;
    let held = permit(&daemon, "bare", "{}").await;
    let waiting: Vec<_> =
        (0..50).map(|_| daemon.post("/api/v1/lanes/bare/permits", "{}")).collect();
    let waiting = futures_util::future::join_all(waiting);
    let settled = async {
        while daemon.get("/api/v1/lanes/bare").await.json()["waiting"] != 50 {}
        settle(&daemon, held, "{}").await
    };
    tokio::select! {
        _ = waiting => panic!("only one has its turn"),
        settled = soon(settled) => assert_eq!(settled.status, 200, "{settled:?}"),
    }
}
