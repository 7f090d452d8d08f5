//! The sections of services and rosters.

use jiff::tz::TimeZone;
use paceline::services::{Roster, Service};
use paceline_apps::http::Origin;
use paceline_apps::request::{Endpoints, Expect, PayloadError, RequestPayload, Sign};
use paceline_apps::services::{Act, Payload, Task};
use paceline_core::{Cron, MOST_SERVICES, Span, check_name};
use url::Url;

use super::Settings;
use crate::config::Config;
use crate::config::document::{Notes, Section, shown};
use crate::config::keys::{Reference, default, example};
use crate::config::nearest::nearest;
use crate::config::program::{is_empty, read_program, read_texts};
use crate::config::settings::above_zero;

/// Every key, its default and its explanation.
pub(super) const REFERENCE: &[Reference] = &[
    Reference {
        section: "services",
        example: Some("example"),
        says: "A service: work that comes again. It says when it is due, and a roster runs it. See `paceline services`.",
        keys: &[
            example(
                "run",
                r#"["./crawl.sh", "--fast"]"#,
                "The program and its arguments, run in the directory of this file, without input. It gets a process group of its own, which is ended with it.",
            ),
            example(
                "every",
                r#""24h""#,
                "The interval from its last success until it is due. Default: it is due at every check of its roster.",
            ),
            example(
                "lane",
                r#""example""#,
                "The lane whose limits it keeps. Default: a lane of its own, so that it never runs twice at once.",
            ),
            default("timeout", r#""1h""#, "How long one attempt may take before it is ended."),
            default("retries", "0", "Retries of a run that fails."),
        ],
    },
    Reference {
        section: "services",
        example: Some("by_cron"),
        says: "A service that sends a request instead of running a program, and that is due by the clock.",
        keys: &[
            example(
                "get",
                r#""https://example.org/feed""#,
                "The URL to request, or a path below the url of its lane. A redirect to another server is followed only on a lane of that server.",
            ),
            example(
                "cron",
                r#""0 3 * * mon-fri""#,
                "Minute, hour, day of the month, month, day of the week. If daylight saving skips a fixed time, the service is due right after it; if it repeats one, the service is due once.",
            ),
            example(
                "tz",
                r#""Europe/Sofia""#,
                "The time zone of `cron`. Default: the time zone of the system.",
            ),
        ],
    },
    Reference {
        section: "services",
        example: Some("hook"),
        says: "A service that sends a POST.",
        keys: &[example(
            "post",
            r#""https://example.org/hook""#,
            "Like `get`, with the method POST.",
        )],
    },
    Reference {
        section: "rosters",
        example: Some("example"),
        says: "A list of services. At each check, those that are due run one after another.",
        keys: &[
            default(
                "check",
                r#""1m""#,
                "The time from the end of one check to the next. It does not set how often a service runs.",
            ),
            example(
                "services",
                r#"["example", "by_cron"]"#,
                "The services it runs, in this order.",
            ),
        ],
    },
];

/// The most retries of one run.
const MOST_RETRIES: u32 = 1_000;

/// One service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// Its name.
    pub name: String,
    /// When it is due.
    pub when: WhenConfig,
    /// The lane that paces it.
    pub lane: Option<String>,
    /// Retries of a run that fails.
    pub retries: u16,
    /// Its program or request.
    pub task: Task,
}

/// When a service is due, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhenConfig {
    /// At every check of its roster.
    EveryCheck,
    /// This long after its last success.
    Every(Span),
    /// At the times of a cron expression in a time zone.
    Cron(String, TimeZone),
}

/// One roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterConfig {
    /// Its name.
    pub name: String,
    /// The time between two checks.
    pub check: Span,
    /// The services it runs, in this order.
    pub services: Vec<String>,
}

impl ServiceConfig {
    /// Its description for the engine.
    pub fn service(&self) -> Service {
        let service = Service::new(&self.name, &Payload { service: self.name.clone(), ask: None });
        let service = match &self.when {
            WhenConfig::EveryCheck => service,
            WhenConfig::Every(interval) => service.every(*interval),
            WhenConfig::Cron(text, zone) => service.cron(text, zone.clone()),
        };
        let service = service.retries(self.retries);
        match &self.lane {
            Some(lane) => service.lane(lane),
            None => service,
        }
    }
}

impl RosterConfig {
    /// Its description for the engine.
    pub fn roster(&self) -> Roster {
        Roster::new(&self.name, &self.services).check(self.check)
    }
}

/// Reads `[services.NAME]`. Lanes have been read.
pub(super) fn read_services(
    settings: &mut Settings,
    config: &Config,
    root: &Section<'_>,
    notes: &mut Notes<'_>,
) {
    let Some(services) = root.section("services", notes) else { return };
    let endpoints = Endpoints::default();
    endpoints.add(config.addresses());
    for (name, at, _) in services.entries() {
        if notes.full() {
            return;
        }
        if let Err(error) = check_name("service", name) {
            notes.note(at, error.to_string());
        }
        if settings.services.len() == MOST_SERVICES {
            notes.note(
                at,
                format!("the service `{}` exceeds the limit of {MOST_SERVICES}", shown(name)),
            );
            return;
        }
        if let Some(section) = services.section(name, notes)
            && let Some(service) = read_service(name, at, &section, config, notes)
        {
            check_ask(&service, &section, &endpoints, notes);
            settings.services.push(service);
        }
    }
}

