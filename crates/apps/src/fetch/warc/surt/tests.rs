//! Keys as the Python library `surt` 0.3.1 gives them.

use super::*;

/// An address and its key per line. The library was given the address as it is sent, without
/// fragment and password.
const KEYS: &str = include_str!("keys.txt");

#[track_caller]
fn check(address: &str, key: &str) {
    let url = Url::parse(address).expect("an address");
    assert_eq!(surt(&url), key, "`{address}`");
}

#[test]
fn keys_equal_those_of_the_python_library() {
    for line in KEYS.lines() {
        let (address, key) = line.split_once('\t').expect("two columns");
        check(address, key);
    }
    assert!(KEYS.lines().count() > 150);
}

#[test]
fn a_key_of_a_megabyte_takes_no_time() {
    // Each of these takes a square of its length if it is read again and again.
    for part in
        ["%25", "25", "cfid=", "&sid=", "/(0123456789abcdefghijklmn)", "/..", "a.aspx/", "?"]
    {
        let text = part.repeat((1 << 20) / part.len());
        for address in [format!("http://a/%{text}"), format!("http://a/?%{text}")] {
            assert!(surt(&Url::parse(&address).expect("an address")).len() < 4 << 20);
        }
    }
}

proptest::proptest! {
    #[test]
    fn a_key_has_no_blank_and_no_line_end(rest in "[/?]{0,3}[ -~éß%&=.0-9]{0,40}") {
        if let Ok(url) = Url::parse(&format!("http://a.example{rest}")) {
            proptest::prop_assert!(surt(&url).bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}
