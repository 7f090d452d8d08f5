//! The file server over TLS and HTTP/2, tested by independent clients.

use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use paceline_mock::files::{Ending, Fault, File, Files, Version, content};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

struct Certificate {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

fn certificate() -> Certificate {
    let names = vec!["localhost".to_string()];
    let made = rcgen::generate_simple_self_signed(names).expect("a plain name");
    Certificate { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() }
}

async fn connect(server: &Files, trusted: &Certificate, offered: &str) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.certificate.clone().into()).expect("a certificate");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![offered.as_bytes().to_vec()];
    let stream = TcpStream::connect(server.addr()).await.expect("listening");
    let name = "localhost".try_into().expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("trusted")
}

type Client = SendRequest<Empty<Bytes>>;

async fn ask(client: &mut Client, server: &Files, path: &str) -> hyper::Result<(u16, Vec<u8>)> {
    let request = hyper::Request::get(server.url(path)).header("range", "bytes=10-");
    let request = request.body(Empty::new()).expect("well-formed");
    let response = client.send_request(request).await?;
    let status = response.status().as_u16();
    Ok((status, response.into_body().collect().await?.to_bytes().to_vec()))
}

/// Checks the responses of a server of `/f/*` over HTTP/2, one of them cut.
async fn check(client: &mut Client, server: &Files) {
    server.generate("/f/*", 100_000);
    server.on("/f/cut", Fault::Cut(5, Ending::Close));
    server.on("/f/none", Fault::Reset);
    let (status, body) = ask(client, server, "/f/1").await.expect("a response");
    assert_eq!((status, body.as_slice()), (206, &content("/f/1", 100_000)[10..]));
    assert_eq!(ask(client, server, "/x").await.expect("a response").0, 404);
    assert!(ask(client, server, "/f/cut").await.is_err());
    assert!(ask(client, server, "/f/none").await.is_err());
    server.wait_until(|log| log.len() == 4 && log.iter().all(|entry| entry.ended_at.is_some()));
    let log = server.log();
    assert!(log.iter().all(|entry| entry.version == Version::Http2 && entry.connection == 1));
    assert_eq!(log.iter().map(|e| e.sent_bytes).collect::<Vec<_>>(), [99_990, 13, 5, 0]);
    let host = server.addr().to_string();
    assert_eq!(log[0].header("host"), Some(host.as_str()));
}

#[tokio::test]
async fn tls_carries_plain_http() {
    let own = certificate();
    let server = Files::start_tls(&own.certificate, &own.key);
    server.put("/a", File::of("0123456789"));
    server.on("/a", Fault::Cut(4, Ending::Reset).after(1));
    assert!(server.url("/a").starts_with("https://127.0.0.1:"));
    let mut stream = connect(&server, &own, "http/1.1").await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
    let ask = b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(ask).await.expect("open");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("an end in order");
    assert!(response.ends_with("\r\n\r\n0123456789"), "{response}");

    let mut stream = connect(&server, &own, "http/1.1").await;
    stream.write_all(ask).await.expect("open");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect_err("a reset");
    assert!(response.ends_with(b"\r\n\r\n0123"));
}

#[tokio::test]
async fn files_are_served_over_http2_within_tls() {
    let own = certificate();
    let server = Files::start_tls_http2(&own.certificate, &own.key);
    let stream = connect(&server, &own, "h2").await;
    let mut driver = JoinSet::new();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = handshake.await.expect("HTTP/2");
    driver.spawn(connection);
    check(&mut client, &server).await;
}

#[tokio::test]
async fn files_are_served_over_http2_with_prior_knowledge() {
    let server = Files::start_http2();
    let stream = TcpStream::connect(server.addr()).await.expect("listening");
    let mut driver = JoinSet::new();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = handshake.await.expect("HTTP/2");
    driver.spawn(connection);
    check(&mut client, &server).await;
}
