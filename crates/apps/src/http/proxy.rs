//! Proxies from the environment.
//!
//! `hyper_util` has a matcher for the same variables. It ignores what it cannot parse and knows no
//! ports in `no_proxy`; here each mistake is an error that names its variable.

use std::fmt;

use hyper::header::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

use super::basic;

mod exempt;

use exempt::Exempt;

/// The longest variable that is read.
pub const LONGEST_VARIABLE: usize = 64 << 10;

/// The most hosts and networks without proxy.
pub const MOST_EXEMPT: usize = 1_000;

/// The proxies, and the requests that use them.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<Setting>,
    https: Option<Setting>,
    exempt: Vec<Exempt>,
}

/// An HTTP proxy. Its login never shows in text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
}

/// An invalid proxy. The error names the variable, but never shows a value that may hold a
/// password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Not an address.
    #[error("`{variable}` is not a proxy address: write it like `http://host:3128`")]
    Address {
        /// The variable.
        variable: &'static str,
    },
    /// A name that `Basic` cannot carry.
    #[error("`{variable}` has a user name with a colon, which HTTP cannot send")]
    Colon {
        /// The variable.
        variable: &'static str,
    },
    /// A proxy of another kind.
    #[error(
        "`{variable}` names a `{scheme}` proxy, but only `http` proxies are supported: \
         unset it, or list the host in `no_proxy`"
    )]
    Scheme {
        /// The variable.
        variable: &'static str,
        /// The kind.
        scheme: String,
    },
    /// An entry that would never match.
    #[error(
        "`{variable}` lists `{entry}`: write hosts, addresses, networks like `10.0.0.0/8` or `*`"
    )]
    Exempt {
        /// The variable.
        variable: &'static str,
        /// The entry, shortened.
        entry: String,
    },
    /// Too long, or too many entries.
    #[error("`{variable}` is too long: at most 64 KiB and 1000 hosts")]
    Long {
        /// The variable.
        variable: &'static str,
    },
}

/// The value of a variable. A proxy of another kind is an error only where it would be used.
#[derive(Clone, Debug)]
enum Setting {
    Proxy(Proxy),
    Unsupported { variable: &'static str, scheme: String },
}

impl Proxies {
    /// Reads the proxies from the environment; `get` looks up a variable.
    ///
    /// Lower-case names go first, and an empty variable means no proxy. `HTTP_PROXY` is ignored if
    /// `REQUEST_METHOD` is set: in a CGI program, a client's `Proxy` header becomes that variable.
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
        // Without a proxy, mistakes in its exceptions do not matter.
        let no_proxy =
            first(&["no_proxy", "NO_PROXY"]).filter(|_| http.is_some() || https.is_some());
        let exempt = no_proxy.map_or(Ok(Vec::new()), exempt)?;
        Ok(Proxies { http, https, exempt })
    }

    /// The proxy for a request to `url`; `None` for a direct connection.
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
    /// The host; IPv6 addresses have no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
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
            // Any other text may be a password with slashes in it.
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
    // A path or query is most likely part of a password that was not percent-encoded.
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
