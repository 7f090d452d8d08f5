//! Every key, its default and its explanation: what is printed, suggested and known.

use crate::tools::Tools;

/// What a key is worth if nobody sets it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// This, as TOML.
    Default(&'static str),
    /// Nothing fixed; this is how it is written.
    Example(&'static str),
    /// Known, and refused with its own sentence.
    Later,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    pub(crate) says: &'static str,
}

/// One section: a table of keys, or a table of such tables by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    pub(crate) section: &'static str,
    /// For tables by name: the name in the example.
    pub(crate) example: Option<&'static str>,
    pub(crate) says: &'static str,
    pub(crate) keys: &'static [Key],
}

pub(crate) const fn default(name: &'static str, value: &'static str, says: &'static str) -> Key {
    Key { name, value: Value::Default(value), says }
}

pub(crate) const fn example(name: &'static str, value: &'static str, says: &'static str) -> Key {
    Key { name, value: Value::Example(value), says }
}

/// The keys of one section, which may be told in two parts.
pub(crate) fn keys_of(section: &str) -> Vec<&'static str> {
    let parts = sections().filter(|part| part.section == section);
    let mut names = Vec::new();
    for key in parts.flat_map(|part| part.keys) {
        if !names.contains(&key.name) {
            names.push(key.name);
        }
    }
    names
}

/// The names of all sections.
pub(crate) fn section_names() -> Vec<&'static str> {
    let mut names: Vec<_> = sections().map(|part| part.section).collect();
    names.dedup();
    names
}

/// The keys of a limit that is written as a table.
pub(crate) const LIMIT_KEYS: [&str; 3] = ["limit", "keep", "spread"];

/// All sections: those of the program, then those of the tools.
pub(crate) fn sections() -> impl Iterator<Item = &'static Reference> {
    SECTIONS.iter().chain(Tools::reference())
}

