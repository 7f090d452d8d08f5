//! Mistakes and their messages; defaults that read back.

use super::*;
use crate::services::WhenConfig;
use paceline_apps::services::Act;
use paceline_core::{AcrossLanes, GapFrom, Portion, Priority};
use proptest::prelude::*;

fn parse(text: &[u8]) -> Result<Config, ConfigError> {
    Config::parse(Path::new("p.toml"), text, &Environment::default())
}

fn right(text: &str) -> Config {
    parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn mistakes(text: &[u8]) -> Vec<String> {
    match parse(text) {
        Err(ConfigError::Mistakes(mistakes)) => mistakes.iter().map(ToString::to_string).collect(),
        other => panic!("no mistakes but {other:?}"),
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(mistakes(text.as_bytes()), [format!("p.toml:{expected}")], "{text}");
}

#[test]
fn the_printed_configuration_reads_back_to_the_defaults() {
    let mut config = right(&print());
    assert_eq!(config.file.take(), Some("p.toml".into()));
    assert_eq!(config, Config::defaults(&Environment::default()));
}

#[test]
fn the_printed_examples_are_valid_and_their_defaults_correct() {
    let uncommented: String = print()
        .lines()
        .map(|line| line.strip_prefix('#').filter(|l| !l.starts_with(' ')).unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    let config = right(&uncommented);
    let limits = &config.lanes[0].limits;
    let normal = Limits::default();
    assert_eq!((limits.in_flight, limits.gap_from), (normal.in_flight, normal.gap_from));
    assert_eq!((limits.gap_share, limits.fail_after), (normal.gap_share, normal.fail_after));
    assert_eq!(limits.windows[1].keep[0], Portion::thousandths(200));
    assert_eq!(config.store_path, PathBuf::from("paceline.db"));
    assert!(print().lines().all(|line| line.len() <= 100));
}

#[test]
fn everything_can_be_set() {
    let config = right(
        r#"
        store = { path = "/var/p.db", keep_finished = "1h" }
        [workers]
        base = 1
        max = 2
        across_lanes = "turns"
        [queue]
        max_payload = "2MiB"
        [cache]
        memory = "0B"
        [server]
        listen = "[::1]:80"
        [lanes."host:*"]
        in_flight = 2
        [lanes.a]
        url = "https://user:pass@a.example/x"
        every = "1s"
        limits = [{ limit = "1000/d", keep = { interactive = 0.2, rss = 1e-1 }, spread = true }]
        gap_from = "finish"
        gap_share.interactive = 0
        slack = "20ms"
        timeout = "30s"
        group = "g"
        fail_after = 3
        [groups.g]
        every = "10ms"
        in_flight = 3
        "#,
    );
    assert_eq!(config.store_path, PathBuf::from("/var/p.db"));
    assert_eq!(config.settings.across_lanes, AcrossLanes::Turns);
    assert_eq!((config.settings.max_payload, config.cache_bytes), (2 << 20, 0));
    assert!(config.lanes[0].is_template() && !config.lanes[1].is_template());
    let limits = &config.lanes[1].limits;
    assert_eq!((limits.gap_from, limits.gap(Priority::Interactive)), (GapFrom::Finish, Span::ZERO));
    assert_eq!(limits.windows[0].allowed(Priority::Background), 700);
    assert_eq!(limits.slack, Some(Span::millis(20)));
    assert_eq!(config.groups[0].1.every, Some(Span::millis(10)));
}

#[test]
fn a_path_is_relative_to_its_file() {
    let file = Path::new("/etc/paceline/paceline.toml");
    let config = Config::parse(file, b"store.path = 'x.db'", &Environment::default());
    assert_eq!(config.expect("right").store_path, PathBuf::from("/etc/paceline/x.db"));
}

#[test]
fn unknown_keys_get_a_suggestion() {
    check("[worker]\nbase = 1", "1:2: unknown section `worker`: did you mean `[workers]`?");
    check("[lanes.x]\n  evry = '1s'", "2:3: unknown key `lanes.x.evry`: did you mean `every`?");
    check(
        "[workers]\nmax_waiting = 1",
        "2:1: unknown key `workers.max_waiting`: it belongs in `[queue]`",
    );
    check("age_after = '1s'", "1:1: unknown key `age_after`: it belongs in `[queue]`");
    check("in_flight = 1", "1:1: unknown key `in_flight`: it belongs in `[lanes.NAME]`");
    check(
        "[server]\ntls = true",
        "2:1: unknown key `server.tls`: the keys here are `listen`, `grace`, `hosts`, `max_body`, \
         `connections`, `keep_events`",
    );
    check(
        "[telemetry]",
        "1:2: unknown section `telemetry`: the sections are `[store]`, `[workers]`, `[queue]`, `[cache]`, `[server]`, `[tokens]`, `[lanes]`, `[groups]`, `[services]`, `[rosters]`, `[commands]`",
    );
    check(
        "lanes.x.limits = [{ limit = '1/s', keeps = {} }]",
        "1:36: unknown key `lanes.x.limits.keeps`: did you mean `keep`?",
    );
    check(
        "lanes.x.gap_share = { urgent = 1 }",
        "1:23: unknown key `lanes.x.gap_share.urgent`: the keys here are `interactive`, `rss`, `completion`, `background`",
    );
}

#[test]
fn values_of_the_wrong_kind_are_named() {
    check("workers = 3", "1:11: `workers` must be a table, but is 3");
    check(
        "[workers]\nbase = 'ten'",
        "2:8: `workers.base` must be a whole number from 1 to 100000, but is a text",
    );
    check(
        "[workers]\nmax = 99999999999999999999999999999999999999999999",
        "2:7: `workers.max` must be a whole number from 1 to 100000, but is 99999999999999999999999999999999999999999999",
    );
    check(
        "workers.lane_share = nan",
        "1:22: `workers.lane_share` must be a number from 0 to 1, but is nan",
    );
    check(
        "workers.grow_at = 60",
        "1:19: `workers.grow_at` must be a number from 0 to 1, but is 60",
    );
    check(
        "workers.across_lanes = 'newest'",
        "1:24: `workers.across_lanes` must be \"oldest\" or \"turns\", but is `newest`",
    );
    check("workers.step = 5", "1:16: `workers.step` must be a span of time like \"90s\", but is 5");
    check(
        "queue.max_payload = 1000",
        "1:21: `queue.max_payload` must be a size like \"10MiB\", but is 1000",
    );
    check("store.path = []", "1:14: `store.path` must be a file name, but is an array");
    check("[[lanes]]", "1:1: `lanes` must be a table, but is an array");
    check("lanes.x = 1", "1:11: `lanes.x` must be a table, but is 1");
    check(
        "lanes.x.limits = '1/s'",
        "1:18: `lanes.x.limits` must be an array of rates like [\"50/s\", \"1000/h\"], but is a text",
    );
    check(
        "lanes.x.limits = ['1/s', 5]",
        "1:26: `lanes.x.limits` must be an array of rates like [\"50/s\", \"1000/h\"]: this is not a rate",
    );
    check(
        "lanes.x.limits = [{ limit = '1/s', spread = 1 }]",
        "1:45: `lanes.x.limits.spread` must be true or false, but is 1",
    );
    check(
        "lanes.x.timeout = 1979-05-27",
        "1:19: `lanes.x.timeout` must be a span of time like \"90s\", but is a date",
    );
}

#[test]
fn values_that_cannot_be_read_say_how_to_write_them() {
    check(
        "workers.step = '5'",
        "1:16: `workers.step`: `5` has no unit: write `5s` for seconds or `5ms` for milliseconds",
    );
    check(
        "cache.memory = '5MB'",
        "1:16: `cache.memory`: `5MB` is not a size: write it like `64KiB`, `10MiB` or `1GiB`",
    );
    check(
        "lanes.x.limits = ['fast']",
        "1:19: `lanes.x.limits`: `fast` is not a rate: write it like `2/s`, `100/min`, `1000/h` or `3/5s`",
    );
    check(
        "lanes.x.limits = [{ limit = '0/s' }]",
        "1:29: `lanes.x.limits.limit`: `0/s` allows nothing: both numbers of a rate must be above zero",
    );
    check(
        "server.listen = 'localhost:1'",
        "1:17: `server.listen`: `localhost:1` is not an address and port like \"127.0.0.1:7400\"",
    );
    check(
        "lanes.x.url = 'ftp://user:secret@x'",
        "1:15: `lanes.x.url` must be a URL that starts with `https://` or `http://` and name a host",
    );
    check(
        "store.url = 'postgres://user:secret@x/y'",
        "1:13: `store.url`: PostgreSQL is not supported: use `path` for the embedded store",
    );
}

#[test]
fn absurd_values_are_refused() {
    check(
        "workers.base = 0",
        "1:16: `workers.base` must be a whole number from 1 to 100000, but is 0",
    );
    check(
        "workers.base = -3",
        "1:16: `workers.base` must be a whole number from 1 to 100000, but is -3",
    );
    check("workers.lane_share = 0", "1:22: `workers.lane_share` must be above zero");
    check("workers.max = 5", "1:15: `workers.max = 5` is below `workers.base = 10`");
    check("workers.base = 30", "1:16: `workers.max = 20` is below `workers.base = 30`");
    check(
        "workers.interactive_reserve = 20",
        "1:31: `workers.interactive_reserve = 20` leaves none of `workers.max = 20` for other work",
    );
    check(
        "workers.max_lanes = 1",
        "1:21: `workers.interactive_reserve = 1` leaves none of `workers.max_lanes = 1` for other work",
    );
    check("workers.shrink_at = 0.7", "1:21: `workers.shrink_at` must be below `workers.grow_at`");
    check("queue.age_after = '0s'", "1:19: `queue.age_after` must be above zero");
    check(
        "queue.max_payload = '1GiB'",
        "1:21: `queue.max_payload` must be above zero and at most 256MiB",
    );
    check(
        "store.keep_finished = '9999d'",
        "1:23: `store.keep_finished`: `9999d` is longer than ten years",
    );
    check("store.path = ''", "1:14: `store.path` is not a file name");
    check("lanes.x.every = '0s'", "1:17: `lanes.x.every` is zero: leave it out for no gap");
    check("lanes.x.timeout = '0s'", "1:19: `lanes.x.timeout` is zero: no call could finish in it");
    check(
        "lanes.x.in_flight = 100001",
        "1:21: `lanes.x.in_flight` must be a whole number from 1 to 100000, but is 100001",
    );
}

#[test]
fn contradictory_limits_are_refused() {
    check(
        "lanes.x.limits = ['1/s', '2/1000ms']",
        "1:26: `lanes.x`: two limits per `1s`: keep the stricter one",
    );
    check(
        "lanes.x.limits = ['1/1s','1/2s','1/3s','1/4s','1/5s','1/6s','1/7s','1/8s','1/9s']",
        "1:18: `lanes.x`: 9 limits are too many: a lane or group has at most 8",
    );
    check(
        "lanes.x.limits = [{ limit = '5/s', keep = { rss = 1 } }]",
        "1:19: `lanes.x`: the limit `5/s` keeps everything for higher priorities: background could never run",
    );
    check(
        "lanes.x.limits = [{ limit = '5/s', keep = { background = 0.5 } }]",
        "1:43: `lanes.x.limits.keep.background`: background is the lowest priority, so there is nothing to reserve it from",
    );
    check(
        "groups.g.limits = [{ limit = '5/s', keep = { rss = 0.5 } }]",
        "1:20: `groups.g`: `keep` belongs to a lane's limit, not to a group's",
    );
    check(
        "lanes.x.limits = [{}]",
        "1:19: `lanes.x.limits`: this limit lacks its rate, as in `limit = \"50/s\"`",
    );
    check("[lanes.x]\nslack = '2s'", "2:9: `lanes.x`: `slack = 2s` is more than 1s");
}

#[test]
fn names_are_checked() {
    check("[lanes.'']", "1:8: a lane needs a name");
    check("[lanes.'a*b']", "1:8: the lane name `a*b`: a template has one `*`, at its end");
    check("[lanes.'a**']", "1:8: the lane name `a**`: a template has one `*`, at its end");
    check("[groups.'a*']", "1:9: the group name `a*` has a `*`: only lanes have templates");
    check(
        "[lanes.x]\ngroup = 'crosref'\n[groups.crossref]",
        "2:9: `lanes.x.group`: no group named `crosref`: did you mean `crossref`?",
    );
    check(
        "[lanes.'host:*']\ngroup = 'x'",
        "2:9: `lanes.\"host:*\".group`: no group named `x`: add it as `[groups.NAME]`",
    );
    check(
        "queue.max_lanes = 1\n[lanes.a]\n[lanes.'h*']\n[lanes.b]",
        "4:8: the lane `b` exceeds `queue.max_lanes = 1`",
    );
}

#[test]
fn a_byte_order_mark_moves_no_column() {
    check("\u{feff}workers = 3", "1:11: `workers` must be a table, but is 3");
}

#[test]
fn invalid_toml_is_reported_with_its_position() {
    // The message is the parser's; the position is computed here.
    for (text, place) in
        [("[workers]\nbase = ", "2:8"), ("[workers]\n[workers]", "2:2"), ("'é' = 5 x", "1:7")]
    {
        let found = mistakes(text.as_bytes());
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("p.toml:{place}: invalid TOML: ")), "{found:?}");
    }
    assert_eq!(mistakes(b"# \xc3\xa9\n# \xff"), ["p.toml:2:3: the file is not UTF-8 text"]);
}

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let found = mistakes(b"[lanes.x]\nevry = 1\nevery = 2\n[store]\npth = 3");
    let places: Vec<&str> = found.iter().map(|text| &text[..10]).collect();
    assert_eq!(places, ["p.toml:2:1", "p.toml:3:9", "p.toml:5:1"]);
    let many = (0..5_000).map(|n| format!("x{n} = 1")).collect::<Vec<_>>().join("\n");
    assert_eq!(mistakes(many.as_bytes()).len(), 20);
}

