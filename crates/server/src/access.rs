//! Access control: hosts, origins, tokens and roles.
//!
//! A browser sends requests that any page tells it to send, also to this machine. So a request must
//! name the daemon by an address or a configured host name, which defeats DNS rebinding, and must
//! not come from a page of another site.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::{Method, StatusCode, Uri};
use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use paceline_apps::api::{Caller, Problem, Role, TOKEN, shown};

/// A token as the daemon keeps it: a digest, from which the token cannot be recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The name of its owner.
    pub name: String,
    /// The SHA-256 of the token.
    pub sha256: [u8; 32],
    /// Its role.
    pub role: Role,
}

/// The SHA-256 of a token, in lower-case base16. Tokens are random and long: no salt, no
/// stretching.
pub fn digest(token: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(token.as_bytes()))
}

/// The clients that are admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The tokens. Without any, every client that can connect is an administrator.
    pub tokens: Vec<Token>,
    /// Host names of the daemon, besides IP addresses and `localhost`.
    pub hosts: Vec<String>,
}

impl Access {
    /// Identifies the caller of a request, or refuses it.
    pub(crate) fn admit(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller, Problem> {
        self.check_host(uri, headers)?;
        check_origin(headers)?;
        // Liveness and readiness are no secrets, and probes have no token.
        if matches!(uri.path(), "/livez" | "/readyz") {
            return Ok(Caller { name: "probe".into(), role: Role::Read, said_in: None });
        }
        let needed = needed(method, uri.path());
        let caller = self.caller(headers)?;
        if caller.role < needed {
            let (has, needs) = (caller.role.name(), needed.name());
            let detail = format!("the role of this token is `{has}`; this request needs `{needs}`");
            return Err(Problem::new(StatusCode::FORBIDDEN, "role", detail));
        }
        Ok(caller)
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let mut named = headers.get_all(HOST).iter();
        let host = match (named.next(), named.next(), uri.authority()) {
            (Some(host), None, _) => host.to_str().unwrap_or_default(),
            (None, None, Some(authority)) => authority.as_str(),
            _ => return Err(Problem::malformed("a request needs exactly one `Host` header")),
        };
        let name = bare(host);
        let known = name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name));
        if known {
            return Ok(());
        }
        let detail = format!(
            "`{}` is not a name of this daemon: use its address, or add the name to `server.hosts`",
            shown(name)
        );
        Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", detail))
    }

    fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.tokens.is_empty() {
            return Ok(Caller { name: "local".into(), role: Role::Admin, said_in: None });
        }
        for name in [TOKEN, AUTHORIZATION] {
            let Some(said) = headers.get(&name).and_then(|value| value.to_str().ok()) else {
                continue;
            };
            if let Some(token) = self.find(said) {
                let (owner, role) = (token.name.as_str().into(), token.role);
                return Ok(Caller { name: owner, role, said_in: Some(name) });
            }
        }
        let detail =
            "missing or invalid token: send `Authorization: Bearer TOKEN`, or `Paceline-Token`";
        Err(Problem::new(StatusCode::UNAUTHORIZED, "token", detail))
    }

    /// The token that a header holds, in any of its forms. All tokens are compared, each in
    /// constant time, so that timing reveals nothing.
    fn find(&self, said: &str) -> Option<&Token> {
        let given = match said.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim().into(),
            Some((scheme, login)) if scheme.eq_ignore_ascii_case("basic") => {
                let login = BASE64.decode(login.trim().as_bytes()).ok()?;
                // For clients that take only a URL: `http://TOKEN@host/to/...`.
                let text = String::from_utf8(login).ok()?;
                let (name, password) = text.split_once(':')?;
                if password.is_empty() { name.to_string() } else { password.to_string() }
            }
            Some(_) => return None,
            None => said.to_string(),
        };
        let hash: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.sha256.ct_eq(&hash)) {
                found = Some(token);
            }
        }
        found
    }
}

/// A host without its port and brackets.
fn bare(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Refuses requests that a page of another site made a browser send.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let mut foreign = matches!(site, Some(site) if site != "same-origin" && site != "none");
    if let Some(origin) = text(ORIGIN) {
        let host = text(HOST).unwrap_or_default();
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        foreign |= own.is_none_or(|own| !own.eq_ignore_ascii_case(host));
    }
    if foreign {
        let detail = "requests from pages of other sites are refused";
        return Err(Problem::new(StatusCode::FORBIDDEN, "cross_site", detail));
    }
    Ok(())
}

