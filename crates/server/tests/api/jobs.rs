//! Jobs through the API: submit, wait, repeat, show, cancel, retry.

use serde_json::{Value, json};

use crate::kit::{Upstream, made, reply, soon};

const ONE: &str = r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/item/1"}}"#;

#[tokio::test]
async fn a_job_is_accepted_with_its_number_and_ends_in_the_report_of_the_contract() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let answer = daemon.post("/api/v1/jobs", ONE).await;
    assert_eq!(answer.status, 202);
    let expected = json!({"jobs": [{"job": 1, "admission": "accepted", "retry_at": null}]});
    assert_eq!(answer.json(), expected);
    daemon.pace.idle().await.expect("it runs");
    let job = daemon.get("/api/v1/jobs/1").await.json();
    let outline = |name: &str| job[name].clone();
    assert_eq!(
        (outline("job"), outline("state"), outline("answer")),
        (json!(1), json!("done"), json!("all"))
    );
    let call = &job["calls"][0];
    assert_eq!((&call["lane"], &call["outcome"]), (&json!("shop"), &json!("done")));
    assert_eq!((&call["value"]["status"], &call["value"]["body"]), (&json!(200), &json!("yes")));
    assert_eq!(job["kind"], "http");
    assert!(upstream.seen()[0].starts_with("GET /item/1 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_list_is_one_commit_and_each_job_is_refused_by_itself() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let before = daemon.pace.commits();
    let body = json!([
        {"kind": "http", "lanes": ["shop"], "payload": {"path": "/1"}, "delay": "1h"},
        {"kind": "http", "lanes": ["nowhere"], "payload": {"path": "/2"}},
        {"kind": "service", "lanes": ["shop"]},
        {"kind": "http", "lanes": ["shop"], "payload": {"path": "no slash"}},
        {"kind": "http", "lanes": ["shop"], "payload": {"path": "/3"}, "max_wait": "soon"},
        {"kind": "http", "stages": [["shop"], ["bare"]], "payload": {"url": format!("http://{}/", upstream.address)}, "delay": "1h"},
    ]);
    let answer = daemon.post("/api/v1/jobs", &body.to_string()).await;
    assert_eq!(answer.status, 202);
    let jobs = answer.json()["jobs"].clone();
    let told: Vec<(&Value, &Value)> = jobs
        .as_array()
        .expect("a list")
        .iter()
        .map(|job| (&job["admission"], &job["problem"]["reason"]))
        .collect();
    let (accepted, refused, none) = (json!("accepted"), json!("refused"), Value::Null);
    let (bad, kind) = (json!("unacceptable"), json!("unknown_kind"));
    let lane = json!("unknown_lane");
    assert_eq!(
        told,
        [
            (&accepted, &none),
            (&refused, &lane),
            (&refused, &kind),
            (&refused, &bad),
            (&refused, &bad),
            (&accepted, &none),
        ]
    );
    assert_eq!(daemon.pace.commits(), before + 1);
}

#[tokio::test]
async fn a_caller_may_wait_for_the_report_and_no_longer_than_it_said() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let report = daemon.done(ONE).await;
    assert_eq!(report["calls"][0]["value"]["body"], "yes");
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    let answer = daemon.ask("POST", "/api/v1/jobs", &[("prefer", "wait=0")], ONE).await;
    assert_eq!((answer.status, &answer.headers["preference-applied"][..]), (202, "wait=0"));
    assert_eq!(answer.json()["jobs"][0].get("report"), None);
}

#[tokio::test]
async fn a_repeated_request_takes_effect_once() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let key = [("idempotency-key", "a")];
    let first = daemon.ask("POST", "/api/v1/jobs", &key, ONE).await;
    let again = daemon.ask("POST", "/api/v1/jobs", &key, ONE).await;
    assert_eq!((first.json(), first.status), (again.json(), again.status));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let other = daemon.ask("POST", "/api/v1/jobs", &key, &ONE.replace("/item/1", "/2")).await;
    assert_eq!((other.status, &*other.reason()), (422, "key_reused"));
    let own = daemon.ask("POST", "/api/v1/jobs", &[("idempotency-key", "b")], ONE).await;
    assert_eq!(own.json()["jobs"][0]["job"], 2);
    let empty = daemon.ask("POST", "/api/v1/jobs", &[("idempotency-key", "")], ONE).await;
    assert_eq!(empty.status, 400);
}

