//! A worker with state, and one that blocks: a struct that holds a client, and a closure on tokio's
//! pool for blocking work.

use std::sync::atomic::{AtomicU32, Ordering};

use paceline::{Call, Job, Lane, Outcome, Paceline, Work, Worker, blocking};

/// Stands for an HTTP client with its connections.
#[derive(Default)]
struct Client {
    requests: AtomicU32,
}

impl Worker for Client {
    async fn run(&self, call: Call) -> Work {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let path: String = call.payload()?;
        Outcome::done(format!("request {number}: {path}"))
    }
}

/// Digests a text; blocks its thread while it does.
fn digest(call: &Call) -> Work {
    let text: String = call.payload()?;
    let digest = text.bytes().fold(5381_u32, |sum, byte| sum.wrapping_mul(33) ^ u32::from(byte));
    Outcome::done(digest)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pace = Paceline::in_memory()
        .lane(Lane::new("host").every("20ms"))
        .lane(Lane::new("cpu").in_flight(2))
        .worker("get", Client::default())
        .worker("digest", blocking(digest))
        .workers(2, 4)
        .start()?;

    for path in ["/opticks", "/micrographia"] {
        let report = pace.submit(Job::new("get", path).on(["host"])).await?.report().await?;
        println!("{}", report.value::<String>("host")?);
    }
    let report = pace.submit(Job::new("digest", "almagest").on(["cpu"])).await?.report().await?;
    println!("digest: {:08x}", report.value::<u32>("cpu")?);
    pace.stop("1s").await?;
    Ok(())
}
