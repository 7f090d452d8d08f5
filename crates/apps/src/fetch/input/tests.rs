//! Lists in all their forms, and the sentence that each mistake gets.

use std::io::{BufReader, Cursor, Error, Read, Write as _};

use proptest::prelude::*;

use super::lines::LONGEST_LINE;
use super::*;
use crate::fetch::item::MOST_MIRRORS;
use crate::fetch::name::relative;

const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";
const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Each entry on a line: its URLs and options, or its mistake.
fn read(list: impl AsRef<[u8]>, format: Format) -> String {
    // A tiny buffer puts every line across its edge.
    let reader = BufReader::with_capacity(7, Cursor::new(list.as_ref().to_vec()));
    let told = Items::new("list", reader, format).map(|entry| match entry {
        Ok(item) => told(&item),
        Err(mistake) => mistake.to_string(),
    });
    told.collect::<Vec<String>>().join("\n")
}

fn told(item: &Item) -> String {
    let mut told = item.urls.iter().map(Url::as_str).collect::<Vec<&str>>().join(" ");
    let checksum = item.checksum.as_ref().map(ToString::to_string);
    let options = [("out", &item.out), ("dir", &item.dir), ("checksum", &checksum)];
    for (name, value) in options {
        if let Some(value) = value {
            told = format!("{told} {name}={value}");
        }
    }
    told
}

fn manifest() -> Format {
    Format::Manifest { base: Url::parse("https://a/dir/SHA256SUMS?x#y").expect("a URL") }
}

#[track_caller]
fn check(list: impl AsRef<[u8]>, format: Format, expected: &str) {
    let list = list.as_ref();
    let expected = expected.trim_matches('\n');
    assert_eq!(read(list, format), expected, "{}", list.escape_ascii());
}

#[track_caller]
fn check_manifest(line: &str, expected: &str) {
    check(line, manifest(), expected);
}

#[track_caller]
fn check_jsonl(line: &str, expected: &str) {
    check(line, Format::Jsonl, expected);
}

#[test]
fn a_plain_list_has_a_url_on_each_line() {
    let list = "\u{feff}# files\r\nhttps://a/1\r\n\r\n  # more\n\
                https://a/2#part\t\thttp://b/2 \n \nhttps://a/3";
    let expected = "https://a/1\nhttps://a/2 http://b/2\nhttps://a/3";
    for format in [Format::Plain, Format::Aria2, Format::Auto] {
        check(list, format, expected);
    }
    check("", Format::Auto, "");
    check("\u{feff}\n#", Format::Auto, "");
}

#[test]
fn options_belong_to_the_urls_above_them() {
    let list = format!(
        "https://a/1\thttps://b/1\n out=x y/z.iso\n\n# why\n\tdir=./d/\n  \
         checksum=sha-256={SHA256}\n split=5\n\
         https://a/2\n out=one\n out=two\n"
    );
    let expected = format!(
        "https://a/1 https://b/1 out=x y/z.iso dir=d checksum=sha-256={SHA256}\nhttps://a/2 out=two"
    );
    check(list, Format::Auto, &expected);
}

#[test]
fn a_mistake_takes_its_entry_along_and_the_list_goes_on() {
    let list = "example.org/x\n out=x\nhttps://a/1\n checksum=md5=0\n dir=..\n out=x\n\
                https://a/2\n out=../x\nhttps://a/3";
    check(
        list,
        Format::Auto,
        "list:1: `example.org/x` has no scheme: write `https://example.org/x`\n\
         list:4: `checksum`: `md5` has 32 hex digits, not 1\n\
         list:8: `out`: `../x` leads out of the download directory: leave out the `..`\n\
         https://a/3",
    );
}

#[test]
fn an_indented_url_does_not_pass_for_an_option() {
    let orphan = "an indented line is an option of the URL above it, and there is none: \
                  take the spaces away if it is a URL";
    let option = "an indented line is an option such as ` out=NAME`: \
                  take the spaces away if it is a URL";
    check(
        " https://a/1\n out=x\nhttps://a/2",
        Format::Aria2,
        &format!("list:1: {orphan}\nlist:2: {orphan}\nhttps://a/2"),
    );
    check("https://a/1\n https://a/2?b=c", Format::Aria2, &format!("list:2: {option}"));
    check("https://a/1\n pause", Format::Aria2, &format!("list:2: {option}"));
    let header = "`header` is not read from lists: use the options of this command";
    check("https://a/1\n header=a: b", Format::Aria2, &format!("list:2: {header}"));
    let plain = "an indented line is an option in aria2's format, and this list is plain: \
                 take the spaces away if it is a URL";
    check("https://a/1\n out=x", Format::Plain, &format!("https://a/1\nlist:2: {plain}"));
}

