//! `paceline config token`: makes a token, and its hash for the configuration.

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use paceline_core::check_name;
use paceline_server::digest;

use crate::daemon::new_token;
use crate::exit::Exit;
use crate::exit::Usage;
use crate::output::{data, say};

/// Make a token.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The name of the token in the configuration
    name: String,
    /// What the token allows
    #[arg(long, value_enum, default_value = "operate")]
    role: Role,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Role {
    /// Read only
    Read,
    /// Also submit and cancel jobs, use permits and the relay, pause lanes
    Operate,
    /// Also change limits and reset lanes
    Admin,
}

/// Runs the command. The token goes to stderr and nowhere else, so that `>> paceline.toml` keeps
/// only its hash.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let name = &arguments.name;
    check_name("token", name).map_err(|error| Usage(error.to_string()))?;
    let token = new_token()?;
    let role = arguments.role.to_possible_value().context("every role has a name")?;
    let bare = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if bare { name.clone() } else { serde_json::to_string(name)? };
    say("the token, shown only once; its hash goes into the configuration:");
    say(&token);
    data(&format!(
        "[tokens.{key}]\nsha256 = \"{}\"\nrole = \"{}\"\n",
        digest(&token),
        role.get_name()
    ))?;
    Ok(Exit::Done)
}