#[tokio::test]
async fn a_repeated_list_gets_the_same_response_with_its_refusals() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let nowhere = ONE.replace("shop", "none");
    let no_span = format!(r#"{},"deadline":"soon"}}"#, &ONE[..ONE.len() - 1]);
    let no_kind = ONE.replace("http", "unknown");
    let body = format!("[{no_kind},{ONE},{no_span},{nowhere},{ONE},{no_kind}]");
    let key = [("idempotency-key", "a")];
    let first = daemon.ask("POST", "/api/v1/jobs", &key, &body).await;
    let told = first.json();
    let jobs = told["jobs"].as_array().expect("a list");
    let words: Vec<&Value> = jobs.iter().map(|it| &it["admission"]).collect();
    let expected = ["refused", "accepted", "refused", "refused", "accepted", "refused"];
    assert_eq!(words, expected, "{first:?}");
    let again = daemon.ask("POST", "/api/v1/jobs", &key, &body).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.json(), told, "word for word");
    assert_eq!(jobs[3]["problem"]["reason"], "unknown_lane");
    assert_eq!(daemon.get("/api/v1/summary").await.json()["accepted"], 2);
}

#[tokio::test]
async fn jobs_are_listed_from_either_end_page_by_page() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    daemon.post("/api/v1/jobs", &format!("[{}]", [ONE; 5].join(","))).await;
    let page = async |query: &str| {
        let page = daemon.get(&format!("/api/v1/jobs?limit=2{query}")).await.json();
        let jobs = page["jobs"].as_array().expect("a list").iter();
        (jobs.map(|job| job["job"].as_u64().expect("a number")).collect(), page["next"].clone())
    };
    assert_eq!(page("").await, (vec![1, 2], json!(2)));
    assert_eq!(page("&cursor=4&order=oldest").await, (vec![5], json!(null)));
    assert_eq!(page("&order=newest").await, (vec![5, 4], json!(4)));
    assert_eq!(page("&order=newest&cursor=4&state=waiting").await, (vec![3, 2], json!(2)));
    assert_eq!(page("&order=newest&cursor=2").await, (vec![1], json!(null)));
    assert_eq!(daemon.get("/api/v1/jobs?order=mine").await.status, 400);
}

#[tokio::test]
async fn a_request_under_a_key_that_is_being_answered_has_to_wait() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    // Slow bodies: the first request takes its key when its body is complete, and holds it until
    // then.
    let many = format!("[{}]", vec![ONE; 9_000].join(","));
    let key = [("idempotency-key", "a")];
    let answers = futures_util::future::join_all(
        (0..8).map(|_| daemon.ask("POST", "/api/v1/jobs", &key, &many)),
    )
    .await;
    let mut seen: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen == [202, 409] || seen == [202], "{seen:?}");
    let accepted = daemon.get("/api/v1/summary").await.json()["accepted"].clone();
    assert_eq!(accepted, 9_000);
}

#[tokio::test]
async fn q1_a_full_lane_is_503_and_refuses_no_other_lanes_work() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.builder = made.builder.settings(|settings| {
        settings.lane_waiting = std::num::NonZeroU32::new(1).expect("above zero");
    });
    let daemon = made.start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    assert_eq!(daemon.post("/api/v1/jobs", ONE).await.status, 202);
    let full = daemon.post("/api/v1/jobs", ONE).await;
    assert_eq!((full.status, &*full.reason()), (503, "room"));
    // Only an operator ends a pause, so no moment for a retry is named.
    assert_eq!((&full.json()["lane"], &full.json()["retry_at"]), (&json!("shop"), &Value::Null));
    assert!(!full.headers.contains_key("retry-after"), "{full:?}");
    let listed = daemon.post("/api/v1/jobs", &format!("[{ONE}]")).await.json();
    assert_eq!(listed["jobs"][0]["admission"], "refused");
    let permit = daemon.post("/api/v1/lanes/bare/permits", "{}").await;
    assert_eq!(permit.status, 201, "another lane has room");
    // A refused request may be repeated with the same key.
    let key = [("idempotency-key", "a")];
    assert_eq!(daemon.ask("POST", "/api/v1/jobs", &key, ONE).await.status, 503);
    daemon.post("/api/v1/jobs/1/cancel", "{}").await;
    assert_eq!(daemon.ask("POST", "/api/v1/jobs", &key, ONE).await.status, 202);
}

