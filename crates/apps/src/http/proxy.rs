//! Proxies from the environment.

use std::fmt;

use hyper::header::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

use super::basic;

mod exempt;

use exempt::Exempt;

/// The longest variable that is read.
pub const LONGEST_VARIABLE: usize = 64 << 10;

/// The most hosts and networks that may go without a proxy.
pub const MOST_EXEMPT: usize = 1_000;

/// Which requests go through which proxy.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<Setting>,
    https: Option<Setting>,
    exempt: Vec<Exempt>,
}

/// A proxy that speaks HTTP. What it is told as a login never shows in text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
}

/// Why a proxy cannot be used; it names the variable, never a value that may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// No address.
    #[error("`{variable}` is not a proxy address: write it like `http://host:3128`")]
    Address {
        /// Where it stands.
        variable: &'static str,
    },
    /// A name that `Basic` cannot carry.
    #[error("`{variable}` has a user name with a colon, which HTTP cannot send")]
    Colon {
        /// Where it stands.
        variable: &'static str,
    },
    /// A proxy of another kind.
    #[error(
        "`{variable}` names a `{scheme}` proxy, but only `http` proxies are supported: \
         unset it, or list the host in `no_proxy`"
    )]
    Scheme {
        /// Where it stands.
        variable: &'static str,
        /// Its kind.
        scheme: String,
    },
    /// An entry that would never match.
    #[error(
        "`{variable}` lists `{entry}`: write hosts, addresses, networks like `10.0.0.0/8` or `*`"
    )]
    Exempt {
        /// Where it stands.
        variable: &'static str,
        /// The entry, shortened.
        entry: String,
    },
    /// Too long, or too many entries.
    #[error("`{variable}` is too long: at most 64 KiB and 1000 hosts")]
    Long {
        /// Which one.
        variable: &'static str,
    },
}

/// What a variable says. Another kind of proxy is an error only where it would be used.
#[derive(Clone, Debug)]
enum Setting {
    Proxy(Proxy),
    Unsupported { variable: &'static str, scheme: String },
}

impl Proxies {
    /// What the environment says; `get` looks a variable up.
    ///
    /// Lower case goes first, and an empty variable means no proxy. `HTTP_PROXY` is not heard
    /// where `REQUEST_METHOD` is set: there, anybody's `Proxy` header becomes that variable.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Proxies, ProxyError> {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|&variable| Some((variable, get(variable)?)))
        };
        let all = first(&["all_proxy", "ALL_PROXY"]);
        let http = match get("REQUEST_METHOD") {
            Some(_) => first(&["http_proxy"]),
            None => first(&["http_proxy", "HTTP_PROXY"]),
        };
        let https = first(&["https_proxy", "HTTPS_PROXY"]);
        let http = http.or_else(|| all.clone()).map_or(Ok(None), setting)?;
        let https = https.or(all).map_or(Ok(None), setting)?;
        // Nobody is bothered about exceptions to no proxy at all.
        let no_proxy =
            first(&["no_proxy", "NO_PROXY"]).filter(|_| http.is_some() || https.is_some());
        let exempt = no_proxy.map_or(Ok(Vec::new()), exempt)?;
        Ok(Proxies { http, https, exempt })
    }

    /// The proxy for a request to `url`, `None` if it goes straight.
    pub fn of(&self, url: &Url) -> Result<Option<&Proxy>, ProxyError> {
        let setting = match url.scheme() {
            "http" => self.http.as_ref(),
            "https" => self.https.as_ref(),
            _ => None,
        };
        if self.exempt.iter().any(|exempt| exempt.covers(url)) {
            return Ok(None);
        }
        match setting {
            None => Ok(None),
            Some(Setting::Proxy(proxy)) => Ok(Some(proxy)),
            Some(Setting::Unsupported { variable, scheme }) => {
                Err(ProxyError::Scheme { variable, scheme: scheme.clone() })
            }
        }
    }
}

impl Proxy {
    /// Where it listens; an address of version 6 has no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// On which port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The value of a `Proxy-Authorization` header, marked as sensitive.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "http://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "http://{}:{}", self.host, self.port)
        }
    }
}

fn setting((variable, value): (&'static str, String)) -> Result<Option<Setting>, ProxyError> {
    let text = value.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() > LONGEST_VARIABLE {
        return Err(ProxyError::Long { variable });
    }
    match text.split_once("://") {
        Some((scheme, _)) if !scheme.eq_ignore_ascii_case("http") => {
            let known = ["https", "socks4", "socks4a", "socks5", "socks5h"];
            let scheme = known.into_iter().find(|known| scheme.eq_ignore_ascii_case(known));
            // Anything else may be a password with slashes in it.
            let scheme = scheme.ok_or(ProxyError::Address { variable })?.to_owned();
            Ok(Some(Setting::Unsupported { variable, scheme }))
        }
        Some(_) => Ok(Some(Setting::Proxy(proxy(variable, text)?))),
        None => Ok(Some(Setting::Proxy(proxy(variable, &format!("http://{text}"))?))),
    }
}

fn proxy(variable: &'static str, text: &str) -> Result<Proxy, ProxyError> {
    let address = || ProxyError::Address { variable };
    let url = Url::parse(text).map_err(|_| address())?;
    let host = match url.host().ok_or_else(address)? {
        url::Host::Domain(name) => name.to_owned(),
        url::Host::Ipv4(ip) => ip.to_string(),
        url::Host::Ipv6(ip) => ip.to_string(),
    };
    // A path or query is most likely a password with a sign that wants encoding.
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(address());
    }
    let name: Vec<u8> = percent_decode_str(url.username()).collect();
    if name.contains(&b':') {
        return Err(ProxyError::Colon { variable });
    }
    let password: Vec<u8> = percent_decode_str(url.password().unwrap_or("")).collect();
    let known = !name.is_empty() || !password.is_empty();
    let authorization = known.then(|| basic(&name, &password));
    let port = url.port_or_known_default().ok_or_else(address)?;
    Ok(Proxy { host, port, authorization })
}

fn exempt((variable, value): (&'static str, String)) -> Result<Vec<Exempt>, ProxyError> {
    if value.len() > LONGEST_VARIABLE {
        return Err(ProxyError::Long { variable });
    }
    let entries = value.split(|sign: char| sign == ',' || sign.is_whitespace());
    let entries = entries.filter(|entry| !entry.is_empty());
    let exempt: Vec<Exempt> = entries
        .map(|entry| {
            let shown = || entry.chars().take(64).flat_map(char::escape_debug).collect();
            Exempt::parse(entry).ok_or_else(|| ProxyError::Exempt { variable, entry: shown() })
        })
        .collect::<Result<_, _>>()?;
    if exempt.len() > MOST_EXEMPT { Err(ProxyError::Long { variable }) } else { Ok(exempt) }
}

#[cfg(test)]
mod tests;