#[test]
fn a_file_larger_than_any_configuration_is_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("large.toml");
    std::fs::write(&file, vec![b'\n'; 1 << 20]).expect("written");
    assert!(Config::load(Some(&file), &Environment::default()).is_ok());
    std::fs::write(&file, vec![b'\n'; (1 << 20) + 1]).expect("written");
    let error = Config::load(Some(&file), &Environment::default()).expect_err("too large");
    assert!(matches!(error, ConfigError::TooLarge(_)));
}

/// Checks that any `text` is a configuration, or mistakes of one short line each.
fn survives(text: &[u8]) -> Result<(), TestCaseError> {
    if let Err(error) = parse(text) {
        let ConfigError::Mistakes(mistakes) = error else { panic!("{error}") };
        let lines = text.split(|&b| b == b'\n').count();
        prop_assert!(!mistakes.is_empty());
        for mistake in mistakes {
            prop_assert!((1..=lines).contains(&mistake.line) && mistake.column >= 1);
            prop_assert!(mistake.what.len() < 2_000, "{}", mistake.what);
            prop_assert!(!mistake.what.chars().any(char::is_control), "{:?}", mistake.what);
        }
    }
    Ok(())
}

const ODD: [&str; 16] = [
    "0",
    "-1",
    "1e999",
    "nan",
    "''",
    "[]",
    "{}",
    "true",
    "'0s'",
    "'1/0s'",
    "9223372036854775808",
    "1979-05-27",
    "'\\u0000'",
    "[[[]]]",
    "{ limit = '1/s' }",
    "\"\\u001b[2J\"",
];

