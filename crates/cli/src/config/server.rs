//! The sections of the daemon: its address, its bounds, and the tokens that give access.

use std::net::{Ipv4Addr, SocketAddr};

use data_encoding::HEXLOWER_PERMISSIVE;
use paceline_apps::api::Role;
use paceline_core::{Span, check_name};
use paceline_server::Token;

use super::Config;
use super::document::{Notes, Section, shown};
use super::settings::{SIZE, SPAN, set};
use super::size::Size;

/// The most connections.
const MOST_CONNECTIONS: u32 = 1_000_000;
/// The most events.
const MOST_EVENTS: u32 = 100_000_000;
/// The largest body of a request that may be allowed.
const LARGEST_BODY: Size = Size(1 << 30);
/// The most tokens and names.
const MOST_NAMES: usize = 1_000;

/// The settings of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The address it listens on.
    pub listen: SocketAddr,
    /// How long running calls may take to finish at shutdown.
    pub grace: Span,
    /// Host names that requests may use.
    pub hosts: Vec<String>,
    /// The largest body of a request.
    pub max_body: Size,
    /// The most connections.
    pub connections: u32,
    /// The number of recent events that are kept.
    pub keep_events: u32,
    /// The tokens that give access; without any, every program on this machine has it.
    pub tokens: Vec<Token>,
}

impl ServerConfig {
    /// The largest body of a request, in bytes.
    pub(crate) fn max_body(&self) -> usize {
        usize::try_from(self.max_body.0).unwrap_or(usize::MAX)
    }
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            listen: (Ipv4Addr::LOCALHOST, 7400).into(),
            grace: Span::secs(30),
            hosts: Vec::new(),
            max_body: Size(8 << 20),
            connections: 16_384,
            keep_events: 100_000,
            tokens: Vec::new(),
        }
    }
}

/// Reads `[server]` and `[tokens.NAME]`.
pub(super) fn read_server(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    if let Some(section) = root.section("server", notes) {
        section.check_keys("server", notes);
        let server = &mut config.server;
        set(&mut server.listen, read_listen(&section, notes));
        set(&mut server.grace, section.parsed("grace", SPAN, notes));
        set(&mut server.connections, section.whole("connections", 1..=MOST_CONNECTIONS, notes));
        set(&mut server.keep_events, section.whole("keep_events", 1..=MOST_EVENTS, notes));
        let max_body: Option<Size> = section.parsed("max_body", SIZE, notes);
        if max_body.is_some_and(|size| size == Size(0) || size > LARGEST_BODY) {
            let what = format!("`server.max_body` must be above zero and at most {LARGEST_BODY}");
            notes.note(section.place("max_body"), what);
        }
        set(&mut server.max_body, max_body);
        server.hosts = read_hosts(&section, notes);
    }
    read_tokens(config, root, notes);
}

fn read_listen(section: &Section<'_>, notes: &mut Notes<'_>) -> Option<SocketAddr> {
    let what = "an address and port like \"127.0.0.1:7400\"";
    let text = section.text("listen", what, notes)?;
    let listen = text.parse::<SocketAddr>();
    if listen.is_err() {
        let what = format!("`server.listen`: `{}` is not {what}", shown(text));
        notes.note(section.place("listen"), what);
    }
    listen.ok()
}

fn read_hosts(section: &Section<'_>, notes: &mut Notes<'_>) -> Vec<String> {
    const WHAT: &str = "a list of names like [\"paceline.example.org\"], without ports";
    let Some(array) = section.array("hosts", WHAT, notes) else { return Vec::new() };
    let plain = |text: &&str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-')
    };
    let mut hosts = Vec::new();
    for value in array {
        if hosts.len() == MOST_NAMES {
            let what = format!("`server.hosts` has more than {MOST_NAMES} names");
            notes.note(value.span().start, what);
            break;
        }
        match value.get_ref().as_str().filter(plain) {
            Some(host) => hosts.push(host.to_string()),
            None => notes.note(value.span().start, format!("`server.hosts` must be {WHAT}")),
        }
    }
    hosts
}

fn read_tokens(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    let Some(tokens) = root.section("tokens", notes) else { return };
    for (name, at, _) in tokens.entries() {
        if notes.full() || config.server.tokens.len() == MOST_NAMES {
            notes.note(at, format!("`tokens` has more than {MOST_NAMES} entries"));
            return;
        }
        if let Err(error) = check_name("token", name) {
            notes.note(at, error.to_string());
        }
        let Some(section) = tokens.section(name, notes) else { continue };
        section.check_keys("tokens", notes);
        let sha256 = read_hash(at, &section, notes);
        let role = read_role(at, &section, notes);
        if let (Some(sha256), Some(role)) = (sha256, role) {
            config.server.tokens.push(Token { name: name.to_string(), sha256, role });
        }
    }
}

/// Reads `sha256`. It may hold the token itself by mistake, so no message repeats it.
fn read_hash(at: usize, section: &Section<'_>, notes: &mut Notes<'_>) -> Option<[u8; 32]> {
    let path = section.path_of("sha256");
    let wrong = format!(
        "`{path}` must be the SHA-256 of a token in 64 hex digits: `paceline config token NAME` makes a token and its SHA-256"
    );
    if section.value("sha256").is_none() {
        notes.note(at, wrong);
        return None;
    }
    let text = section.text("sha256", "a text", notes)?;
    let hash = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
    let hash = hash.and_then(|hash| <[u8; 32]>::try_from(hash).ok());
    if hash.is_none() {
        notes.note(section.place("sha256"), wrong);
    }
    hash
}

fn read_role(at: usize, section: &Section<'_>, notes: &mut Notes<'_>) -> Option<Role> {
    const WHAT: &str = "\"read\", \"operate\" or \"admin\"";
    let text = section.text("role", WHAT, notes);
    let role = Role::ALL.into_iter().find(|role| Some(role.name()) == text);
    if role.is_none() && (text.is_some() || section.value("role").is_none()) {
        let place = if text.is_some() { section.place("role") } else { at };
        notes.note(place, format!("`{}` must be {WHAT}", section.path_of("role")));
    }
    role
}
