//! Lanes, services, the summary and metrics through the API.

use serde_json::json;

use crate::kit::{Upstream, made};

#[tokio::test]
async fn a_lane_has_the_shape_that_scripts_rely_on() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.builder = made.builder.lane(paceline::Lane::new("fast").limit("50/s").every("1s"));
    let daemon = made.start().await;
    let lanes = daemon.get("/api/v1/lanes").await.json();
    let names: Vec<_> =
        lanes["lanes"].as_array().expect("a list").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["bare", "fast", "shop"]);
    let lane = daemon.get("/api/v1/lanes/fast").await.json();
    assert_eq!(lane["limits"], json!([{"limit": "50/s", "used": 0}]));
    assert_eq!(lane["rules"]["every"], "1s");
    for (name, value) in [
        ("why_closed", json!(null)),
        ("in_flight", json!(0)),
        ("waiting", json!(0)),
        ("cooldown_until", json!(null)),
        ("paused", json!(false)),
    ] {
        assert_eq!(lane[name], value, "{name}");
    }
    assert_eq!(daemon.get("/api/v1/lanes/none").await.reason(), "unknown_lane");
}

#[tokio::test]
async fn a_lane_is_paused_resumed_reset_and_changed() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let paused = daemon.post("/api/v1/lanes/shop/pause", "").await.json();
    assert_eq!((&paused["paused"], &paused["why_closed"]), (&json!(true), &json!("paused")));
    let resumed = daemon.post("/api/v1/lanes/shop/resume", "").await.json();
    assert_eq!((&resumed["paused"], &resumed["why_closed"]), (&json!(false), &json!(null)));
    assert_eq!(daemon.post("/api/v1/lanes/shop/reset", "").await.status, 200);
    let rules = r#"{"limits": ["10/s", {"limit": "100/d", "keep": {"interactive": 0.2}}], "in_flight": 2, "every": "10ms", "slack": "5ms"}"#;
    let changed = daemon.ask("PUT", "/api/v1/lanes/shop", &[], rules).await.json();
    let limits = json!([{"limit": "10/s", "used": 0}, {"limit": "100/d", "used": 0}]);
    assert_eq!((&changed["limits"], &changed["rules"]["in_flight"]), (&limits, &json!(2)));
    assert_eq!(changed["rules"]["slack"], "5ms");
    let rules = r#"{"every": "10s", "gap_share": {"interactive": 0.1, "background": 0.5}}"#;
    let changed = daemon.ask("PUT", "/api/v1/lanes/shop", &[], rules).await.json();
    let gaps = json!({"interactive": "1s", "rss": "10s", "completion": "10s", "background": "5s"});
    assert_eq!(changed["rules"]["gaps"], gaps);
    for wrong in [
        r#"{"limits": ["10/x"]}"#,
        r#"{"in_flight": 0}"#,
        r#"{"every": "0s"}"#,
        r#"{"slack": "2s"}"#,
        r#"{"every": "1s", "gap_share": {"urgent": 0.5}}"#,
        r#"{"every": "1s", "gap_share": {"rss": 1.5}}"#,
        r#"{"colour": 1}"#,
        "[]",
        r#"{"group": "none"}"#,
    ] {
        assert_eq!(
            daemon.ask("PUT", "/api/v1/lanes/shop", &[], wrong).await.status,
            422,
            "{wrong}"
        );
    }
    assert_eq!(daemon.ask("PUT", "/api/v1/lanes/none", &[], "{}").await.status, 404);
    for act in ["pause", "resume", "reset"] {
        let path = format!("/api/v1/lanes/none/{act}");
        assert_eq!(daemon.post(&path, "").await.reason(), "unknown_lane");
    }
}

#[tokio::test]
async fn unknown_services_are_not_found() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    assert_eq!(daemon.get("/api/v1/services").await.json(), json!({"services": []}));
    assert_eq!(daemon.get("/api/v1/rosters").await.json(), json!({"rosters": []}));
    for path in ["/services/x", "/services/x/output", "/rosters/x"] {
        assert_eq!(daemon.get(&format!("/api/v1{path}")).await.status, 404, "{path}");
    }
    for path in ["/services/x/run", "/services/x/reset"] {
        assert_eq!(daemon.post(&format!("/api/v1{path}"), "").await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn the_summary_is_ten_flat_numbers_and_metrics_are_prometheus_text() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.done(r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"}}"#).await;
    let summary = daemon.get("/api/v1/summary").await.json();
    let figures = summary.as_object().expect("an object");
    assert_eq!((figures.len(), figures.values().all(serde_json::Value::is_u64)), (10, true));
    assert_eq!((&summary["accepted"], &summary["jobs"]), (&json!(1), &json!(0)));
    // Metrics follow a moment after the commit.
    let counted = async {
        loop {
            let metrics = daemon.get("/metrics").await;
            assert!(metrics.headers["content-type"].starts_with("text/plain; version=0.0.4"));
            let all = [
                "paceline_jobs_accepted_total 1",
                "paceline_lane_waiting{lane=\"shop\"} 0",
                "paceline_calls_settled_total{lane=\"shop\",outcome=\"done\"} 1",
                "paceline_jobs_finished_total{state=\"done\"} 1",
                "paceline_calls_waiting_by_reason{reason=\"window\"} 0",
                "paceline_commit_seconds_bucket{le=\"300\"}",
                "# HELP paceline_oldest_waiting_seconds",
            ];
            if all.iter().all(|line| metrics.text.contains(line)) {
                return;
            }
        }
    };
    crate::kit::soon(counted).await;
}

#[tokio::test]
async fn lanes_beyond_the_limit_share_a_label_and_the_oldest_call_shows() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.builder = made.builder.lane(paceline::Lane::new("many:*"));
    let daemon = made.start().await;
    for n in 0..210 {
        let permit = daemon.post(&format!("/api/v1/lanes/many:{n}/permits"), "{}").await;
        assert_eq!(permit.status, 201);
    }
    let waits = daemon.post("/api/v1/lanes/many:7/permits", "{}");
    let mut waits = std::pin::pin!(waits);
    let told = async {
        loop {
            tokio::select! {
                _ = &mut waits => panic!("its lane is busy"),
                lane = daemon.get("/api/v1/lanes/many:7") => {
                    if lane.json()["oldest_at"].is_string() {
                        return daemon.get("/metrics").await.text;
                    }
                }
            }
        }
    };
    let metrics = crate::kit::soon(told).await;
    let of = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(of("paceline_lane_in_flight{"), 201, "{metrics}");
    let figure = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {metrics}")).trim().parse().expect("a number")
    };
    // `shop` and `bare` are lanes too.
    assert!(figure("paceline_lane_in_flight{lane=\"other\"}") >= 10.0, "{metrics}");
    assert!(figure("paceline_oldest_waiting_seconds ") > 0.0, "{metrics}");
    assert_eq!(figure("paceline_calls_waiting_by_reason{reason=\"busy\"}") as u64, 1);
}

#[tokio::test]
async fn liveness_and_readiness_differ() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    assert_eq!(daemon.get("/livez").await.text, "ok\n");
    assert_eq!(daemon.get("/readyz").await.text, "ok\n");
    daemon.server.stopping();
    assert_eq!(daemon.get("/livez").await.status, 200);
    assert_eq!(daemon.get("/readyz").await.reason(), "not_ready");
    daemon.pace.stop(std::time::Duration::ZERO).await.expect("it stops");
    let refused = daemon
        .post("/api/v1/jobs", r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"}}"#)
        .await;
    assert_eq!((refused.status, &*refused.reason()), (503, "stopped"));
}