proptest! {
    #[test]
    fn any_bytes_are_a_configuration_or_mistakes(text in prop::collection::vec(any::<u8>(), 0..300)) {
        survives(&text)?;
    }

    #[test]
    fn any_text_is_a_configuration_or_mistakes(text in "(?s).{0,200}|[\\[\\]{}=.'\"a-z0-9\n ]{0,200}") {
        survives(text.as_bytes())?;
    }

    #[test]
    fn a_changed_value_is_taken_or_refused(line in 0..200usize, odd in 0..ODD.len()) {
        let text: String = print().lines().enumerate().map(|(number, text)| {
            let text = text.strip_prefix('#').filter(|l| !l.starts_with(' ')).unwrap_or(text);
            match text.split_once(" = ") {
                Some((key, _)) if number == line => format!("{key} = {}\n", ODD[odd]),
                _ => format!("{text}\n"),
            }
        }).collect();
        survives(text.as_bytes())?;
    }

    #[test]
    fn a_damaged_file_is_taken_or_refused(
        cuts in prop::collection::vec((0..5_000usize, 0..20usize, ".{0,3}"), 1..6),
    ) {
        let mut text = print().replace("\n#", "\n").into_bytes();
        for (from, length, put) in cuts {
            let from = from.min(text.len());
            let to = (from + length).min(text.len());
            text.splice(from..to, put.into_bytes());
        }
        survives(&text)?;
    }
}

