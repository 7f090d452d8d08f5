//! The examples of RFC 9309, extensions that sites use, and hostile files.

use super::*;
use proptest::prelude::*;

fn url(path: &str) -> Url {
    Url::parse(&format!("https://example.org{path}")).expect("an address")
}

#[track_caller]
fn check(file: &str, path: &str, allowed: &str) {
    let robots = Robots::parse(file.as_bytes(), "FooBot");
    let verdict = if robots.allows(&url(path)) { "allowed" } else { "disallowed" };
    assert_eq!(verdict, allowed, "{path} by\n{file}");
}

#[test]
fn the_group_of_a_program_replaces_the_general_one() {
    let file = "User-Agent: *\nDisallow: *.gif$\nDisallow: /example/\nAllow: /publications/\n\n\
                User-Agent: foobot\nDisallow:/\nAllow:/example/page.html\n\
                Allow:/example/allowed.gif\n\n\
                User-Agent: barbot\nUser-Agent: bazbot\nDisallow: /example/page.html\n\n\
                User-Agent: quxbot\n";
    check(file, "/", "disallowed");
    check(file, "/publications/", "disallowed");
    check(file, "/example/page.html", "allowed");
    check(file, "/example/allowed.gif", "allowed");
    let verdict =
        |product: &str, path: &str| Robots::parse(file.as_bytes(), product).allows(&url(path));
    for product in ["BarBot", "bazbot/2.1"] {
        assert!(!verdict(product, "/example/page.html"), "{product}");
        assert!(verdict(product, "/example/a.gif"), "{product}");
    }
    assert!(verdict("quxbot", "/example/"));
    for other in ["OtherBot", "foo", "foobots", ""] {
        assert!(!verdict(other, "/example/page.html"), "{other}");
        assert!(!verdict(other, "/a.gif"), "{other}");
        assert!(verdict(other, "/a.gif?x"), "{other}");
        assert!(verdict(other, "/publications/"), "{other}");
    }
}

#[test]
fn the_longest_match_wins_and_among_equals_the_one_that_allows() {
    let file = "User-Agent: foobot\nAllow: /example/page/\n\
                Disallow: /example/page/disallowed.gif\n";
    check(file, "/example/page/disallowed.gif", "disallowed");
    check(file, "/example/page/", "allowed");
    check("User-Agent: *\nDisallow: /page\nAllow: /page", "/page", "allowed");
    check("User-Agent: *\nAllow: /page\nDisallow: /page", "/page", "allowed");
    check("User-Agent: *\nAllow: /p\nDisallow: /", "/page", "allowed");
    check("User-Agent: *\nAllow: /$\nDisallow: /", "/", "allowed");
    check("User-Agent: *\nAllow: /$\nDisallow: /", "/page", "disallowed");
    check("User-Agent: *\nAllow: /page\nDisallow: /*.htm", "/page.htm", "disallowed");
}

#[test]
fn groups_of_one_name_are_merged_and_other_lines_end_none() {
    let file = "user-agent: ExampleBot\ndisallow: /foo\ndisallow: /bar\n\n\
                user-agent: foobot\ndisallow: /one\n\
                user-agent: ExampleBot\ndisallow: /baz\n\
                user-agent: foobot\ndisallow: /two\n";
    check(file, "/one", "disallowed");
    check(file, "/two", "disallowed");
    check(file, "/baz", "allowed");
    check(
        "User-agent: foobot\nSitemap: /s\n\n\nfoo: bar\nUser-agent: x\nDisallow: /",
        "/",
        "disallowed",
    );
    check("User-agent: x\nDisallow:\nUser-agent: foobot\nDisallow: /", "/", "disallowed");
    check("User-agent: foobot\nDisallow:\nUser-agent: *\nDisallow: /", "/", "allowed");
    check("User-agent: foobot\nCrawl-delay: 1\nUser-agent: *\nDisallow: /", "/", "allowed");
    check("Disallow: /", "/", "allowed");
}

