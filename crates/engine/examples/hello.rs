//! Three jobs on one lane, at the pace that its upstream asks for.

use paceline::{Call, Job, Lane, Outcome, Paceline};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pace = Paceline::in_memory()
        .lane(Lane::new("crossref").every("50ms").limit("1000/h"))
        .worker("lookup", |call: Call| async move {
            // Here goes the one request; an error with `?` is retried.
            let title: String = call.payload()?;
            Outcome::done(title.to_uppercase())
        })
        .start()?;

    let titles = ["opticks", "micrographia", "almagest"];
    let jobs = titles.map(|title| Job::new("lookup", title).on(["crossref"]));
    for job in pace.submit_all(jobs).await {
        let report = job?.report().await?;
        println!("job {}: {}", report.job, report.calls[0]);
    }
    Ok(())
}