#[test]
fn a_line_of_a_plain_list_does_not_wait_for_the_next_one() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut items = Items::new("list", BufReader::new(reader), Format::Plain);
    writer.write_all(b"https://a/1\n").expect("written");
    let item = items.next().expect("one").expect("an address");
    assert_eq!(item.urls[0].as_str(), "https://a/1");
    drop(writer);
    assert!(items.next().is_none());
}

#[test]
fn passwords_are_kept_and_never_shown() {
    check("https://u:secret@a/1", Format::Auto, "https://u:secret@a/1");
    let lists = [
        "https://u:secret@a:x/1\n",
        "u:secret@a/1\n",
        "https://a/1 https://u:secret@a/1\n",
        " https://u:secret@a/1\n",
        "https://a/1\n https://u:secret@a/1?x=y\n",
        "{\"urls\": \"https://u:secret@a/1\"}",
        "{\"url\": \"https://u:secret@a:x/1\"}",
        "{\"url\": [\"https://u:secret@a/1\"]}",
        "{\"https://u:secret@a/1\": 1}",
    ];
    for list in lists {
        let told = read(list, Format::Auto);
        assert!(told.starts_with("list:") && !told.contains("secret"), "{told}");
    }
}

#[test]
fn mirrors_have_a_limit() {
    let mirrors = |count| vec!["https://a/"; count].join("\t");
    check(mirrors(16), Format::Plain, &vec!["https://a/"; 16].join(" "));
    check(mirrors(17), Format::Plain, "list:1: more than 16 mirrors of one file: leave some out");
    let list = format!("{{\"urls\": [{}]}}", vec!["\"https://a/\""; 17].join(","));
    check_jsonl(&list, "list:1: more than 16 mirrors of one file: leave some out");
}

#[test]
fn a_line_has_a_limit_and_is_not_held_beyond_it() {
    let of_length = |length: usize| format!("https://a/{}", "x".repeat(length - 10));
    let too_long = "list:1: the line is longer than 65536 bytes: shorten it";
    let fits = of_length(LONGEST_LINE);
    for (start, end) in
        [("", ""), ("", "\n"), ("", "\r\n"), ("\u{feff}", "\n"), ("\u{feff}", "\r\n")]
    {
        check(format!("{start}{fits}{end}"), Format::Auto, &fits);
        for length in [1, 2, 3, 4, 5, 6, 100_000] {
            let long = of_length(LONGEST_LINE + length);
            check(format!("{start}{long}{end}"), Format::Auto, too_long);
        }
        let ends_in_return = format!("{start}{}\r{end}", of_length(LONGEST_LINE + 1));
        check(ends_in_return, Format::Auto, too_long);
    }
    let long = of_length(300_000);
    check(
        format!("{long}\n out=x\nhttps://a/1\n out={long}\nhttps://a/2\n"),
        Format::Aria2,
        "list:1: the line is longer than 65536 bytes: shorten it\n\
         list:4: the line is longer than 65536 bytes: shorten it\nhttps://a/2",
    );
}

#[test]
fn lines_that_are_not_utf_8_are_mistakes() {
    let mistake = "list:1: byte 11 of the line is not UTF-8: save the list as UTF-8";
    check(b"https://a/\xff\nhttps://a/1", Format::Plain, &format!("{mistake}\nhttps://a/1"));
    let list = b"https://a/\xff\n {\"url\": \"https://a/1\"}";
    check(list, Format::Auto, &format!("{mistake}\nhttps://a/1"));
}

#[test]
fn a_list_that_cannot_be_read_on_ends() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(Error::other("gone"))
        }
    }
    let reader = BufReader::new(Cursor::new("https://a/1\nhttps://a/").chain(Broken));
    let told: Vec<String> = Items::new("list", reader, Format::Auto)
        .map(|entry| entry.map_or_else(|mistake| mistake.to_string(), |item| told(&item)))
        .collect();
    assert_eq!(told, ["https://a/1", "list:2: cannot read the list any further: gone"]);
}

