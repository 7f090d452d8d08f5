//! The logins of hosts, and the secrets that never show.

use super::*;
use proptest::prelude::*;

const FILE: &[u8] = b"# comment with machine words
machine one.example login ann password s3cret # and a comment
machine Two.example
\tlogin \"b o b\"
\taccount x
\tpassword \"q\\\"\\\\z\"
machine three.example login #cy password #1
macdef init
machine never.example login no password no

machine four.example password token
machine five.example
machine one.example login second password second
default login anonymous password me@example.org
";

#[track_caller]
fn check(host: &str, expected: Option<(&str, &str)>) {
    let netrc = Netrc::parse(FILE, "netrc").expect("logins");
    let login = netrc.login(host);
    let expected = expected
        .map(|(name, password)| Login { name: name.to_owned(), password: password.to_owned() });
    assert!(login == expected.as_ref(), "{host}: {login:?}");
}

#[test]
fn each_machine_has_its_login_and_the_rest_the_default() {
    check("one.example", Some(("ann", "s3cret")));
    check("ONE.example", Some(("ann", "s3cret")));
    check("two.example", Some(("b o b", "q\"\\z")));
    check("three.example", Some(("#cy", "#1")));
    check("four.example", Some(("", "token")));
    check("five.example", None);
    check("never.example", Some(("anonymous", "me@example.org")));
    check("a.one.example", Some(("anonymous", "me@example.org")));
    let empty = Netrc::parse(b"\xef\xbb\xbf \r\n", "netrc").expect("nothing is fine");
    assert!(empty.login("one.example").is_none());
}

#[test]
fn a_login_is_sent_as_basic_and_never_shown() {
    let netrc = Netrc::parse(FILE, "netrc").expect("logins");
    let login = netrc.login("one.example").expect("a login");
    assert_eq!(login.basic().as_bytes(), b"Basic YW5uOnMzY3JldA==");
    assert_eq!(format!("{:?}", login.basic()), "Sensitive");
    assert_eq!(
        format!("{login:?} {netrc:?}"),
        "Login { name: \"ann\", .. } Netrc { machines: 5, .. }"
    );
    assert_eq!(login.name(), "ann");
}

#[track_caller]
fn check_wrong(text: &[u8], line: usize, wrong: WrongNetrc) {
    let error = Netrc::parse(text, "my/netrc").expect_err("a mistake");
    let shown = String::from_utf8_lossy(text);
    assert_eq!((error.line, error.wrong), (line, wrong), "{shown}");
    let told = format!("{error} {error:?}");
    assert!(error.to_string().starts_with(&format!("`my/netrc`, line {line}: ")), "{told}");
    assert!(!told.contains("s3cret"), "{told}");
}

#[test]
fn mistakes_are_told_by_line_and_never_shown() {
    check_wrong(b"machine a login b password c s3cret", 1, WrongNetrc::Keyword);
    check_wrong(b"machine a\n\nlogin b\npassword pass s3cret", 4, WrongNetrc::Keyword);
    check_wrong(b"machine a login b password", 1, WrongNetrc::Value);
    check_wrong(b"machine", 1, WrongNetrc::Value);
    check_wrong(b"#\nlogin s3cret", 2, WrongNetrc::NoMachine);
    check_wrong(b"password s3cret", 1, WrongNetrc::NoMachine);
    check_wrong(b"account s3cret", 1, WrongNetrc::NoMachine);
    check_wrong(b"machine a\npassword \"s3cret\n\"", 2, WrongNetrc::Quote);
    check_wrong(b"machine a password \"s3cret\\\"", 1, WrongNetrc::Quote);
    check_wrong(b"machine a password \"s3cret\\", 1, WrongNetrc::Quote);
    check_wrong(b"machine a password s3cret\xff", 1, WrongNetrc::Text);
    check_wrong(b"machine a password \"s3cret\\n\"", 1, WrongNetrc::Text);
    check_wrong(b"machine a login s3cret:x", 1, WrongNetrc::Colon);
    let long = "s3cret".repeat(1_000);
    check_wrong(format!("machine a login {long}").as_bytes(), 1, WrongNetrc::Long);
    check_wrong(format!("machine a login \"{long}\"").as_bytes(), 1, WrongNetrc::Long);
    check_wrong(&vec![b'\n'; LARGEST_FILE + 1], 1, WrongNetrc::Large);
    let many: Vec<_> = (0..=MOST_MACHINES).map(|number| format!("machine m{number}")).collect();
    let many = many.join("\n");
    let error = Netrc::parse(many.as_bytes(), "netrc").expect_err("too many");
    assert_eq!(error.wrong, WrongNetrc::Many);
}

const WORDS: &[&[u8]] = &[
    b"machine",
    b"default",
    b"login",
    b"password",
    b"macdef",
    b"account",
    b"\n",
    b"\n\n",
    b"#",
    b"\"",
    b"\"a\\",
    b"x",
    b"\xff",
    b"\r",
];

proptest! {
    #[test]
    fn any_bytes_are_logins_or_a_clear_error(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..30),
        bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        for text in [words.join(&b' '), words.concat(), bytes] {
            match Netrc::parse(&text, "f") {
                Ok(netrc) => {
                    let value = netrc.login("x").map(Login::basic);
                    prop_assert!(value.is_none_or(|value| value.is_sensitive()));
                }
                Err(error) => prop_assert!(error.line <= text.len() + 1),
            }
        }
    }

    #[test]
    fn a_quoted_password_reads_back(password in "[ -~é]{0,40}") {
        let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
        let text = format!("machine a login b password \"{quoted}\"");
        let netrc = Netrc::parse(text.as_bytes(), "f").expect("a login");
        prop_assert_eq!(&netrc.login("a").expect("a login").password, &password);
    }
}