fn read_service(
    name: &str,
    at: usize,
    section: &Section<'_>,
    config: &Config,
    notes: &mut Notes<'_>,
) -> Option<ServiceConfig> {
    section.check_keys("services", notes);
    let act = read_act(at, section, notes);
    let timeout = above_zero(section, "timeout", "no run could finish in it", notes);
    let timeout = timeout.or_else(|| {
        let lane = section.value("lane")?.get_ref().as_str()?;
        config.lanes.iter().find(|it| it.name == lane)?.limits.timeout
    });
    let retries = section.whole("retries", 0..=MOST_RETRIES, notes).unwrap_or(0);
    let when = read_when(section, notes);
    let lane = read_lane(section, config, notes);
    Some(ServiceConfig {
        name: name.to_string(),
        when,
        lane,
        retries: u16::try_from(retries).unwrap_or(u16::MAX),
        task: Task { act: act?, timeout: timeout.unwrap_or(Span::hours(1)).into() },
    })
}

/// The action of a run: a program or a request, not both.
fn read_act(at: usize, section: &Section<'_>, notes: &mut Notes<'_>) -> Option<Act> {
    let keys: Vec<&str> =
        ["run", "get", "post"].into_iter().filter(|key| section.value(key).is_some()).collect();
    let path = section.path();
    match keys[..] {
        [] => {
            let what = format!(
                "`{path}` has nothing to run: add `run = [\"program\"]` or `get = \"https://...\"`"
            );
            notes.note(at, what);
            None
        }
        ["run"] => read_program(section, notes).map(Act::Run),
        [key] => read_request(key, section, notes).map(|ask| Act::Request(Box::new(ask))),
        [_, second, ..] => {
            let what = format!("`{path}` has {}: keep one of them", keys.join(" and "));
            notes.note(section.place(second), what);
            None
        }
    }
}

/// `get` and `post`: an address, or a path below the url of the lane.
fn read_request(
    key: &'static str,
    section: &Section<'_>,
    notes: &mut Notes<'_>,
) -> Option<RequestPayload> {
    const WHAT: &str = "an http or https address, or a path on a lane that has a url";
    let text = section.text(key, WHAT, notes)?;
    let method = Some(key.to_ascii_uppercase());
    // A status of 4xx fails the run: a feed that is gone must not pass as a success.
    let expect = Expect { failed: vec![Sign::hundred(4), Sign::hundred(5)], ..Expect::default() };
    if text.starts_with('/') && section.value("lane").is_some() {
        return Some(RequestPayload {
            method,
            expect,
            path: Some(text.to_string()),
            ..RequestPayload::default()
        });
    }
    let url = Url::parse(text).ok().filter(|url| {
        let plain = url.username().is_empty() && url.password().is_none();
        plain && Origin::of(url).is_some()
    });
    if url.is_none() {
        let what = format!("`{}` must be {WHAT}, without a user or password", section.path_of(key));
        notes.note(section.place(key), what);
    }
    Some(RequestPayload {
        method,
        expect,
        url: Some(url?.to_string()),
        ..RequestPayload::default()
    })
}

/// Notes a request that its lane would refuse at every run. An unknown lane was noted before.
fn check_ask(
    service: &ServiceConfig,
    section: &Section<'_>,
    endpoints: &Endpoints,
    notes: &mut Notes<'_>,
) {
    let (Some(lane), Act::Request(ask)) = (&service.lane, &service.task.act) else { return };
    if endpoints.of(lane).is_none() {
        return;
    }
    let Err(error) = endpoints.check(lane, ask) else { return };
    let key = if section.value("get").is_some() { "get" } else { "post" };
    let (path, lane) = (section.path_of(key), shown(lane));
    let what = match error {
        PayloadError::NoUrl(_) => format!(
            "`{path}` is a path, and the lane `{lane}` has no url: add `url` to the lane, or write \
             the whole URL here"
        ),
        PayloadError::Elsewhere(_) => format!(
            "`{path}` is not below the url of the lane `{lane}`: write a path below it, or name \
             another lane"
        ),
        PayloadError::OtherLane(_, own) => {
            format!("`{path}` does not belong to the lane `{lane}`: its lane is `{}`", shown(&own))
        }
        other => format!("`{path}`: {other}"),
    };
    notes.note(section.place(key), what);
}

