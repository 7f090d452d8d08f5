//! Many jobs followed as one stream of outcomes, and errors of every kind on the way.

use anyhow::Context;
use futures_util::stream::{StreamExt, select_all};
use paceline::{Call, Failed, Failure, Job, Lane, Outcome, Paceline, Work};

fn year(text: &str) -> anyhow::Result<u16> {
    text.parse().with_context(|| format!("`{text}` is no year"))
}

async fn check(call: Call) -> Work {
    let text: String = call.payload()?;
    let year = year(&text)?;
    if year < 1500 {
        let failure = Failure::permanent("too_old").because("no catalogue goes back so far");
        return Err(Failed::of(failure));
    }
    Outcome::done(year)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let pace = Paceline::in_memory()
        .lane(Lane::new("catalogue").every("40ms"))
        .worker("check", check)
        .start()?;

    let years = ["1704", "soon", "150"];
    let jobs = years.map(|year| Job::new("check", year).on(["catalogue"]).attempts(1));
    let mut following = Vec::new();
    for job in pace.submit_all(jobs).await {
        following.push(job?);
    }
    let mut outcomes = select_all(following);
    while let Some(call) = outcomes.next().await {
        match call.value::<u16>() {
            Ok(year) => println!("found {year}"),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}