#[tokio::test]
async fn q1_a_full_queue_names_the_moment_for_a_retry_and_refuses_no_permit() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.builder = made.builder.settings(|settings| {
        settings.max_waiting = std::num::NonZeroU32::new(1).expect("above zero");
    });
    let daemon = made.start().await;
    let slow = r#"{"every": "1h"}"#;
    assert_eq!(daemon.ask("PUT", "/api/v1/lanes/shop", &[], slow).await.status, 200);
    // The first closes the lane for an hour, and the second waits for that.
    let wait = [("prefer", "wait=20")];
    assert_eq!(daemon.ask("POST", "/api/v1/jobs", &wait, ONE).await.status, 200);
    assert_eq!(daemon.post("/api/v1/jobs", ONE).await.status, 202);
    let url = format!("http://{}/", upstream.address);
    let elsewhere = json!({"kind": "http", "lanes": ["bare"], "payload": {"url": url}});
    let full = daemon.post("/api/v1/jobs", &elsewhere.to_string()).await;
    assert_eq!((full.status, &*full.reason()), (503, "room"), "{full:?}");
    let seconds = full.headers["retry-after"].parse::<u64>().expect("seconds");
    assert!((3_000..=3_600).contains(&seconds), "{seconds}");
    assert!(full.json()["retry_at"].is_string() && full.json()["lane"].is_null());
    let permit = daemon.post("/api/v1/lanes/bare/permits", "{}").await;
    assert_eq!(permit.status, 201, "permits take room on their own lane alone");
}

#[tokio::test]
async fn d1_a_waiting_caller_gets_a_partial_report_at_its_own_deadline() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    let job = |more: Value| {
        let mut job: Value = serde_json::from_str(ONE).expect("JSON");
        job["key"] = json!("k");
        for (name, value) in more.as_object().expect("keys") {
            job[name] = value.clone();
        }
        job.to_string()
    };
    assert_eq!(daemon.post("/api/v1/jobs", &job(json!({}))).await.status, 202);
    let wait = [("prefer", "wait=20")];
    let hasty = job(json!({"deadline": "100ms"}));
    let answer = soon(daemon.ask("POST", "/api/v1/jobs", &wait, &hasty)).await;
    assert_eq!(answer.status, 200);
    let told = answer.json()["jobs"][0].clone();
    assert_eq!((&told["admission"], &told["report"]["partial"]), (&json!("joined"), &json!(true)));
    assert_eq!(told["report"]["state"], "waiting");
    assert_eq!(told["report"]["calls"][0]["reason"], "deadline");
    // So does a caller that repeats its request because its connection broke.
    let key = [("prefer", "wait=20"), ("idempotency-key", "a")];
    for replayed in [false, true] {
        let answer = soon(daemon.ask("POST", "/api/v1/jobs", &key, &hasty)).await;
        assert_eq!(answer.headers.contains_key("idempotency-replayed"), replayed);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["jobs"][0]["report"]["partial"], true);
    }
    // The job continues for the first caller, and its report is complete.
    daemon.post("/api/v1/lanes/shop/resume", "{}").await;
    daemon.pace.idle().await.expect("it runs");
    let report = daemon.get("/api/v1/jobs/1").await.json();
    assert_eq!((&report["state"], &report["partial"]), (&json!("done"), &Value::Null));
}

#[tokio::test]
async fn j1_a_job_without_lanes_is_422() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    for lanes in [r#""lanes":[]"#, r#""stages":[]"#, r#""stages":[["shop"],[]]"#] {
        let job = format!(r#"{{"kind":"http",{lanes},"payload":{{"path":"/item/1"}}}}"#);
        let refused = daemon.post("/api/v1/jobs", &job).await;
        assert_eq!((refused.status, &*refused.reason()), (422, "no_lanes"), "{lanes}");
    }
}