/// The role that a request needs.
fn needed(method: &Method, path: &str) -> Role {
    let api = path.strip_prefix("/api/v1").unwrap_or(path);
    let resets =
        api.ends_with("/reset") && (api.starts_with("/lanes/") || api.starts_with("/services/"));
    if path.starts_with("/to/") {
        Role::Operate
    } else if *method == Method::GET || *method == Method::HEAD {
        Role::Read
    } else if resets || *method == Method::PUT {
        Role::Admin
    } else {
        Role::Operate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(tokens: &[(&str, Role)]) -> Access {
        let token = |(said, role): &(&str, Role)| Token {
            name: (*said).to_string(),
            sha256: Sha256::digest(said.as_bytes()).into(),
            role: *role,
        };
        Access { tokens: tokens.iter().map(token).collect(), hosts: vec!["pace.example".into()] }
    }

    #[track_caller]
    fn check(access: &Access, what: &str, headers: &[(&'static str, &str)], expected: &str) {
        let (method, path) = what.split_once(' ').expect("a method and a path");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a value"));
        }
        let method = method.parse().expect("a method");
        let told = match access.admit(&method, &path.parse().expect("a path"), &map) {
            Ok(caller) => format!("{} {}", caller.name, caller.role.name()),
            Err(problem) => format!("{}", problem.status().as_u16()),
        };
        assert_eq!(told, expected, "{what} {headers:?}");
    }

    #[test]
    fn a_foreign_host_name_that_points_here_is_refused() {
        let open = access(&[]);
        for host in ["127.0.0.1:7400", "[::1]:7400", "localhost:7400", "LOCALHOST", "pace.example"]
        {
            check(&open, "GET /api/v1/lanes", &[("host", host)], "local admin");
        }
        for host in ["evil.example", "evil.example:7400", "127.0.0.1.evil.example", "", "[x]"] {
            check(&open, "GET /api/v1/lanes", &[("host", host)], "421");
        }
        check(&open, "GET /", &[], "400");
        check(&open, "GET /", &[("host", "localhost"), ("host", "evil.example")], "400");
    }

    #[test]
    fn requests_from_pages_of_other_sites_are_refused() {
        let (open, host) = (access(&[]), ("host", "127.0.0.1:7400"));
        let asks = |header| [host, header];
        for what in ["GET /to/shop/x", "POST /api/v1/jobs", "GET /api/v1/events"] {
            check(&open, what, &asks(("origin", "http://evil.example")), "403");
            check(&open, what, &asks(("origin", "null")), "403");
            check(&open, what, &asks(("origin", "http://127.0.0.1:9999")), "403");
            check(&open, what, &asks(("sec-fetch-site", "cross-site")), "403");
            check(&open, what, &asks(("sec-fetch-site", "same-site")), "403");
            check(&open, what, &asks(("origin", "http://127.0.0.1:7400")), "local admin");
            check(&open, what, &asks(("sec-fetch-site", "same-origin")), "local admin");
        }
    }

    #[test]
    fn a_token_allows_the_requests_of_its_role_and_no_others() {
        let access = access(&[("r", Role::Read), ("o", Role::Operate), ("a", Role::Admin)]);
        let with = |header| [("host", "localhost"), header];
        check(&access, "GET /api/v1/jobs", &[("host", "localhost")], "401");
        check(&access, "GET /api/v1/jobs", &with(("authorization", "Bearer x")), "401");
        check(&access, "GET /api/v1/jobs", &with(("authorization", "Bearer r")), "r read");
        check(&access, "GET /api/v1/jobs", &with(("paceline-token", "r")), "r read");
        check(&access, "GET /api/v1/jobs", &with(("authorization", "Basic cjo=")), "r read");
        check(&access, "GET /to/shop/x", &with(("paceline-token", "r")), "403");
        check(&access, "GET /to/shop/x", &with(("paceline-token", "o")), "o operate");
        check(&access, "POST /api/v1/jobs", &with(("paceline-token", "r")), "403");
        check(&access, "POST /api/v1/lanes/a/pause", &with(("paceline-token", "o")), "o operate");
        for admin in
            ["PUT /api/v1/lanes/a", "POST /api/v1/lanes/a/reset", "POST /api/v1/services/a/reset"]
        {
            check(&access, admin, &with(("paceline-token", "o")), "403");
            check(&access, admin, &with(("paceline-token", "a")), "a admin");
        }
    }
}