#[test]
fn objects_have_the_same_options() {
    let list = format!(
        "{{\"url\": \"https://a/1\"}}\n\n# more\n  {{\"urls\": [\"https://a/2\", \"https://b/2\"], \
         \"out\": \"x\", \"dir\": \"d\", \"checksum\": \"md5:{MD5}\"}}\r\n"
    );
    let expected = format!("https://a/1\nhttps://a/2 https://b/2 out=x dir=d checksum=md5={MD5}");
    check(&list, Format::Jsonl, &expected);
    check(&list, Format::Auto, &expected);
    check_jsonl("{\"url\": \"https://a/1\", \"out\": null}", "https://a/1");
}

#[test]
fn objects_with_mistakes_are_told_why() {
    let cases = [
        ("{}", "no `url`: write `{\"url\": \"https://...\"}`"),
        ("https://a/1", "not an object: write `{\"url\": \"https://...\"}`"),
        ("{\"url\": \"https://a\", \"urls\": []}", "both `url` and `urls`: keep one of them"),
        ("{\"urls\": []}", "`urls` is empty: give one at least"),
        ("{\"urls\": \"https://a\"}", "`urls` is not a list: write `[\"https://...\"]`"),
        ("{\"url\": 5}", "`url` is not a text: put it in quotes"),
        ("{\"urls\": [5]}", "`urls` is not a text: put it in quotes"),
        ("{\"url\": \"a.org\"}", "`a.org` has no scheme: write `https://a.org`"),
        (
            "{\"url\": \"https://a\", \"out\": \"/x\"}",
            "`out`: `/x` is absolute: give a path below the download directory",
        ),
        (
            "{\"url\": \"https://a\", \"checksum\": \"x\"}",
            "`checksum`: `x` is not a checksum: write `sha-256=HEX`",
        ),
        (
            "{\"url\": \"https://a\", \"name\": 1}",
            "unknown field `name`, expected one of `url`, `urls`, `out`, `dir`, `checksum`",
        ),
        ("{\"url\": \"https://a\", \"url\": 1}", "duplicate field `url`"),
        ("{\"url\": \"https://a\"", "not JSON at column 19: EOF while parsing an object"),
        ("{\"url\": \"https://a\"} x", "not JSON at column 22: trailing characters"),
    ];
    for (line, what) in cases {
        check_jsonl(line, &format!("list:1: {what}"));
    }
    let deep = format!("{{\"url\": {}", "[".repeat(60_000));
    check_jsonl(&deep, "list:1: not JSON at column 135: recursion limit exceeded");
}

#[test]
fn manifests_are_read_in_the_forms_of_gnu_and_bsd() {
    let item = format!("https://a/dir/x.iso out=x.iso checksum=sha-256={SHA256}");
    for line in [
        format!("{SHA256}  x.iso\r\n"),
        format!("{SHA256} *x.iso"),
        format!("{SHA256} x.iso"),
        format!("{SHA256}  ./x.iso"),
        format!("SHA256 (x.iso) = {SHA256}"),
        format!("SHA256(x.iso)= {}", SHA256.to_uppercase()),
        format!("SHA2-256(x.iso)= {SHA256}"),
        format!("\\{SHA256}  x.iso"),
    ] {
        check_manifest(&line, &item);
    }
    check_manifest(&format!("{MD5}  x"), &format!("https://a/dir/x out=x checksum=md5={MD5}"));
}

#[test]
fn names_in_manifests_are_paths_and_nothing_else() {
    let cases = [
        ("a b#c?.iso", "a%20b%23c%3F.iso"),
        ("sub/ä%2e.iso", "sub/%C3%A4%252e.iso"),
        ("a b:c@d", "a%20b:c@d"),
        ("a (1) = b.iso", "a%20(1)%20=%20b.iso"),
    ];
    for (name, path) in cases {
        let expected = format!("https://a/dir/{path} out={name} checksum=md5={MD5}");
        check_manifest(&format!("{MD5}  {name}"), &expected);
        check_manifest(&format!("MD5 ({name}) = {MD5}"), &expected);
    }
    let expected = format!("https://a/dir/a%5Cc out=a\\c checksum=md5={MD5}");
    check_manifest(&format!("\\{MD5}  a\\\\c"), &expected);
    // A name that could pass for a line of its own in another list is refused.
    let expected = "list:1: `a\\u{a}https:/b` has a control character: leave it out";
    check_manifest(&format!("\\{MD5}  a\\nhttps:/b"), expected);
}

