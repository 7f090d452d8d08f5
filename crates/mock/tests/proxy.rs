//! The proxy over plain sockets, between a client and the file server.

use std::io::{Read, Write};
use std::net::TcpStream;

use paceline_mock::files::{File, Files, PATIENCE};
use paceline_mock::proxy::Proxy;

fn with_file() -> (Proxy, Files) {
    let (proxy, server) = (Proxy::start(), Files::start_on("127.0.0.2"));
    server.put("/a", File::of("0123456789"));
    (proxy, server)
}

/// Sends `text` to the proxy and gives back all that comes.
fn asked(proxy: &Proxy, text: &str) -> String {
    let mut stream = TcpStream::connect(proxy.addr()).expect("listening");
    stream.set_read_timeout(Some(PATIENCE)).expect("a span above zero");
    stream.write_all(text.as_bytes()).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an end in order");
    answer
}

#[track_caller]
fn check(proxy: &Proxy, head: &str, expected: &str) {
    let answer = asked(proxy, &format!("{head}\r\n\r\n"));
    assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{answer}");
}

#[test]
fn absolute_targets_are_passed_on_without_what_was_for_the_proxy() {
    let (proxy, server) = with_file();
    let url = server.url("/a?b");
    let head = format!("GET {url} HTTP/1.1\r\nhost: x\r\nproxy-authorization: secret\r\n");
    let answer = asked(&proxy, &format!("{head}range: bytes=2-4\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 206") && answer.ends_with("\r\n\r\n234"), "{answer}");
    let seen = &server.log()[0];
    assert_eq!((seen.path.as_str(), seen.header("proxy-authorization")), ("/a?b", None));
    let passage = &proxy.log()[0];
    assert_eq!((passage.method.as_str(), passage.target.as_str()), ("GET", url.as_str()));
    assert_eq!(passage.headers.get("proxy-authorization").map(String::as_str), Some("secret"));
    assert_eq!(passage.status, None);
}

#[test]
fn tunnels_lead_where_the_routes_say() {
    let (proxy, server) = with_file();
    proxy.route("files.example:443", server.addr());
    let through = "CONNECT files.example:443 HTTP/1.1\r\nhost: files.example\r\n\r\n\
                   GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = asked(&proxy, through);
    assert!(answer.starts_with("HTTP/1.1 200 Connection Established\r\n\r\nHTTP/1.1 200 OK"));
    assert!(answer.ends_with("0123456789"));
    assert_eq!(proxy.log()[0].status, Some(200));
}

#[test]
fn what_may_not_pass_is_refused() {
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
    let statuses: Vec<_> = proxy.log().iter().map(|passage| passage.status).collect();
    let told = [Some(400), Some(502), Some(502), Some(407), None, Some(403)];
    assert_eq!(statuses, told);
}
