//! The cookies that a jar sends, and the secrets that it never shows.

use super::*;
use proptest::prelude::*;

const FILE: &str = "# Netscape HTTP Cookie File\r
\r
example.org\tFALSE\t/\tFALSE\t0\thost\t1\r
.example.org\tTRUE\t/\tFALSE\t0\twide\t2\r
.example.org\tTRUE\t/docs\tFALSE\t0\tdocs\t3\r
#HttpOnly_.example.org\tTRUE\t/docs/deep/\tTRUE\t0\tdeep\t4\r
example.org\tFALSE\t/\tFALSE\t1000\told\t5\r
example.org\tFALSE\t/\tFALSE\t3000.25\tyoung\t6\r
127.0.0.1\tTRUE\t/\tFALSE\t0\tlocal\t7\r
.com\tTRUE\t/\tFALSE\t0\teverybody\t8\r
bücher.example\tFALSE\t/\tFALSE\t\tidna\t9\r
::1\tFALSE\t/\tFALSE\t0\tsix\t\r
";

#[track_caller]
fn check(url: &str, expected: Option<&str>) {
    let jar = Jar::parse(FILE.as_bytes(), "cookies.txt").expect("a jar");
    let url = Url::parse(url).expect("an address");
    let header = jar.header(&url, UNIX_EPOCH + Duration::from_secs(2_000));
    assert!(header.as_ref().is_none_or(HeaderValue::is_sensitive), "{url}");
    let header = header.map(|header| header.to_str().expect("text").to_owned());
    assert_eq!(header.as_deref(), expected, "{url}");
}

#[test]
fn a_cookie_goes_where_it_belongs_and_nowhere_else() {
    check("http://example.org/", Some("host=1; wide=2; young=6"));
    check("http://EXAMPLE.org/?x", Some("host=1; wide=2; young=6"));
    check("http://a.b.example.org/", Some("wide=2"));
    check("http://anexample.org/", None);
    check("http://org/", None);
    check("http://example.org.evil.net/", None);
    check("http://a.example.org/docs", Some("docs=3; wide=2"));
    check("http://a.example.org/docs/", Some("docs=3; wide=2"));
    check("http://a.example.org/docsx", Some("wide=2"));
    check("http://a.example.org/docs/deep/x", Some("docs=3; wide=2"));
    check("https://a.example.org/docs/deep/x", Some("deep=4; docs=3; wide=2"));
    check("https://a.example.org/docs/deep/", Some("deep=4; docs=3; wide=2"));
    check("https://a.example.org/docs/deep", Some("docs=3; wide=2"));
    check("http://127.0.0.1:8080/", Some("local=7"));
    check("http://1.127.0.0.1.example/", None);
    check("http://shop.com/", None);
    check("http://xn--bcher-kva.example/", Some("idna=9"));
    check("http://[::1]/", Some("six="));
    check("data:text/plain,x", None);
}

#[track_caller]
fn check_wrong(text: &str, line: usize, wrong: WrongCookie) {
    let error = Jar::parse(text.as_bytes(), "my.txt").expect_err("a mistake");
    assert_eq!((error.line, error.wrong), (line, wrong), "{text}");
    let shown = format!("{error} {error:?}");
    assert!(error.to_string().starts_with(&format!("`my.txt`, line {line}: ")), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn mistakes_are_told_by_line_and_never_shown() {
    check_wrong("\n# x\nexample.org FALSE / FALSE 0 a s3cret", 3, WrongCookie::Fields);
    check_wrong("a\tTRUE\t/\tTRUE\t0\ta\ts3cret\tmore", 1, WrongCookie::Fields);
    check_wrong("a b\tTRUE\t/\tTRUE\t0\ta\ts3cret", 1, WrongCookie::Domain);
    check_wrong("\tTRUE\t/\tTRUE\t0\ta\ts3cret", 1, WrongCookie::Domain);
    check_wrong("a\tyes\t/\tTRUE\t0\ta\ts3cret", 1, WrongCookie::Flag);
    check_wrong("a\tTRUE\t/\t\t0\ta\ts3cret", 1, WrongCookie::Flag);
    for expiry in ["never", "-1", ".5", "1.x", "1e9", "1.2.3"] {
        let line = format!("a\tTRUE\t/\tTRUE\t{expiry}\ta\ts3cret");
        check_wrong(&line, 1, WrongCookie::Expiry);
    }
    for value in ["s3cret;b=2", "s3cret\u{7f}", "s3cret\rx: y", "s3cret\0"] {
        check_wrong(&format!("a\tTRUE\t/\tTRUE\t0\ta\t{value}"), 1, WrongCookie::Sign);
    }
    check_wrong("a\tTRUE\t/\tTRUE\t0\t\ts3cret", 1, WrongCookie::Sign);
    check_wrong("a\tTRUE\t/\tTRUE\t0\tb=\ts3cret", 1, WrongCookie::Sign);
    let long = format!("a\tTRUE\t/\tTRUE\t0\tb\ts3cret{}", "x".repeat(LONGEST_HEADER));
    check_wrong(&long, 1, WrongCookie::Long);
}

#[test]
fn a_jar_and_its_headers_are_bounded() {
    use std::fmt::Write;
    let mut many = String::new();
    for number in 0..=MOST_COOKIES {
        writeln!(many, "h{number}\tTRUE\t/\tTRUE\t0\ta\tb").expect("text grows");
    }
    check_wrong(&many, MOST_COOKIES + 1, WrongCookie::Many);
    check_wrong(&"#\n".repeat(LARGEST_FILE), 1, WrongCookie::Large);
    let mut full = String::new();
    for number in 0..100 {
        writeln!(full, "a\tTRUE\t/\tFALSE\t0\tc{number}\t{}", "x".repeat(1_000)).expect("grows");
    }
    let jar = Jar::parse(full.as_bytes(), "f").expect("a jar");
    let header = jar.header(&Url::parse("http://a/").expect("an address"), UNIX_EPOCH);
    let header = header.expect("some fit");
    assert!(header.len() <= LONGEST_HEADER && header.len() > LONGEST_HEADER - 1_100);
    assert_eq!((jar.len(), jar.is_empty()), (100, false));
}

#[test]
fn a_later_line_replaces_an_earlier_one_and_a_jar_shows_no_values() {
    let text = b"\xef\xbb\xbfa\tTRUE\t/\tFALSE\t0\tb\ts3cret\na\tTRUE\t/\tFALSE\t0\tb\t\xe9";
    let jar = Jar::parse(text, "f").expect("a jar");
    let url = Url::parse("http://a/").expect("an address");
    let header = jar.header(&url, UNIX_EPOCH).expect("a cookie");
    assert_eq!(header.as_bytes(), b"b=\xe9");
    assert_eq!(format!("{header:?} {jar:?}"), "Sensitive Jar { cookies: 1, .. }");
}

proptest! {
    #[test]
    fn any_bytes_are_a_jar_or_a_clear_error(
        lines in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..60),
                "(a|#HttpOnly_\\.a|é)\t(TRUE|false)\t/?.?\tFALSE\t[0-9.]{0,22}\t.{0,3}\t.{0,3}"
                    .prop_map(String::into_bytes),
            ],
            0..10,
        ),
    ) {
        match Jar::parse(&lines.join(&b'\n'), "f") {
            Ok(jar) => {
                let url = Url::parse("http://a/b").expect("an address");
                let header = jar.header(&url, UNIX_EPOCH + Duration::from_secs(9));
                prop_assert!(header.is_none_or(|header| header.len() <= LONGEST_HEADER));
            }
            Err(error) => prop_assert!(error.line <= lines.len() * 60),
        }
    }
}
