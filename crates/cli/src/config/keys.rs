//! Every key with its default and its explanation: the source of the reference, of suggestions and
//! of the check for unknown keys.

use crate::tools::Tools;

/// The value of a key that is not set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// A default, as TOML.
    Default(&'static str),
    /// No default; an example, as TOML.
    Example(&'static str),
    /// The key is recognised, and refused with a message of its own.
    Unsupported,
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

/// The keys of one section, which the reference may explain in several parts.
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
        says: "The store, which survives restarts and crashes.",
        keys: &[
            example(
                "path",
                r#""paceline.db""#,
                "The file of the store, relative to this file. Default: paceline/paceline.db in the XDG state directory.",
            ),
            Key { name: "url", value: Value::Unsupported, says: "" },
            default(
                "keep_finished",
                r#""7d""#,
                "How long finished jobs and their reports are kept.",
            ),
        ],
    },
    Reference {
        section: "workers",
        example: None,
        says: "The pool of slots for running calls. The first running call of each lane needs no slot, so that a lane that hangs delays no other lane. Further calls of a lane need a slot of the pool, which grows and shrinks with the load.",
        keys: &[
            default("base", "10", "Slots at least."),
            default("max", "20", "Slots at most."),
            default(
                "max_lanes",
                "1000",
                "Lanes with running calls at most. At most `max_lanes` + `max` calls run at once.",
            ),
            default(
                "interactive_reserve",
                "1",
                "Slots, and lanes of `max_lanes`, that are reserved for interactive calls.",
            ),
            default(
                "lane_share",
                "0.5",
                "The share of `max` that one lane may hold beyond its first running call.",
            ),
            default(
                "step",
                r#""1s""#,
                "The pool grows or shrinks by at most one slot in this time; \"0s\" means without delay.",
            ),
            default(
                "grow_at",
                "0.6",
                "The pool grows when the queue, or its fullest lane, is at least this full.",
            ),
            default(
                "shrink_at",
                "0.4",
                "The pool shrinks when the queue and each of its lanes are at most this full.",
            ),
            default(
                "across_lanes",
                r#""oldest""#,
                "The order of lanes whose calls have the same priority: \"oldest\" starts the oldest call first, \"turns\" the lane whose last start is longest ago.",
            ),
        ],
    },
    Reference {
        section: "queue",
        example: None,
        says: "Limits of the queue of waiting calls.",
        keys: &[
            default(
                "max_waiting",
                "200000",
                "Waiting calls at most, over all lanes. Beyond that a submission is refused, with the time to try again if it can be predicted. A tenth is reserved for interactive calls.",
            ),
            default(
                "lane_waiting",
                "10000",
                "Waiting calls at most on one lane, unless the lane sets `max_waiting`. A full lane refuses only its own calls. A tenth is reserved for interactive calls.",
            ),
            default(
                "age_after",
                r#""5m""#,
                "A waiting call ranks one priority higher each time this much time has passed.",
            ),
            default(
                "max_payload",
                r#""1MiB""#,
                "The largest payload of a job, and the largest value that a worker returns.",
            ),
            default("max_lanes", "10000", "Lanes at most, including those that templates make."),
        ],
    },
    Reference {
        section: "cache",
        example: None,
        says: "The cache of answers. Errors are never cached.",
        keys: &[
            default("found_for", r#""7d""#, "How long an answer that found something is reused."),
            default("empty_for", r#""1d""#, "How long an empty answer is reused."),
            default("memory", r#""64MiB""#, "Memory for cached answers, in front of the store."),
        ],
    },
    Reference {
        section: "server",
        example: None,
        says: "The daemon, `paceline serve`. `max_body` and `keep_events` apply to `services run` too.",
        keys: &[
            default(
                "listen",
                r#""127.0.0.1:7400""#,
                "The address and port to listen on. An address that other machines can reach needs tokens.",
            ),
            default("grace", r#""30s""#, "How long running calls may take to finish at shutdown."),
            default(
                "hosts",
                "[]",
                "Host names that requests may use, besides addresses and localhost.",
            ),
            default(
                "max_body",
                r#""8MiB""#,
                "The largest body of a request. The bodies of all requests together may be eight times as large.",
            ),
            default("connections", "16384", "Connections at most."),
            default(
                "keep_events",
                "100000",
                "Recent events that are kept at least, for subscribers that reconnect.",
            ),
        ],
    },
    Reference {
        section: "tokens",
        example: Some("example"),
        says: "Access to the daemon. Without tokens every program on this machine may do everything. `paceline config token NAME` makes a token.",
        keys: &[
            example(
                "sha256",
                r#""9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08""#,
                "The SHA-256 of the token. The token itself is not stored.",
            ),
            example(
                "role",
                r#""operate""#,
                "\"read\" may only read; \"operate\" may also submit and cancel jobs, use permits and the relay, and pause lanes; \"admin\" may also change limits and reset lanes.",
            ),
        ],
    },
    Reference {
        section: "lanes",
        example: Some("example"),
        says: "One upstream and its limits. A name that ends in `*`, as in [lanes.\"host:*\"], is a template: a lane whose name starts with the part before the `*` is made on demand.",
        keys: &[
            example("url", r#""https://api.example.org""#, "The base URL of the upstream."),
            example(
                "headers",
                r#"{ authorization = { env = "TOKEN", prefix = "Bearer " }, x-key = { file = "key.txt" } }"#,
                "Headers of its requests. A value is a text, or, for a secret, the variable or file that holds it. Secrets are never shown.",
            ),
            default(
                "private",
                "false",
                "Allow a url whose host name resolves to an address of a private network.",
            ),
            example("every", r#""1s""#, "The shortest gap between two calls. Default: none."),
            example(
                "limits",
                r#"["50/s", { limit = "1000/d", keep = { interactive = 0.2 }, spread = true }]"#,
                "Calls per window. No window of that length ever holds more calls, wherever it begins. `keep` reserves a share for that priority and higher ones; `spread` also spaces the calls evenly. Default: none.",
            ),
            default("in_flight", "1", "Calls that may run at once."),
            default(
                "gap_from",
                r#""start""#,
                "Measure the gap from the \"start\" or the \"finish\" of the previous call.",
            ),
            default(
                "gap_share",
                "{ interactive = 1.0, rss = 1.0, completion = 1.0, background = 1.0 }",
                "The share of the gap that a call of each priority keeps. Lower it if the upstream tolerates urgent calls closer together, for example { interactive = 0.1, rss = 0.5, completion = 0.7 }.",
            ),
            example(
                "slack",
                r#""10ms""#,
                "Network jitter to allow for. Added to every gap and window, so that limits hold where requests arrive, not only where they start. Default: 2ms, or a 500th of the shortest window or gap if that is less.",
            ),
            example(
                "timeout",
                r#""30s""#,
                "How long one attempt may take. Default: the tool's own.",
            ),
            example("group", r#""example""#, "The group whose limits apply as well."),
            default(
                "fail_after",
                "5",
                "Failures in a row before the lane cools down, longer each time.",
            ),
            example(
                "max_waiting",
                "500",
                "Waiting calls at most on this lane. Default: `queue.lane_waiting`.",
            ),
        ],
    },
    Reference {
        section: "groups",
        example: Some("example"),
        says: "Limits that several lanes share. A call starts only when its lane and its group allow it.",
        keys: &[
            example(
                "every",
                r#""200ms""#,
                "The shortest gap between two calls of any of its lanes, at any priority.",
            ),
            example("limits", r#"["3/s"]"#, "Calls per window over all its lanes."),
            example("in_flight", "4", "Calls that may run at once over all its lanes."),
        ],
    },
];
