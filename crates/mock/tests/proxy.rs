//! The proxy over real sockets, between a client and the file server.

use std::io::{Read, Write};
use std::net::TcpStream;

use paceline_mock::files::{File, Files, WAIT_TIMEOUT};
use paceline_mock::proxy::Proxy;

fn with_file() -> (Proxy, Files) {
    let (proxy, server) = (Proxy::start(), Files::start_on("127.0.0.2"));
    server.put("/a", File::of("0123456789"));
    (proxy, server)
}

/// Sends `text` to the proxy and returns everything that it sends back.
fn response_to(proxy: &Proxy, text: &str) -> String {
    let mut stream = TcpStream::connect(proxy.addr()).expect("listening");
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).expect("a span above zero");
    stream.write_all(text.as_bytes()).expect("open");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("an end in order");
    response
}

#[track_caller]
fn check(proxy: &Proxy, head: &str, expected: &str) {
    let response = response_to(proxy, &format!("{head}\r\n\r\n"));
    assert!(response.starts_with(&format!("HTTP/1.1 {expected}")), "{response}");
}

#[test]
fn absolute_targets_are_forwarded_without_the_headers_for_the_proxy() {
    let (proxy, server) = with_file();
    let url = server.url("/a?b");
    let head = format!("GET {url} HTTP/1.1\r\nhost: x\r\nproxy-authorization: secret\r\n");
    let response = response_to(&proxy, &format!("{head}range: bytes=2-4\r\n\r\n"));
    assert!(
        response.starts_with("HTTP/1.1 206") && response.ends_with("\r\n\r\n234"),
        "{response}"
    );
    let seen = &server.log()[0];
    assert_eq!((seen.path.as_str(), seen.header("proxy-authorization")), ("/a?b", None));
    let request = &proxy.log()[0];
    assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", url.as_str()));
    assert_eq!(request.headers.get("proxy-authorization").map(String::as_str), Some("secret"));
    assert_eq!(request.status, None);
}

#[test]
fn tunnels_follow_the_routes() {
    let (proxy, server) = with_file();
    proxy.route("files.example:443", server.addr());
    let through = "CONNECT files.example:443 HTTP/1.1\r\nhost: files.example\r\n\r\n\
                   GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let response = response_to(&proxy, through);
    assert!(response.starts_with("HTTP/1.1 200 Connection Established\r\n\r\nHTTP/1.1 200 OK"));
    assert!(response.ends_with("0123456789"));
    assert_eq!(proxy.log()[0].status, Some(200));
}

#[test]
fn forbidden_requests_are_refused() {
    let (proxy, server) = with_file();
    let head = format!("GET {} HTTP/1.1\r\nhost: x", server.url("/a"));
    check(&proxy, "nonsense", "400");
    check(&proxy, "GET /a HTTP/1.1\r\nhost: x", "400");
    check(&proxy, "GET http://files.example/ HTTP/1.1\r\nhost: x", "502");
    check(&proxy, "CONNECT 192.0.2.1:80 HTTP/1.1\r\nhost: x", "502");
    proxy.require("Basic dTpw");
    check(&proxy, &head, "407");
    check(&proxy, &format!("{head}\r\nproxy-authorization: Basic dTpw"), "200");
    proxy.refuse(403);
    check(&proxy, &format!("{head}\r\nproxy-authorization: Basic dTpw"), "403");
    let statuses: Vec<_> = proxy.log().iter().map(|request| request.status).collect();
    let expected = [Some(400), Some(502), Some(502), Some(407), None, Some(403)];
    assert_eq!(statuses, expected);
}
