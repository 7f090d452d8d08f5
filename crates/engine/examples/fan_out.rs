//! One question to several upstreams: stage by stage, until one of them knows, and never twice.

use paceline::{Call, Job, Lane, Outcome, Paceline, Work};

async fn ask(call: Call) -> Work {
    match call.lane() {
        "shelf" => Outcome::empty(),
        "crossref" => Outcome::done("10.1000/182"),
        // Never answers.
        _ => std::future::pending().await,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pace = Paceline::in_memory()
        .lane(Lane::new("shelf"))
        .lane(Lane::new("crossref").every("1s"))
        .lane(Lane::new("openalex").limit("10/s"))
        .lane(Lane::new("websearch").limit("100/d"))
        .worker("find", ask)
        .start()?;

    for round in ["first", "again"] {
        let job = Job::new("find", "handbook of the doi")
            .on(["shelf"])
            .on(["crossref", "openalex"])
            .on(["websearch"])
            .first_conclusive()
            .cache_key("handbook of the doi");
        let report = pace.submit(job).await?.report().await?;
        println!("{round}: {:?}", report.answer);
        for call in &report.calls {
            let from = if call.cached { ", from the cache" } else { "" };
            println!("  {call}{from}");
        }
    }
    Ok(())
}