#[test]
fn a_base_without_a_path_is_a_directory() {
    let base = Url::parse("https://a").expect("a URL");
    let expected = format!("https://a/x out=x checksum=md5={MD5}");
    check(format!("{MD5}  x"), Format::Manifest { base }, &expected);
}

#[test]
fn manifests_with_mistakes_are_told_why() {
    let form = "not a line of checksums: write `HEX  name` or `SHA256 (name) = HEX`";
    let escape =
        "a `\\` at the start of the line asks for `\\\\`, `\\n` and `\\r` in the name only";
    let cases = [
        (format!("{MD5}  ../x"), "`../x` leads out of the download directory: leave out the `..`"),
        (
            format!("MD5 (a/../../x) = {MD5}"),
            "`a/../../x` leads out of the download directory: leave out the `..`",
        ),
        (
            format!("{MD5}  /etc/x"),
            "`/etc/x` is absolute: give a path below the download directory",
        ),
        (MD5.to_owned(), form),
        ("https://a/x".to_owned(), form),
        (
            "abc  x".to_owned(),
            "no checksum algorithm has 3 hex digits: expected 32, 40, 56, 64, 96 or 128",
        ),
        (format!("SHA256 (x) = {MD5}"), "`sha-256` has 64 hex digits, not 32"),
        (
            format!("SIZE (x) = {MD5}"),
            "no checksum named `SIZE`: use md5, sha-1, sha-224, sha-256, sha-384 or sha-512",
        ),
        (format!("\\{MD5}  a\\tb"), escape),
        (format!("\\{MD5}  a\\"), escape),
    ];
    for (line, what) in cases {
        check_manifest(&line, &format!("list:1: {what}"));
    }
}

#[test]
fn a_manifest_without_a_base_is_told_to_give_one() {
    let mistake = "this is a line of checksums: say where its files are with `--base URL`";
    check(
        format!("{SHA256}  x\nMD5 (y) = {MD5}\n"),
        Format::Auto,
        &format!("list:1: {mistake}\nlist:2: {mistake}"),
    );
}

/// Bytes that are nearly lists.
fn some_list() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        "(https?://)?[a-z@:.]{0,6}/[a-z#?%.]{0,6}".prop_map(String::into_bytes),
        "[ \t]?(out|dir|checksum)=[a-z./\\\\:=]{0,8}".prop_map(String::into_bytes),
        "\\{\"(url|urls|out|x)\": ?(\"https://a/\"|\\[|null|\\})\\}?".prop_map(String::into_bytes),
        "\\\\?[0-9a-f]{32}  [a-z./\\\\ #?]{0,8}".prop_map(String::into_bytes),
        "MD5 \\([a-z./\\\\ )]{0,8}\\) = [0-9a-f]{32}".prop_map(String::into_bytes),
        "(\r?\n|\t| )".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_give_items_or_mistakes_in_order(list in some_list()) {
        for format in [Format::Auto, Format::Aria2, Format::Jsonl, manifest()] {
            let mut last = 0;
            let lines = list.split(|&byte| byte == b'\n').count() as u64;
            for entry in Items::new("list", list.as_slice(), format) {
                match entry {
                    Ok(item) => {
                        prop_assert!((1..=MOST_MIRRORS).contains(&item.urls.len()));
                        prop_assert!(item.urls.iter().all(|url| url.fragment().is_none()));
                        for path in [item.out, item.dir].into_iter().flatten() {
                            prop_assert!(relative(&path).is_ok());
                        }
                    }
                    Err(mistake) => {
                        prop_assert!(mistake.line > last && mistake.line <= lines);
                        prop_assert!(!mistake.what.is_empty());
                        last = mistake.line;
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_manifest_names_lies_below_its_base(name in "([a-c./\\\\%?# ]|%2e|\\PC){1,20}") {
        for entry in Items::new("list", format!("{MD5}  {name}").as_bytes(), manifest()) {
            let Ok(item) = entry else { continue };
            let below = item.urls[0].as_str().strip_prefix("https://a/dir/");
            prop_assert!(below.is_some_and(|rest| !rest.contains(['?', '#'])), "{:?}", item);
            let path = percent_encoding::percent_decode_str(below.unwrap_or_default());
            prop_assert_eq!(path.decode_utf8_lossy(), item.out.unwrap_or_default());
        }
    }
}