const SECTIONS: &[Reference] = &[
    Reference {
        section: "store",
        example: None,
        says: "Where promises survive.",
        keys: &[
            example(
                "path",
                r#""paceline.db""#,
                "The embedded store, relative to this file. Without it: paceline/paceline.db in the XDG state directory.",
            ),
            Key { name: "url", value: Value::Later, says: "" },
            default("keep_finished", r#""7d""#, "How long finished jobs can be asked about."),
        ],
    },
    Reference {
        section: "workers",
        example: None,
        says: "Workers. The first running call of each lane needs no slot of the pool, so that lanes which hang delay no other; an elastic pool of slots is for the calls beyond.",
        keys: &[
            default("base", "10", "Slots that are always there."),
            default("max", "20", "Slots at most."),
            default(
                "max_lanes",
                "1000",
                "Lanes at most that run anything at once: at most this and `max` calls run in all.",
            ),
            default(
                "interactive_reserve",
                "1",
                "Slots, and lanes of `max_lanes`, that stay free for interactive calls.",
            ),
            default(
                "lane_share",
                "0.5",
                "The part of `max` that one lane may hold beyond its first running call.",
            ),
            default(
                "step",
                r#""1s""#,
                "The pool grows and shrinks by one worker per this; \"0s\" means at once.",
            ),
            default(
                "grow_at",
                "0.6",
                "How full the queue, or its fullest lane, is when the pool grows.",
            ),
            default(
                "shrink_at",
                "0.4",
                "How full the queue and each of its lanes are at most when the pool shrinks.",
            ),
            default(
                "across_lanes",
                r#""oldest""#,
                "Which lane goes first among equals: \"oldest\" call, or \"turns\" for the lane that started longest ago.",
            ),
        ],
    },
    Reference {
        section: "queue",
        example: None,
        says: "What may wait.",
        keys: &[
            default(
                "max_waiting",
                "200000",
                "Waiting calls at most in all; beyond it a submission is refused, with the moment to try again where one is known. A tenth is kept for interactive work.",
            ),
            default(
                "lane_waiting",
                "10000",
                "Waiting calls at most on one lane, unless the lane says it itself. A lane that is full refuses its own work and no other lane's. A tenth is kept for interactive work.",
            ),
            default(
                "age_after",
                r#""5m""#,
                "A waiting call ranks one priority higher after each of these.",
            ),
            default("max_payload", r#""1MiB""#, "The largest payload or value of a job."),
            default("max_lanes", "10000", "Lanes at most, those that templates make included."),
        ],
    },
    Reference {
        section: "cache",
        example: None,
        says: "Answers that are remembered. Errors never are.",
        keys: &[
            default("found_for", r#""7d""#, "How long an answer with something in it is good."),
            default("empty_for", r#""1d""#, "How long an empty answer is good."),
            default("memory", r#""64MiB""#, "Memory for answers, in front of the store."),
        ],
    },
    Reference {
        section: "server",
        example: None,
        says: "The daemon, `paceline serve`; `max_body` and `keep_events` hold for `services run` too.",
        keys: &[
            default(
                "listen",
                r#""127.0.0.1:7400""#,
                "The address and port it listens on. Any other than this machine's own needs tokens.",
            ),
            default("grace", r#""30s""#, "How long running calls may take when it stops."),
            default(
                "hosts",
                "[]",
                "Names, beside addresses and localhost, under which it is reached.",
            ),
            default(
                "max_body",
                r#""8MiB""#,
                "The largest body of a request. All together have room for eight such.",
            ),
            default("connections", "16384", "Connections at once."),
            default(
                "keep_events",
                "100000",
                "Events that are kept at least, for those who come back and ask what they missed.",
            ),
        ],
    },
    Reference {
        section: "tokens",
        example: Some("example"),
        says: "Who may ask the daemon for what. Without any: everybody on this machine, everything. `paceline config token NAME` makes one.",
        keys: &[
            example(
                "sha256",
                r#""9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08""#,
                "The SHA-256 of the token, which itself stands nowhere.",
            ),
            example(
                "role",
                r#""operate""#,
                "\"read\" looks; \"operate\" also submits, cancels, uses permits and the relay, pauses lanes; \"admin\" also changes limits and resets.",
            ),
        ],
    },
    Reference {
        section: "lanes",
        example: Some("example"),
        says: "One outside service and its limits. A name that ends in `*`, as in [lanes.\"host:*\"], is a template: lanes whose names begin so are made on demand.",
        keys: &[
            example("url", r#""https://api.example.org""#, "Where the service is."),
            example(
                "headers",
                r#"{ authorization = { env = "TOKEN", prefix = "Bearer " }, x-key = { file = "key.txt" } }"#,
                "What its requests are told: a text, or for secrets, which are never shown, where it is found.",
            ),
            default(
                "private",
                "false",
                "Whether a url that is a name may lead into a private network.",
            ),
            example("every", r#""1s""#, "The gap between calls. Without it: none."),
            example(
                "limits",
                r#"["50/s", { limit = "1000/d", keep = { interactive = 0.2 }, spread = true }]"#,
                "Calls per window, exact however the window is placed. `keep` leaves a share to that priority and higher ones; `spread` adds an even gap. Without it: none.",
            ),
            default("in_flight", "1", "Calls at once."),
            default(
                "gap_from",
                r#""start""#,
                "Where the gap is measured from: the \"start\" or the \"finish\" of the call before.",
            ),
            default(
                "gap_share",
                "{ interactive = 1.0, rss = 1.0, completion = 1.0, background = 1.0 }",
                "The part of the gap that a call of each priority needs: where an upstream tolerates urgent calls closer together, for example { interactive = 0.1, rss = 0.5, completion = 0.7 }.",
            ),
            example(
                "slack",
                r#""10ms""#,
                "How much longer one call may be on its way to the service than another: gaps and windows are longer by this, so that they hold where calls arrive and not only where they start. Without it: 2ms, or a 500th of the shortest window or gap if that is less.",
            ),
            example(
                "timeout",
                r#""30s""#,
                "How long one attempt may take. Without it: as the tool decides.",
            ),
            example("group", r#""example""#, "The group whose limits hold too."),
            default(
                "fail_after",
                "5",
                "Failures in a row after which the lane rests, longer each time.",
            ),
            example(
                "max_waiting",
                "500",
                "Calls that may wait on this lane. Without it: `queue.lane_waiting`.",
            ),
        ],
    },
    Reference {
        section: "groups",
        example: Some("example"),
        says: "Limits that several lanes share. A call needs both to be open.",
        keys: &[
            example(
                "every",
                r#""200ms""#,
                "The gap between calls of any of its lanes, at any priority.",
            ),
            example("limits", r#"["3/s"]"#, "Calls per window over all its lanes."),
            example("in_flight", "4", "Calls at once over all its lanes."),
        ],
    },
];
