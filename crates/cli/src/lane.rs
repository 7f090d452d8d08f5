//! `paceline lane`: lanes shown, paused, resumed and reset.

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::Value;

use crate::client::{Client, part, with_client};
use crate::config::Config;
use crate::exit::Exit;
use crate::form::{Form, Format};
use crate::output::say;
use crate::table::{aligned, clock, items, joined, text};

/// Show, pause, resume and reset lanes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Lanes and their limits are set in the configuration: see `paceline config print`. These commands ask
the process that owns the store: `paceline serve`, or `paceline services run`. If none is running they
open the store themselves.

Exit codes: 0 done, 1 no such lane, 2 wrong usage, 75 the store is in use.";

#[derive(Debug, Subcommand)]
enum Command {
    /// List all lanes: when they open, their calls and their limits
    Ls {
        #[command(flatten)]
        format: Format,
    },
    /// Show the state and the rules of one lane
    Show(Which),
    /// Pause a lane: running calls go on, no new call starts
    Pause(Which),
    /// Resume a paused lane
    Resume(Which),
    /// End the cooldown and the slow-downs of a lane; its limits still apply
    Reset(Which),
}

#[derive(Debug, Args)]
struct Which {
    /// The name of the lane
    name: String,
    #[command(flatten)]
    format: Format,
}

/// Runs the command.
pub fn run(arguments: &Arguments, config: &Config) -> anyhow::Result<Exit> {
    with_client(config, async |client| match &arguments.command {
        Command::Ls { format } => list(client, format.form).await,
        Command::Show(which) => show(client, which).await,
        Command::Pause(which) => {
            steer(client, which, "pause", "is paused: `paceline lane resume` resumes it").await
        }
        Command::Resume(which) => steer(client, which, "resume", "is resumed").await,
        Command::Reset(which) => {
            steer(client, which, "reset", "is reset: its limits still apply").await
        }
    })
}

async fn list(client: &Client, form: Form) -> anyhow::Result<Exit> {
    let mut response = client.ask(Method::GET, "/lanes").await?;
    let lanes = match response["lanes"].take() {
        Value::Array(lanes) => lanes,
        _ => Vec::new(),
    };
    let none = lanes.is_empty();
    form.list("lanes", lanes, table)?;
    if none {
        say("no lanes yet: add `[lanes.NAME]`; a template makes its lanes on demand");
    }
    Ok(Exit::Done)
}

async fn show(client: &Client, which: &Which) -> anyhow::Result<Exit> {
    let lane = client.ask(Method::GET, &format!("/lanes/{}", part(&which.name))).await?;
    which.format.form.one(&lane, facts)?;
    Ok(Exit::Done)
}

async fn steer(client: &Client, which: &Which, verb: &str, result: &str) -> anyhow::Result<Exit> {
    let lane = client.ask(Method::POST, &format!("/lanes/{}/{verb}", part(&which.name))).await?;
    if which.format.form != Form::Table {
        which.format.form.one(&lane, facts)?;
    }
    say(format_args!("`{}` {result}", which.name));
    Ok(Exit::Done)
}

fn table(lanes: &[Value]) -> String {
    let head = ["LANE", "OPEN", "WHY", "IN-FLIGHT", "WAITING", "LIMITS", "COOLDOWN"];
    let mut rows = vec![head.map(String::from)];
    for lane in lanes {
        rows.push([
            text(&lane["name"]),
            opens(lane),
            text(&lane["why_closed"]),
            in_flight(lane),
            text(&lane["waiting"]),
            limits(lane),
            clock(&lane["cooldown_until"]),
        ]);
    }
    aligned(&rows)
}

fn opens(lane: &Value) -> String {
    match lane["why_closed"].as_str() {
        None => "now".to_string(),
        // The end of a pause, or of running calls, is not known in advance.
        Some("paused" | "busy") => "-".to_string(),
        Some(_) => clock(&lane["open_at"]),
    }
}

fn in_flight(lane: &Value) -> String {
    format!("{}/{}", lane["in_flight"], lane["rules"]["in_flight"])
}

fn limits(lane: &Value) -> String {
    let every = lane["rules"]["every"].as_str().map(|every| format!("every {every}"));
    let windows = items(&lane["limits"]).iter();
    let windows = windows.map(|it| format!("{} ({} used)", text(&it["limit"]), it["used"]));
    joined(every.into_iter().chain(windows))
}

fn gaps(rules: &Value) -> String {
    let gaps = rules["gaps"].as_object().into_iter().flatten();
    joined(gaps.map(|(priority, gap)| format!("{priority} {}", text(gap))))
}

fn fail_after(rules: &Value) -> String {
    let never = rules["fail_after"] == u32::MAX;
    if never { "never".to_string() } else { text(&rules["fail_after"]) }
}

fn facts(lane: &Value) -> String {
    let rules = &lane["rules"];
    let rows = [
        ("lane", text(&lane["name"])),
        ("open", opens(lane)),
        ("why", text(&lane["why_closed"])),
        ("paused", if lane["paused"] == true { "yes" } else { "no" }.to_string()),
        ("in flight", in_flight(lane)),
        ("waiting", text(&lane["waiting"])),
        ("waiting since", clock(&lane["oldest_at"])),
        ("limits", limits(lane)),
        ("gaps", gaps(rules)),
        ("slack", text(&rules["slack"])),
        ("cooldown", clock(&lane["cooldown_until"])),
        ("timeout", text(&rules["timeout"])),
        ("group", text(&rules["group"])),
        ("fail after", fail_after(rules)),
        ("max waiting", text(&rules["max_waiting"])),
    ];
    aligned(&rows.map(|(name, value)| [name.to_string(), value]))
}