#[tokio::test]
async fn w3_a_waiting_job_says_why() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    for _ in 0..2 {
        daemon.post("/api/v1/jobs", ONE).await;
    }
    let job = daemon.get("/api/v1/jobs/2").await.json();
    assert_eq!((&job["state"], &job["calls"]), (&json!("waiting"), &json!([])));
    let expected = json!({"call": 0, "lane": "shop", "reason": "paused", "until": null, "ahead": 1, "also": ["priority"]});
    assert_eq!(job["why"], json!([expected]));
    assert_eq!(daemon.get("/api/v1/jobs/2/why").await.json(), json!({"job": 2, "why": [expected]}));
}

#[tokio::test]
async fn w1_a_job_that_does_not_wait_for_a_paused_lane_reports_the_pause() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    let endpoint = made.endpoints["shop"].clone();
    made.endpoints.insert("one".to_string(), endpoint);
    made.builder = made.builder.lane(paceline::Lane::new("one"));
    let daemon = made.start().await;
    let job = |lane: &str| {
        format!(
            r#"{{"kind":"http","lanes":["{lane}"],"payload":{{"path":"/"}},"max_wait":"300ms"}}"#
        )
    };
    let call = |lane: &str| {
        json!({
            "lane": lane, "outcome": "skipped", "reason": "max_wait", "cause": "paused",
            "max_wait_ms": 300, "priority": "background",
        })
    };
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    let on_arrival = daemon.done(&job("shop")).await;
    assert_eq!((&on_arrival["state"], &on_arrival["calls"][0]), (&json!("skipped"), &call("shop")));
    // Another call holds the only slot of the lane when it is paused.
    assert_eq!(daemon.post("/api/v1/lanes/one/permits", "{}").await.status, 201);
    let waits = job("one");
    let paused = async {
        while daemon.get("/api/v1/lanes/one").await.json()["waiting"] != 1 {}
        daemon.post("/api/v1/lanes/one/pause", "{}").await
    };
    let (report, _) = soon(futures_util::future::join(daemon.done(&waits), paused)).await;
    assert_eq!((&report["state"], &report["calls"][0]), (&json!("skipped"), &call("one")));
    let id = &report["job"];
    let why = daemon.get(&format!("/api/v1/jobs/{id}/why")).await.json();
    assert_eq!(why, json!({"job": id, "why": []}), "it waits no longer");
}

#[tokio::test]
async fn d1_the_same_work_is_joined_replaced_or_refused() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    let with = |choice: &str| {
        format!(
            r#"{{"kind":"http","lanes":["shop"],"payload":{{"path":"/"}},"key":"k","on_duplicate":"{choice}"}}"#
        )
    };
    let mut told = Vec::new();
    for choice in ["join", "join", "replace"] {
        let answer = daemon.post("/api/v1/jobs", &with(choice)).await.json();
        told.push(answer["jobs"][0]["admission"].as_str().expect("a word").to_string());
    }
    assert_eq!(told, ["accepted", "joined", "replaced"]);
    let refused = daemon.post("/api/v1/jobs", &with("refuse")).await;
    assert_eq!(
        (refused.status, &*refused.reason(), &refused.json()["job"]),
        (409, "duplicate", &json!(1))
    );
    let first = daemon.post("/api/v1/jobs/1/cancel", "{}").await.json();
    let last = daemon.post("/api/v1/jobs/1/cancel", "{}").await.json();
    assert_eq!((&first["cancelled"], &last["cancelled"]), (&json!("caller"), &json!("job")));
    let over = daemon.post("/api/v1/jobs/1/cancel", "{}").await;
    assert_eq!((over.status, &*over.reason()), (409, "finished"));
}

