//! Kills itself half-way, goes on with the same store, and asks the upstream what it saw.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use paceline::{Call, Job, Lane, Outcome, Paceline, Span, Work};
use paceline_mock::{Behaviour, Mock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let [_, store, upstream] = &std::env::args().collect::<Vec<_>>()[..] {
        return work(store, upstream.clone()).await;
    }
    let (every, tolerance) = (Some(Span::millis(40)), Span::millis(10));
    let upstream = Mock::start(Behaviour { every, tolerance, ..Behaviour::default() }).await?;
    let directory = tempfile::tempdir()?;
    let mut program = Command::new(std::env::current_exe()?);
    program.arg(directory.path().join("store.db")).arg(upstream.addr().to_string());
    program.stdout(Stdio::piped());

    let mut child = program.spawn()?;
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let reported = lines.take(3).collect::<Result<BTreeSet<_>, _>>()?;
    child.kill()?;
    child.wait()?;
    println!("killed after {} reports", reported.len());

    let before = upstream.log().len();
    let all = String::from_utf8(program.output()?.stdout)?;
    println!("resumed: {} jobs reported in all", all.lines().count());
    let log = upstream.log();
    let again = log[before..].iter().filter(|call| reported.contains(&call.path)).count();
    println!("asked again after their report: {again}");
    println!("calls past the limit: {}", upstream.summary().violations());
    Ok(())
}

async fn work(store: &str, upstream: String) -> Result<(), Box<dyn std::error::Error>> {
    let worker = move |call: Call| ask(call, upstream.clone());
    let lane = Lane::new("mock").every("40ms");
    let pace = Paceline::open(store).lane(lane).worker("ask", worker).start()?;
    if pace.list(None, 1, None).await?.0.is_empty() {
        pace.submit_all((1..=8).map(|n| Job::new("ask", &format!("/{n}")).on(["mock"]))).await;
    }
    for job in pace.list(None, 100, None).await?.0 {
        let job = pace.follow(job.stored.record.id).await?.expect("it is in the store");
        println!("/{}", job.report().await?.job);
    }
    Ok(())
}

async fn ask(call: Call, upstream: String) -> Work {
    let mut socket = tokio::net::TcpStream::connect(&upstream).await?;
    let head = format!("GET {} HTTP/1.0\r\nhost: x\r\n\r\n", call.payload::<String>()?);
    socket.write_all(head.as_bytes()).await?;
    Outcome::done(socket.read_to_end(&mut Vec::new()).await?)
}