#[test]
fn services_and_rosters_are_read() {
    let config = right(
        r#"
        [lanes.shop]
        [services.crawl]
        run = ["./crawl.sh", "--fast"]
        every = "24h"
        lane = "shop"
        timeout = "30m"
        retries = 2
        [services.report]
        run = ["report"]
        cron = "0 3 * * mon-fri"
        tz = "Europe/Sofia"
        [rosters.nightly]
        check = "1h"
        services = ["report", "crawl"]
        "#,
    );
    let [crawl, report] = &config.tools.services.services[..] else { panic!("two services") };
    assert_eq!(crawl.when, WhenConfig::Every(Span::days(1)));
    assert_eq!((crawl.lane.as_deref(), crawl.retries), (Some("shop"), 2));
    assert_eq!(crawl.task.timeout, std::time::Duration::from_mins(30));
    let run = ["./crawl.sh", "--fast"].map(String::from).to_vec();
    let program =
        paceline_apps::program::Program { run, directory: PathBuf::from("."), without: Vec::new() };
    assert_eq!(crawl.task.act, Act::Run(program));
    assert!(matches!(&report.when, WhenConfig::Cron(text, _) if text == "0 3 * * mon-fri"));
    assert_eq!(report.task.timeout, std::time::Duration::from_hours(1));
    let nightly = &config.tools.services.rosters[0];
    assert_eq!(
        (nightly.check, &nightly.services[..]),
        (Span::hours(1), &["report".to_string(), "crawl".to_string()][..])
    );
}

