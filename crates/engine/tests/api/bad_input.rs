//! Bad input: each mistake gets its own sentence, and changes nothing.

use std::num::NonZeroU32;

use paceline::{Builder, Call, Group, Job, Lane, Outcome, Paceline, Priority, Work};

use crate::desk::{ask, small, soon, start};

const AGES: std::time::Duration = std::time::Duration::from_secs(400_000_000);

async fn nothing(_: Call) -> Work {
    Outcome::empty()
}

#[tokio::test]
async fn a_job_that_cannot_be_accepted_is_refused_with_its_reason() {
    let (worker, _desk) = crate::desk::desk();
    let builder = Paceline::in_memory()
        .lane(Lane::new("a"))
        .lane(Lane::new("dear").limit("5/s"))
        .lane(Lane::new("host:*"));
    let pace = start(builder.worker("ask", worker));
    let on = |lane: &str| Job::new("ask", "x").on([lane]);
    let unwritable = std::collections::BTreeMap::from([(vec![1], 1)]);
    let long = "x".repeat(1 << 20);
    let key = vec![b'k'; 1_025];
    let many: Vec<String> = (0..1_001).map(|n| format!("host:{n}")).collect();
    for (job, sentence) in [
        (ask(&long), "a payload of 1048578 bytes is too large: at most 1048576"),
        (Job::new("ask", &unwritable).on(["a"]), "the payload cannot be written as JSON"),
        (
            on("nowhere"),
            "no lane named `nowhere`: configure it, or a template such as `host:*` that covers it",
        ),
        (
            Job::new("sing", "x").on(["a"]),
            "no worker for the kind `sing`: register one before the start",
        ),
        (
            on("host:\u{7}"),
            "the lane name `host:\\u{7}` has control characters or white space at its ends",
        ),
        (on(""), "a lane needs a name"),
        (
            ask("x").tenant("a\0b"),
            "the tenant name `a\\0b` has control characters or white space at its ends",
        ),
        (ask("x").tenant(""), "a tenant needs a name"),
        (Job::new("ask", "x").on(["a", "a"]), "the lane `a` is named twice in one stage"),
        (Job::new("ask", "x").on(&many), "1001 calls are too many for one job: at most 1000"),
        (ask("x").key(&key), "a key of 1025 bytes is too long: at most 1024"),
        (ask("x").schedule_key(&key), "a schedule key of 1025 bytes is too long: at most 1024"),
        (ask("x").cache_key(&key), "a cache key of 1025 bytes is too long: at most 1024"),
        (ask("x").cost(0), "`cost` must be above zero"),
        (ask("x").attempts(0), "`attempts` must be above zero"),
        (on("dear").cost(6), "a cost of 6 can never fit the limit `5/s` of `dear`: it allows 5"),
        (
            ask("x").max_wait("5 parsecs"),
            "`5 parsecs` is not a span of time: write it like `250ms`, `90s` or `1h30m`",
        ),
        (ask("x").deadline("4000d"), "`4000d` is longer than ten years"),
        (ask("x").deadline(AGES), "`deadline` is longer than ten years"),
        (ask("x").delay(AGES), "`delay` is longer than ten years"),
    ] {
        let refused = pace.submit(job).await.expect_err(sentence);
        assert_eq!(refused.to_string(), sentence);
    }
    let (jobs, _) = soon(pace.list(None, 10, None)).await.expect("running");
    assert!(jobs.is_empty(), "nothing was left behind");
}

#[track_caller]
fn check(builder: Builder, sentence: &str) {
    assert_eq!(builder.start().expect_err(sentence).to_string(), sentence);
}

#[tokio::test]
async fn an_engine_that_cannot_work_does_not_start() {
    let new = || Paceline::in_memory().worker("ask", nothing);
    let lane = |lane: Lane| new().lane(lane);
    check(
        lane(Lane::new("a").limit("0/s")),
        "lane or group `a`: `0/s` allows nothing: both numbers of a rate must be above zero",
    );
    check(
        lane(Lane::new("a").limit("5/0s")),
        "lane or group `a`: `5/0s` allows nothing: both numbers of a rate must be above zero",
    );
    check(
        lane(Lane::new("a").in_flight(0)),
        "lane or group `a`: `in_flight` is zero: nothing could run",
    );
    check(
        lane(Lane::new("a").limit("5/s").keep(Priority::Rss, 1.5)),
        "lane or group `a`: `keep` is a part from 0 to 1",
    );
    check(lane(Lane::new("")), "lane or group ``: a lane needs a name");
    check(
        lane(Lane::new("a").group("g")),
        "lane `a` is in the group `g`, which does not exist: add it, or leave it out",
    );
    check(lane(Lane::new("a")).lane(Lane::new("a")), "lane `a` is described twice");
    check(new().group(Group::new("g")).group(Group::new("g")), "group `g` is described twice");
    check(new().worker("ask", nothing), "worker `ask` is described twice");
    check(
        Paceline::in_memory().worker("a\tb", nothing),
        "the kind name `a\\tb` has control characters or white space at its ends",
    );
    check(new().workers(2, 1), "`workers.max = 1` is below `workers.base = 2`");
    check(new().workers(0, 1), "`workers.base` is zero: set it to at least 1");
    check(new().workers(1, 0), "`workers.max` is zero: set it to at least 1");
    let span = "`soon` is not a span of time: write it like `250ms`, `90s` or `1h30m`";
    check(new().keep_finished("soon"), &format!("`keep_finished`: {span}"));
    check(new().heartbeat("soon", || {}), &format!("`heartbeat`: {span}"));
    check(new().settings(|settings| settings.max_payload = 0), "`max_payload` must be above zero");
}

#[test]
fn an_engine_needs_a_runtime() {
    let builder = Paceline::in_memory().worker("ask", nothing);
    let error = builder.start().expect_err("there is none").to_string();
    assert_eq!(error, "no tokio runtime here: call `start` from within one");
}

#[tokio::test]
async fn l10_a_template_makes_no_more_lanes_than_allowed() {
    let (worker, mut desk) = crate::desk::desk();
    let builder = Paceline::in_memory().lane(Lane::new("host:*").every("1h"));
    let three = NonZeroU32::new(3).expect("above zero");
    let pace = start(builder.worker("ask", worker).settings(|settings| settings.max_lanes = three));
    let on = |n: u32| Job::new("ask", "x").on([format!("host:{n}")]);
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for batch in 0..10 {
        for answer in pace.submit_all((0..1_000).map(|n| on(batch * 1_000 + n))).await {
            match answer {
                Ok(job) => accepted.push(job),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.starts_with("no room for the lane `host:"), "{text}");
                    assert!(text.ends_with("`: 3 lanes exist and none is idle (`max_lanes`)"));
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((accepted.len(), refused), (3, 9_997));
    for job in accepted {
        desk.next().await.done();
        soon(job.report()).await.expect("a report");
    }
    let lanes = soon(pace.lanes()).await.expect("running");
    assert_eq!(lanes.len(), 3);
    pace.submit(on(4)).await.expect_err("they are idle, but remember their last call");
}

#[tokio::test]
async fn a_payload_may_be_as_large_as_allowed() {
    let (pace, mut desk) = small();
    let text = "x".repeat((1 << 20) - 2);
    let job = pace.submit(ask(&text)).await.expect("accepted");
    let visit = desk.next().await;
    assert_eq!(visit.payload.len(), 1 << 20);
    visit.answer(Outcome::empty());
    soon(job.report()).await.expect("a report");
}