#[tokio::test]
async fn a_finished_job_is_retried_where_it_failed() {
    let upstream = Upstream::start(|_| reply("404 Not Found", "", "")).await;
    let daemon = made(upstream.address).start().await;
    let body = r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/","expect":{"failed":["4xx"]}},"attempts":1}"#;
    assert_eq!(daemon.done(body).await["state"], "failed");
    let again = daemon.post("/api/v1/jobs/1/retry", "{}").await;
    assert_eq!((again.status, &again.json()["jobs"][0]["job"]), (202, &json!(2)));
    assert_eq!(daemon.post("/api/v1/jobs/9/retry", "{}").await.status, 404);
    daemon.pace.idle().await.expect("it runs");
    let listed = daemon.get("/api/v1/jobs?state=failed").await.json();
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn jobs_are_listed_page_by_page_and_by_filters() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    for n in 1..=5 {
        let body = format!(
            r#"{{"kind":"http","lanes":["shop"],"payload":{{"path":"/{n}"}},"key":"k{n}","tenant":"t{}"}}"#,
            n % 2
        );
        assert_eq!(daemon.post("/api/v1/jobs", &body).await.status, 202);
    }
    let page = daemon.get("/api/v1/jobs?limit=2").await.json();
    let ids = |page: &Value| -> Vec<u64> {
        let jobs = page["jobs"].as_array().expect("a list");
        jobs.iter().filter_map(|job| job["job"].as_u64()).collect()
    };
    assert_eq!((ids(&page), &page["next"]), (vec![1, 2], &json!(2)));
    let rest = daemon.get("/api/v1/jobs?limit=10&cursor=2").await.json();
    assert_eq!((ids(&rest), &rest["next"]), (vec![3, 4, 5], &Value::Null));
    assert_eq!(ids(&daemon.get("/api/v1/jobs?tenant=t0").await.json()), [2, 4]);
    assert_eq!(ids(&daemon.get("/api/v1/jobs?key=k3").await.json()), [3]);
    assert_eq!(ids(&daemon.get("/api/v1/jobs?lane=bare").await.json()), [0; 0]);
    assert_eq!(
        ids(&daemon.get("/api/v1/jobs?state=waiting&kind=http&lane=shop").await.json()).len(),
        5
    );
    for wrong in ["limit=0", "limit=1001", "state=odd", "cursor=x", "colour=red"] {
        assert_eq!(daemon.get(&format!("/api/v1/jobs?{wrong}")).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_command_is_one_of_the_configuration_and_gets_its_input_as_data() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let body =
        r#"{"kind":"command","lanes":["bare"],"payload":{"command":"echo","input":{"a":"$(id)"}}}"#;
    let report = daemon.done(body).await;
    assert_eq!(report["calls"][0]["value"]["output"], "got {\"a\":\"$(id)\"}\n");
    for wrong in [r#"{"command":"rm"}"#, r#"{"command":"echo","args":["x"]}"#, "null", "[]"] {
        let body = format!(r#"{{"kind":"command","lanes":["bare"],"payload":{wrong}}}"#);
        assert_eq!(daemon.post("/api/v1/jobs", &body).await.status, 422, "{wrong}");
    }
}

#[tokio::test]
async fn c1_a_cached_answer_needs_no_request() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let body = r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"},"cache_key":"c"}"#;
    assert_eq!(daemon.done(body).await["calls"][0].get("cached"), None);
    let second = daemon.done(body).await;
    assert_eq!((&second["calls"][0]["cached"], upstream.seen().len()), (&json!(true), 1));
}

#[tokio::test]
async fn a_job_is_shown_when_it_is_finished_or_as_it_is_when_the_preferred_wait_is_over() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    daemon.post("/api/v1/jobs", ONE).await;
    let waiting = daemon.ask("GET", "/api/v1/jobs/1", &[("prefer", "wait=0")], "").await;
    assert_eq!((waiting.status, &waiting.headers["preference-applied"][..]), (202, "wait=0"));
    assert_eq!(waiting.json()["state"], "waiting");
    assert_eq!(waiting.json()["why"][0]["reason"], "paused");
    let finished = daemon.ask("GET", "/api/v1/jobs/1", &[("prefer", "wait=60")], "");
    let resumed = async {
        daemon.post("/api/v1/lanes/shop/resume", "{}").await;
    };
    let (finished, ()) = soon(futures_util::future::join(finished, resumed)).await;
    assert_eq!((finished.status, finished.json()["state"].clone()), (200, json!("done")));
    assert_eq!(finished.json()["calls"][0]["value"]["body"], "yes");
    let again = daemon.ask("GET", "/api/v1/jobs/1", &[("prefer", "wait=60")], "").await;
    assert_eq!(
        (again.status, again.json()),
        (200, finished.json()),
        "what is finished needs no wait"
    );
    assert_eq!(daemon.ask("GET", "/api/v1/jobs/2", &[("prefer", "wait=60")], "").await.status, 404);
    let plain = daemon.get("/api/v1/jobs/1").await;
    assert_eq!((plain.status, plain.headers.get("preference-applied")), (200, None));
}