#[test]
fn stars_and_dollars_are_special_and_encoded_ones_are_not() {
    let by = |rule: &str| format!("User-Agent: *\nDisallow: {rule}");
    for (rule, path, verdict) in [
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", "disallowed"),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-x.html", "allowed"),
        ("/path/foo-%24", "/path/foo-$", "disallowed"),
        ("/path/foo-$", "/path/foo-$", "allowed"),
        ("/path/foo-$", "/path/foo-", "disallowed"),
        ("/a$b", "/a$bc", "disallowed"),
        ("/this/*/exactly", "/this/path/exactly", "disallowed"),
        ("/this/*/exactly", "/this/exactly", "allowed"),
        ("/fish*.php", "/fish.php", "disallowed"),
        ("/fish*.php", "/fishes/a.php?x", "disallowed"),
        ("/*.php$", "/a.php.php", "disallowed"),
        ("/*.php$", "/a.php?x", "allowed"),
        ("/**a**$", "/xxayy", "disallowed"),
        ("*", "/", "disallowed"),
        ("*$", "/x", "disallowed"),
        ("$", "/", "allowed"),
        ("/a*b*a$", "/aba", "disallowed"),
        ("/a*ba$", "/aba", "disallowed"),
        ("/ab*ba$", "/aba", "allowed"),
        ("fish", "/fish", "allowed"),
        ("", "/", "allowed"),
    ] {
        check(&by(rule), path, verdict);
    }
}

#[test]
fn equal_paths_are_compared_in_normalized_form() {
    for (rule, path) in [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        ("/foo/bar?baz=https%3A%2F%2Ffoo.bar", "/foo/bar?baz=https://foo.bar"),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%e3%83%84", "/foo/bar/ツ"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ("/foo/bar/baz", "/foo/bar/%62%61%7A"),
        ("/a|b", "/a%7Cb"),
        ("/a%7cb", "/a|b"),
        ("/100%", "/100%"),
        ("/*/x", "/a?b=/x"),
    ] {
        check(&format!("User-Agent: *\nDisallow: {rule}"), path, "disallowed");
    }
    check("User-Agent: *\nDisallow: /a/b", "/a%2Fb", "allowed");
    check("User-Agent: *\nDisallow: /a%2fb", "/a%2Fb", "disallowed");
    check("User-Agent: *\nDisallow: /A", "/a", "allowed");
}

#[test]
fn files_come_with_marks_any_line_ends_and_comments() {
    for file in [
        "\u{feff}User-agent:*\nDisallow:/a",
        "USER-AGENT : * # all\r\n  dISALLOW\t:\t/a # this\r\n",
        "# x\ruser-agent: *\rdisallow: /a\r",
        "\r\n\r\nuser-agent: * and more\n\nnonsense\n: \n\ndisallow: /a",
    ] {
        check(file, "/a/b", "disallowed");
        check(file, "/b", "allowed");
        check(file, "/robots.txt", "allowed");
    }
    let mut bytes = b"user-agent: *\ndisallow: /a\xff\xfe\ndisallow: /b".to_vec();
    let robots = Robots::parse(&bytes, "x");
    assert!(!robots.allows(&url("/a%FF%FE")) && !robots.allows(&url("/b")));
    bytes.extend(vec![b' '; LARGEST_FILE]);
    let cut = Robots::parse(&bytes, "x");
    assert!(cut.allows(&url("/b")) && !cut.allows(&url("/a%FF%FE")), "a cut line does not count");
    let long = format!("user-agent: *\ndisallow: /{}\ndisallow: /b", "x".repeat(100_000));
    check(&long, "/b", "disallowed");
}

#[track_caller]
fn check_delay(file: &str, delay: Option<u64>) {
    let robots = Robots::parse(file.as_bytes(), "FooBot");
    assert_eq!(robots.crawl_delay(), delay.map(Duration::from_millis), "{file}");
}