fn read_when(section: &Section<'_>, notes: &mut Notes<'_>) -> WhenConfig {
    const EVERY: &str = "leave it out to be due at every check of the roster";
    let every = above_zero(section, "every", EVERY, notes);
    let zone = read_zone(section, notes);
    let Some(text) = section.text("cron", "a cron expression like \"0 3 * * mon-fri\"", notes)
    else {
        if section.value("tz").is_some() {
            let what = format!("`{}` has no effect without `cron`", section.path_of("tz"));
            notes.note(section.place("tz"), what);
        }
        return every.map_or(WhenConfig::EveryCheck, WhenConfig::Every);
    };
    if section.value("every").is_some() {
        let what = format!("`{}` has `every` and `cron`: keep one of them", section.path());
        notes.note(section.place("cron"), what);
    }
    let zone = zone.unwrap_or_else(TimeZone::system);
    if let Err(error) = Cron::new(text, zone.clone()) {
        notes.note(section.place("cron"), format!("`{}`: {error}", section.path_of("cron")));
    }
    WhenConfig::Cron(text.to_string(), zone)
}

fn read_zone(section: &Section<'_>, notes: &mut Notes<'_>) -> Option<TimeZone> {
    let name = section.text("tz", "a time zone like \"Europe/Sofia\"", notes)?;
    let zone = TimeZone::get(name).ok();
    if zone.is_none() {
        let (path, name) = (section.path_of("tz"), shown(name));
        let what = format!("`{path}`: no time zone named `{name}`: write it like `Europe/Sofia`");
        notes.note(section.place("tz"), what);
    }
    zone
}

fn read_lane(section: &Section<'_>, config: &Config, notes: &mut Notes<'_>) -> Option<String> {
    let name = section.text("lane", "the name of a lane", notes)?;
    if let Some(prefix) = name.strip_suffix('*') {
        let (path, prefix) = (section.path_of("lane"), shown(prefix));
        let what = format!(
            "`{path}`: `{prefix}*` is a template: write the whole name of a lane, as `{prefix}NAME`"
        );
        notes.note(section.place("lane"), what);
        return None;
    }
    let covers = |lane: &str| match lane.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => lane == name,
    };
    if !config.lanes.iter().any(|lane| covers(&lane.name)) {
        let hint = match nearest(name, config.lanes.iter().map(|lane| lane.name.as_str())) {
            Some(meant) => format!("did you mean `{}`?", shown(meant)),
            None => "add it as `[lanes.NAME]`, or leave it out".to_string(),
        };
        let what =
            format!("`{}`: no lane named `{}`: {hint}", section.path_of("lane"), shown(name));
        notes.note(section.place("lane"), what);
    }
    Some(name.to_string())
}

/// Reads `[rosters.NAME]`. Services have been read.
pub(super) fn read_rosters(settings: &mut Settings, root: &Section<'_>, notes: &mut Notes<'_>) {
    let Some(rosters) = root.section("rosters", notes) else { return };
    for (name, at, _) in rosters.entries() {
        if notes.full() {
            return;
        }
        if let Err(error) = check_name("roster", name) {
            notes.note(at, error.to_string());
        }
        if settings.rosters.len() == MOST_SERVICES {
            notes.note(
                at,
                format!("the roster `{}` exceeds the limit of {MOST_SERVICES}", shown(name)),
            );
            return;
        }
        let Some(section) = rosters.section(name, notes) else { continue };
        section.check_keys("rosters", notes);
        let check = above_zero(&section, "check", "checks would never pause", notes);
        let services = read_list(at, &section, root, notes);
        let check = check.unwrap_or(Span::mins(1));
        if check < paceline::services::SHORTEST_CHECK {
            let (path, shortest) = (section.path_of("check"), paceline::services::SHORTEST_CHECK);
            notes.note(section.place("check"), format!("`{path}` is shorter than {shortest}"));
        }
        settings.rosters.push(RosterConfig { name: name.to_string(), check, services });
    }
}

/// The services of a roster. Each must be configured.
fn read_list(
    at: usize,
    section: &Section<'_>,
    root: &Section<'_>,
    notes: &mut Notes<'_>,
) -> Vec<String> {
    const REMEDY: &str = "has no services: add `services = [\"NAME\"]`, or remove it";
    if section.value("services").is_none() {
        notes.note(at, format!("`{}` {REMEDY}", section.path()));
    } else if is_empty(section, "services") {
        notes.note(section.place("services"), format!("`{}` {REMEDY}", section.path()));
    }
    let services = read_texts(section, "services", "a list of services", notes).unwrap_or_default();
    // A service with a mistake was noted before.
    let known = root.section("services", notes).map(|services| services.entries());
    let known: Vec<&str> = known.iter().flatten().map(|(name, _, _)| *name).collect();
    let at = section.place("services");
    let path = section.path_of("services");
    for (place, service) in services.iter().enumerate() {
        if services[..place].contains(service) {
            notes.note(at, format!("`{path}`: `{}` is listed twice", shown(service)));
        } else if !known.contains(&service.as_str()) {
            let hint = match nearest(service, known.iter().copied()) {
                Some(meant) => format!("did you mean `{}`?", shown(meant)),
                None => "add it as `[services.NAME]`".to_string(),
            };
            let what = format!("`{path}`: no service named `{}`: {hint}", shown(service));
            notes.note(at, what);
        }
    }
    services
}