#[test]
fn mistakes_in_services_are_reported_with_their_position() {
    check(
        "[services.a]",
        "1:11: `services.a` has nothing to run: add `run = [\"program\"]` or `get = \"https://...\"`",
    );
    check(
        "[services.a]\nrun = ['x']\nget = 'https://a.example/'",
        "3:7: `services.a` has run and get: keep one of them",
    );
    check(
        "[services.a]\nget = '/path'",
        "2:7: `services.a.get` must be an http or https address, or a path on a lane that has a \
         url, without a user or password",
    );
    check("[services.a]\nrun = []", "2:7: `services.a.run` is empty: name a program");
    check(
        "[services.a]\nrun = ['x', 1]",
        "2:13: `services.a.run` must be a list of texts: a program and its arguments",
    );
    check(
        "[services.a]\nrun = ['x']\nlane = 'shop'",
        "3:8: `services.a.lane`: no lane named `shop`: add it as `[lanes.NAME]`, or leave it out",
    );
    check(
        "[services.a]\nrun = ['x']\ncron = '0 3 * *'",
        "3:8: `services.a.cron`: `0 3 * *` is not a cron expression: write minute, hour, day of \
         the month, month and day of the week, such as `0 3 * * mon-fri`",
    );
    check(
        "[services.a]\nrun = ['x']\ncron = '0 3 * * *'\nevery = '1h'",
        "3:8: `services.a` has `every` and `cron`: keep one of them",
    );
    check(
        "[services.a]\nrun = ['x']\ntz = 'Sofia'\ncron = '0 3 * * *'",
        "3:6: `services.a.tz`: no time zone named `Sofia`: write it like `Europe/Sofia`",
    );
    check(
        "[services.a]\nrun = ['x']\ntz = 'UTC'",
        "3:6: `services.a.tz` has no effect without `cron`",
    );
    check(
        "[services.crawl]\nrun = ['x']\n[rosters.n]\nservices = ['crwl']",
        "4:12: `rosters.n.services`: no service named `crwl`: did you mean `crawl`?",
    );
    check(
        "[services.a]\nrun = ['x']\n[rosters.n]\nservices = ['a', 'a']",
        "4:12: `rosters.n.services`: `a` is listed twice",
    );
    check(
        "[services.a]\nrun = ['x']\n[rosters.n]\nservices = ['a']\ncheck = '1ms'",
        "5:9: `rosters.n.check` is shorter than 100ms",
    );
    check(
        "[services.a]\nrun = ['x']\nevry = '1h'",
        "3:1: unknown key `services.a.evry`: did you mean `every`?",
    );
}

#[test]
fn commands_are_read_and_run_in_the_directory_of_the_file() {
    let text = "[commands.look-up]\nrun = ['./look-up.sh', '']\ntimeout = '5s'\nempty = [4, 0xff, 4]\n\
                [commands.other]\nrun = ['other']";
    let file = Path::new("/etc/paceline/paceline.toml");
    let config = Config::parse(file, text.as_bytes(), &Environment::default()).expect("right");
    let [look_up, other] = &config.tools.command.0[..] else { panic!("two commands") };
    assert_eq!((look_up.name.as_str(), other.name.as_str()), ("look-up", "other"));
    assert_eq!(look_up.task.program.run, ["./look-up.sh", ""]);
    assert_eq!(look_up.task.program.directory, Path::new("/etc/paceline"));
    assert_eq!(
        (look_up.task.timeout, &look_up.task.empty[..]),
        (Span::secs(5).into(), &[4, 255][..])
    );
    assert_eq!((other.task.timeout, other.task.empty.len()), (Span::hours(1).into(), 0));
    assert_eq!(right(text).tools.command.0[0].task.program.directory, Path::new("."));
}