#[test]
fn the_delay_is_that_of_the_group_and_has_a_bound() {
    check_delay("User-agent: *\nCrawl-delay: 10", Some(10_000));
    check_delay("User-agent: *\ncrawl-DELAY: 0.5 # s", Some(500));
    check_delay("User-agent: *\nCrawl-delay: 99999", Some(3_600_000));
    check_delay(&format!("User-agent: *\nCrawl-delay: {}", "9".repeat(400)), Some(3_600_000));
    check_delay("User-agent: x\nCrawl-delay: 10", None);
    check_delay("User-agent: foobot\nDisallow: /a\nUser-agent: *\nCrawl-delay: 10", None);
    check_delay("User-agent: *\nCrawl-delay: 2\nUser-agent: *\nCrawl-delay: 1", Some(2_000));
    for malformed in ["", "-1", "soon", "1e9", "inf"] {
        check_delay(&format!("User-agent: *\nCrawl-delay: {malformed}"), None);
    }
}

#[test]
fn hostile_files_cost_little() {
    let path = url(&format!("/{}", "a".repeat(LONGEST_TARGET - 1)));
    let stars = format!("user-agent: *\ndisallow: /{}b", "*a".repeat(200_000));
    let only_stars = format!("user-agent: *\ndisallow: /{}b", "*".repeat(400_000));
    let nested = format!("user-agent: *\ndisallow: /{}b", "*aaaaaaaaaaaaaaab".repeat(20_000));
    let mut many = "user-agent: *\n".to_owned();
    while many.len() < LARGEST_FILE {
        many.push_str("allow:*ab\n");
    }
    for file in [stars, only_stars, nested, many] {
        let robots = Robots::parse(file.as_bytes(), "x");
        for _ in 0..3 {
            assert!(robots.allows(&path));
        }
        assert!(robots.rules.len() < MOST_RULES);
    }
    let longer = url(&format!("/{}", "a".repeat(LONGEST_TARGET)));
    check("user-agent: *\ndisallow: /b", longer.path(), "disallowed");
    check("", longer.path(), "allowed");
}

/// Tries everything; only for short texts.
fn slow(pattern: &[u8], target: &[u8]) -> bool {
    match pattern.split_first() {
        None => true,
        Some((b'$', [])) => target.is_empty(),
        Some((b'*', rest)) => (0..=target.len()).any(|skip| slow(rest, &target[skip..])),
        Some((sign, rest)) => target.first() == Some(sign) && slow(rest, &target[1..]),
    }
}

proptest! {
    #[test]
    fn a_pattern_matches_what_trying_everything_matches(
        pattern in "/[ab*]{0,8}\\$?",
        target in "/[ab]{0,10}",
    ) {
        let matched = Pattern::parse(pattern.as_bytes()).expect("a path").matches(&target);
        prop_assert_eq!(matched, slow(pattern.as_bytes(), target.as_bytes()));
    }

    #[test]
    fn any_bytes_are_rules(
        lines in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..30),
            "(user-agent|allow|disallow|crawl-delay): ?([*/a$%2F?.0-9]{0,8}|x)"
                .prop_map(String::into_bytes),
        ], 0..20),
        path in "/[a-c*$%?/]{0,10}",
    ) {
        let robots = Robots::parse(&lines.join(&b'\n'), "x");
        robots.allows(&url(&path));
        prop_assert!(robots.crawl_delay().is_none_or(|delay| delay <= LONGEST_CRAWL_DELAY));
    }

    #[test]
    fn encoding_letters_changes_nothing(path in "/[a-z/*]{0,8}", target in "/[a-z/]{0,8}") {
        let encode = |text: &str| -> String {
            text.chars().map(|sign| match sign {
                'a'..='m' => format!("%{:02x}", u32::from(sign)),
                sign => sign.to_string(),
            }).collect()
        };
        let plain = Robots::parse(format!("user-agent: *\ndisallow: {path}").as_bytes(), "x");
        let encoded = format!("user-agent: *\ndisallow: {}", encode(&path));
        let encoded = Robots::parse(encoded.as_bytes(), "x");
        prop_assert_eq!(&plain, &encoded);
        prop_assert_eq!(plain.allows(&url(&target)), plain.allows(&url(&encode(&target))));
    }
}
