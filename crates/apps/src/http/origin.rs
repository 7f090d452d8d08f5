//! Origins: the scheme, host and port of a server.

use std::fmt;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use url::Url;

/// The longest host that is used unchanged in the name of a lane.
const LONGEST_HOST: usize = 180;

/// One server, as URLs name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The scheme.
    pub scheme: Scheme,
    /// The host name or address, as in a URL: IPv6 in brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The scheme of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// Unencrypted.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The default port.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

impl Origin {
    /// The server of a URL; `None` for schemes other than http and https.
    pub fn of(url: &Url) -> Option<Origin> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let host = url.host_str().filter(|host| !host.is_empty())?.to_string();
        Some(Origin { scheme, host, port: url.port().unwrap_or(scheme.default_port()) })
    }

    /// The lane of this server: `host:example.org` for https on the default port, else with the
    /// port.
    pub fn lane(&self) -> String {
        let host = if self.host.len() <= LONGEST_HOST {
            self.host.clone()
        } else {
            // Longer than the name of a lane may be: the beginning, and a hash that makes it
            // unique.
            let hash = Sha256::digest(&self.host);
            format!("{}~{}", &self.host[..LONGEST_HOST - 20], HEXLOWER.encode(&hash[..8]))
        };
        match self.port {
            443 => format!("host:{host}"),
            port => format!("host:{host}:{port}"),
        }
    }

    /// The value of a `host` header.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The host, without the brackets of IPv6 addresses.
    pub fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, lane: &str, authority: &str) {
        let origin = Origin::of(&Url::parse(url).expect("an address")).expect("a server");
        assert_eq!((origin.lane().as_str(), origin.authority().as_str()), (lane, authority));
    }

    #[test]
    fn scheme_host_and_port_make_a_lane() {
        check("https://Example.org/x", "host:example.org", "example.org");
        check("http://example.org/x", "host:example.org:80", "example.org");
        check("http://127.0.0.1:8080/", "host:127.0.0.1:8080", "127.0.0.1:8080");
        check("https://[::1]:8443/", "host:[::1]:8443", "[::1]:8443");
        let long = format!("{}.example", "a.".repeat(120));
        let lane = |host: &str| {
            Origin { scheme: Scheme::Https, host: host.to_string(), port: 8443 }.lane()
        };
        assert!(lane(&long).len() <= 200 && lane(&long) != lane(&format!("{long}x")));
        assert_eq!(Origin::of(&Url::parse("ftp://example.org/").expect("an address")), None);
    }
}
