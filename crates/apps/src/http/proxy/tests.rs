//! The proxies of requests, and the secrets that never show.

use super::*;
use proptest::prelude::*;

fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
    Proxies::from_env(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

/// The proxy as text, or the error.
fn taken(variables: &[(&str, &str)], url: &str) -> String {
    let proxies = match proxies(variables) {
        Ok(proxies) => proxies,
        Err(error) => return error.to_string(),
    };
    match proxies.of(&Url::parse(url).expect("an address")) {
        Ok(Some(proxy)) => proxy.to_string(),
        Ok(None) => "straight".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(variables: &[(&str, &str)], url: &str, expected: &str) {
    assert_eq!(taken(variables, url), expected, "{variables:?} {url}");
}

#[test]
fn each_scheme_has_its_variable_and_lower_case_goes_first() {
    check(&[], "http://a/", "straight");
    check(&[("http_proxy", "http://p:3128")], "http://a/", "http://p:3128");
    check(&[("http_proxy", "http://p:3128/")], "https://a/", "straight");
    check(&[("HTTP_PROXY", "P:3128")], "http://a/", "http://p:3128");
    check(&[("http_proxy", "one:1"), ("HTTP_PROXY", "two:2")], "http://a/", "http://one:1");
    check(&[("https_proxy", "one:1"), ("HTTPS_PROXY", "two:2")], "https://a/", "http://one:1");
    check(&[("HTTPS_PROXY", "two:2")], "https://a/", "http://two:2");
    check(&[("all_proxy", "all:9")], "http://a/", "http://all:9");
    check(&[("ALL_PROXY", "all:9")], "https://a/", "http://all:9");
    check(&[("all_proxy", "all:9"), ("https_proxy", "s:1")], "https://a/", "http://s:1");
    check(&[("all_proxy", "all:9"), ("https_proxy", "")], "https://a/", "straight");
    check(&[("all_proxy", "all:9")], "ftp://a/", "straight");
    check(&[("http_proxy", "http://p")], "http://a/", "http://p:80");
    check(&[("http_proxy", "[::1]:8080")], "http://a/", "http://[::1]:8080");
    check(&[("http_proxy", " 10.0.0.1:8080 ")], "http://a/", "http://10.0.0.1:8080");
}

#[test]
fn a_header_of_a_client_never_chooses_the_proxy() {
    let cgi = ("REQUEST_METHOD", "GET");
    check(&[cgi, ("HTTP_PROXY", "evil:1")], "http://a/", "straight");
    check(&[cgi, ("http_proxy", "mine:1")], "http://a/", "http://mine:1");
    check(&[cgi, ("HTTPS_PROXY", "mine:1")], "https://a/", "http://mine:1");
}

#[track_caller]
fn check_exempt(no_proxy: &str, url: &str, straight: &str) {
    let expected = if straight == "straight" { straight } else { "http://p:1" };
    check(&[("all_proxy", "p:1"), ("no_proxy", no_proxy)], url, expected);
}

#[test]
fn hosts_suffixes_addresses_and_networks_go_straight() {
    for entry in ["example.org", ".example.org", "*.example.org", "EXAMPLE.org.", "x,example.org"] {
        check_exempt(entry, "http://example.org/", "straight");
        check_exempt(entry, "http://a.b.example.org:81/", "straight");
        check_exempt(entry, "http://example.org./", "straight");
        check_exempt(entry, "http://anexample.org/", "proxied");
        check_exempt(entry, "http://example.org.net/", "proxied");
    }
    check_exempt("*", "http://anything/", "straight");
    check_exempt("a, b  c", "http://c/", "straight");
    check_exempt("", "http://a/", "proxied");
    check_exempt("a:8080", "http://a:8080/", "straight");
    check_exempt("a:8080", "http://a/", "proxied");
    check_exempt("a:443", "https://a/", "straight");
    check_exempt("10.0.0.1", "http://10.0.0.1/", "straight");
    check_exempt("10.0.0.1", "http://10.0.0.10/", "proxied");
    check_exempt("example", "http://10.0.0.1/", "proxied");
    check_exempt("10.0.0.1:81", "http://10.0.0.1:81/", "straight");
    check_exempt("10.0.0.1:81", "http://10.0.0.1/", "proxied");
    check_exempt("10.0.0.0/8", "http://10.9.8.7/", "straight");
    check_exempt("10.0.0.0/8", "http://10.255.255.255/", "straight");
    check_exempt("10.0.0.0/8", "http://11.0.0.0/", "proxied");
    check_exempt("0.0.0.0/0", "http://11.0.0.0/", "straight");
    check_exempt("0.0.0.0/0", "http://[2001:db8::1]/", "proxied");
    check_exempt("192.168.1.129/25", "http://192.168.1.128/", "straight");
    check_exempt("192.168.1.129/25", "http://192.168.1.127/", "proxied");
    check_exempt("10.0.0.0/8", "http://[::ffff:10.1.2.3]/", "straight");
    check_exempt("::1", "http://[::1]/", "straight");
    check_exempt("[::1]", "http://[0::1]/", "straight");
    check_exempt("[::1]:81", "http://[::1]/", "proxied");
    check_exempt("[::1]:81", "http://[::1]:81/", "straight");
    check_exempt("fe80::/10", "http://[febf::1]/", "straight");
    check_exempt("fe80::/10", "http://[fec0::1]/", "proxied");
    check_exempt("::/0", "http://[fec0::1]/", "straight");
    check_exempt("bücher.example", "http://xn--bcher-kva.example/", "straight");
    check(&[("all_proxy", "p:1"), ("NO_PROXY", "a")], "http://a/", "straight");
}

#[test]
fn a_proxy_of_another_kind_is_an_error_only_where_it_is_used() {
    let socks = ("all_proxy", "socks5h://ann:s3cret@p:1080");
    let told = "`all_proxy` names a `socks5h` proxy, but only `http` proxies are supported: \
                unset it, or list the host in `no_proxy`";
    check(&[socks], "http://a/", told);
    check(&[socks, ("no_proxy", "a")], "http://a/", "straight");
    check(&[socks, ("http_proxy", "p:1")], "http://a/", "http://p:1");
    let https = ("https_proxy", "https://p");
    assert!(taken(&[https], "https://a/").starts_with("`https_proxy` names a `https` proxy"));
}

#[test]
fn mistakes_name_the_variable_and_never_a_password() {
    let address = "`http_proxy` is not a proxy address: write it like `http://host:3128`";
    for value in [
        "http://",
        "http://ann:s3cret@",
        "http://ann:s3cret@p:99999",
        "ann:s3cret/x@p:1",
        "ann:s3cret#x@p:1",
        "s3cret://p:1",
        "http://ann:s3cret://@p",
        "a b",
    ] {
        check(&[("http_proxy", value)], "http://a/", address);
    }
    let colon = "`http_proxy` has a user name with a colon, which HTTP cannot send";
    check(&[("http_proxy", "a%3Ab:s3cret@p:1")], "http://a/", colon);
    for entry in
        ["10.*", "a*b", "10.0.0.0/33", "10.0.0.0/", "a/8", "a:b", "[::1", "a:99999", ":1", "0.0.1"]
    {
        let told = format!(
            "`no_proxy` lists `{entry}`: write hosts, addresses, networks like `10.0.0.0/8` or `*`"
        );
        check(&[("all_proxy", "p:1"), ("no_proxy", entry)], "http://a/", &told);
        check(&[("no_proxy", entry)], "http://a/", "straight");
    }
    let long = "`no_proxy` is too long: at most 64 KiB and 1000 hosts";
    for value in ["a,".repeat(MOST_EXEMPT + 1), "a".repeat(LONGEST_VARIABLE + 1)] {
        check(&[("all_proxy", "p:1"), ("no_proxy", &value)], "http://a/", long);
    }
}

#[test]
fn a_login_is_sent_to_the_proxy_and_never_shown() {
    let proxies = proxies(&[("http_proxy", "http://ann:s3%63ret@p:1")]).expect("a proxy");
    let url = Url::parse("http://a/").expect("an address");
    let proxy = proxies.of(&url).expect("supported").expect("a proxy");
    let authorization = proxy.authorization().expect("a login");
    assert_eq!(authorization.as_bytes(), b"Basic YW5uOnMzY3JldA==");
    let shown = format!("{proxies:?} {proxy:?} {proxy} {authorization:?}");
    assert!(!shown.contains("ann") && !shown.contains("s3"), "{shown}");
    assert_eq!((proxy.host(), proxy.port()), ("p", 1));
}

proptest! {
    #[test]
    fn any_environment_gives_proxies_or_a_clear_error(
        values in prop::collection::vec("[ -~é]{0,20}|[a0-9:./\\[\\]*,@%-]{0,20}", 3),
    ) {
        let variables = [("http_proxy", &*values[0]), ("all_proxy", &values[1]), ("no_proxy", &values[2])];
        prop_assert!(taken(&variables, "http://10.0.0.1/").len() < 1_000);
        prop_assert!(taken(&variables, "https://[::1]:8/").len() < 1_000);
    }
}