#[test]
fn mistakes_in_commands_are_reported_with_their_position() {
    check(
        "[commands.a]\ntimeout = '1s'",
        "1:11: `commands.a` has nothing to run: add `run = [\"program\"]`",
    );
    check("[commands.a]\nrun = []", "2:7: `commands.a.run` is empty: name a program");
    check(
        "[commands.a]\nrun = 'ls -l'",
        "2:7: `commands.a.run` must be a list of texts: a program and its arguments, but is a text",
    );
    check(
        "[commands.a]\nrun = [1]",
        "2:8: `commands.a.run` must be a list of texts: a program and its arguments",
    );
    check(
        "[commands.a]\nrun = ['x']\ntimeout = '0s'",
        "3:11: `commands.a.timeout` is zero: no run could finish in it",
    );
    check(
        "[commands.a]\nrun = ['x']\nempty = 4",
        "3:9: `commands.a.empty` must be a list of exit codes from 1 to 255, but is 4",
    );
    for wrong in ["0", "256", "-1", "'4'", "4.0"] {
        check(
            &format!("[commands.a]\nrun = ['x']\nempty = [1, {wrong}]"),
            "3:13: `commands.a.empty` must be a list of exit codes from 1 to 255",
        );
    }
    check(
        "[commands.a]\nrun = ['x']\nevery = '1h'",
        "3:1: unknown key `commands.a.every`: it belongs in `[lanes.NAME]`",
    );
    check("[commands.'']\nrun = ['x']", "1:11: a command needs a name");
}

#[test]
fn services_that_could_never_run_are_mistakes() {
    check(
        "[lanes.shop]\n[services.a]\nget = '/path'\nlane = 'shop'",
        "3:7: `services.a.get` is a path, and the lane `shop` has no url: add `url` to the lane, or \
         write the whole URL here",
    );
    let shop = "[lanes.shop]\nurl = 'https://a.example/v1'\n[services.a]\nlane = 'shop'\n";
    let away = "`services.a.post` is not below the url of the lane `shop`: write a path below \
                it, or name another lane";
    for elsewhere in ["https://b.example/", "http://a.example/", "/../secret"] {
        check(&format!("{shop}post = '{elsewhere}'"), &format!("5:8: {away}"));
    }
    for there in ["https://a.example/v1/x", "/x?y=z"] {
        assert_eq!(right(&format!("{shop}post = '{there}'")).tools.services.services.len(), 1);
    }
    let host = "[lanes.'host:*']\n[services.a]\nget = 'https://a.example/'\nlane = ";
    check(
        &format!("{host}'host:b.example'"),
        "3:7: `services.a.get` does not belong to the lane `host:b.example`: its lane is \
         `host:a.example`",
    );
    assert_eq!(right(&format!("{host}'host:a.example'")).tools.services.services.len(), 1);
    check(
        &format!("{host}'host:*'"),
        "4:8: `services.a.lane`: `host:*` is a template: write the whole name of a lane, as \
         `host:NAME`",
    );
    check(
        "[lanes.'host:*']\n[services.a]\nget = '/path'\nlane = 'host:*'",
        "4:8: `services.a.lane`: `host:*` is a template: write the whole name of a lane, as \
         `host:NAME`",
    );
    check(
        "[services.a]\nget = '/path'\nlane = 'shop'",
        "3:8: `services.a.lane`: no lane named `shop`: add it as `[lanes.NAME]`, or leave it out",
    );
    check(
        "[services.a]\nrun = ['', 'x']",
        "2:7: `services.a.run` begins with an empty text: name a program there",
    );
}

#[test]
fn a_roster_that_runs_nothing_is_a_mistake() {
    let remedy = "`rosters.n` has no services: add `services = [\"NAME\"]`, or remove it";
    check("[rosters.n]\ncheck = '1h'", &format!("1:10: {remedy}"));
    check("[rosters.n]\nservices = []", &format!("2:12: {remedy}"));
    check(
        "[rosters.n]\nservices = 'a'",
        "2:12: `rosters.n.services` must be a list of services, but is a text",
    );
    check("[rosters.n]\nservices = [1]", "2:13: `rosters.n.services` must be a list of services");
}
