//! One request at a time to a service on this machine: as much HTTP/1.1 as `bench` and `demo` need
//! to talk to the mock, with connections kept for the next call.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use paceline::{Failed, Failure, Late, Outcome, Time, Work};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes of an answer at most; the mock's have under 300.
const LARGEST_ANSWER: usize = 64 << 10;
/// Connections that are kept while nobody uses them.
const MOST_IDLE: usize = 64;

/// A service and the open connections to it.
#[derive(Debug)]
pub(crate) struct Service {
    addr: SocketAddr,
    idle: Mutex<Vec<TcpStream>>,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: String,
}

impl Service {
    pub(crate) fn new(addr: SocketAddr) -> Service {
        Service { addr, idle: Mutex::default() }
    }

    /// One attempt by a worker that says `sends_itself`: connects first, and asks `sending`, which
    /// is the call's own, right before the request is written (L4).
    pub(crate) async fn ask(
        &self,
        path: &str,
        sending: impl FnOnce() -> Result<Time, Late>,
    ) -> Result<Answer, Failed> {
        let kept = self.idle().pop();
        let mut stream = match kept {
            Some(stream) => stream,
            None => connect(self.addr).await?,
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.addr);
        if let Err(late) = sending() {
            self.keep(stream);
            return Err(late.into());
        }
        stream.write_all(request.as_bytes()).await?;
        let answer = read(&mut stream).await?;
        self.keep(stream);
        Ok(answer)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, stream: TcpStream) {
        let mut idle = self.idle();
        if idle.len() < MOST_IDLE {
            idle.push(stream);
        }
    }
}

impl Answer {
    /// What an answer other than 200 comes to.
    pub(crate) fn refused(&self) -> Work {
        match self.status {
            429 => Outcome::throttled(self.retry_after),
            status => Outcome::failed(Failure::transient(&format!("http_{status}"))),
        }
    }
}

async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The next answer over a connection.
pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::with_capacity(512);
    loop {
        if let Some(answer) = parse(&bytes)? {
            return Ok(answer);
        }
        if bytes.len() > LARGEST_ANSWER {
            return Err(nonsense("an answer without end"));
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The answer, once all of it is there.
fn parse(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head =
        std::str::from_utf8(&bytes[..end]).map_err(|_| nonsense("a head that is no text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| nonsense("no status"))?;
    let (mut length, mut retry_after) = (0, None);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().map_err(|_| nonsense("a length that is no number"))?;
        } else if name.eq_ignore_ascii_case("retry-after") {
            retry_after = value.parse().ok().map(Duration::from_secs);
        }
    }
    let Some(body) = bytes[end + 4..].get(..length) else { return Ok(None) };
    let body = String::from_utf8_lossy(body).into_owned();
    Ok(Some(Answer { status, retry_after, body }))
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_all_of_it_is_there() {
        let text =
            b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\ncontent-length: 3\r\n\r\nno\n";
        for length in 0..text.len() {
            assert_eq!(parse(&text[..length]).expect("a part"), None);
        }
        let answer = parse(text).expect("sense").expect("the whole");
        let retry_after = Some(Duration::from_secs(3));
        assert_eq!(answer, Answer { status: 429, retry_after, body: "no\n".to_string() });
        assert!(parse(b"hello\r\n\r\n").is_err());
    }
}
