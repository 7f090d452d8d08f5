//! Cookies from a file, in the form that curl and browsers export.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderValue;
use url::{Host, Url};

/// The largest file that is read.
pub const LARGEST_FILE: usize = 16 << 20;

/// The most cookies of one file.
pub const MOST_COOKIES: usize = 50_000;

/// The longest `Cookie` header; servers refuse longer ones. Cookies that do not fit are left out.
pub const LONGEST_HEADER: usize = 8 << 10;

/// The prefix of lines with HTTP-only cookies.
const HTTP_ONLY: &[u8] = b"#HttpOnly_";

/// The cookies of one file. No value ever shows in text.
#[derive(Default)]
pub struct Jar {
    /// By domain without leading dot, as URLs write it; then by path and name.
    domains: BTreeMap<String, BTreeMap<PathAndName, Cookie>>,
    cookies: usize,
}

/// An error in a cookie file. It names the line, but never shows its contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{file}`, line {line}: {wrong}")]
pub struct CookieError {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub wrong: WrongCookie,
}

/// The errors of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongCookie {
    /// Not seven fields.
    #[error("not seven fields with tabs between them: export it as a Netscape `cookies.txt`")]
    Fields,
    /// No host.
    #[error("the first field is not a host")]
    Domain,
    /// Not TRUE or FALSE.
    #[error("the second and fourth fields must be `TRUE` or `FALSE`")]
    Flag,
    /// Not a time.
    #[error("the fifth field is not a time: write seconds since 1970, or 0 for a session cookie")]
    Expiry,
    /// A name or value that would break the header.
    #[error("the name or value has a character that cookies cannot contain")]
    Sign,
    /// Too long.
    #[error("the cookie is longer than 8 KiB, which no server takes")]
    Long,
    /// Too many.
    #[error("more than 50000 cookies: keep only those of the hosts you fetch from")]
    Many,
    /// Too large.
    #[error("the file is larger than 16 MiB: keep only the cookies of the hosts you fetch from")]
    Large,
}

type PathAndName = (Box<str>, Box<[u8]>);

struct Cookie {
    line: usize,
    reach: Reach,
    path: Box<str>,
    channel: Channel,
    expires_at: Option<SystemTime>,
    name: Box<[u8]>,
    value: Box<[u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Host,
    Subdomains,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Channel {
    Any,
    Secure,
}

impl Jar {
    /// The cookies of a file; `source` names it in errors.
    pub fn parse(text: &[u8], source: &str) -> Result<Jar, CookieError> {
        let error = |line, wrong| CookieError { file: source.to_owned(), line, wrong };
        if text.len() > LARGEST_FILE {
            return Err(error(1, WrongCookie::Large));
        }
        let mut jar = Jar::default();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let hidden = line.strip_prefix(HTTP_ONLY);
            if hidden.is_none() && (line.starts_with(b"#") || line.trim_ascii().is_empty()) {
                continue;
            }
            let kept = cookie(hidden.unwrap_or(line), number + 1)
                .and_then(|(domain, cookie)| jar.keep(domain, cookie));
            kept.map_err(|wrong| error(number + 1, wrong))?;
        }
        Ok(jar)
    }

    /// The header for a request to `url`, if any cookie applies: longest paths first.
    pub fn header(&self, url: &Url, now: SystemTime) -> Option<HeaderValue> {
        let host = url.host()?;
        let own = self.of(&plain(&host));
        let mut fitting: Vec<&Cookie> = own.filter(|cookie| cookie.fits(url, now)).collect();
        if let Host::Domain(host) = host {
            for (dot, _) in host.match_indices('.') {
                let above = self.of(&host[dot + 1..]);
                let above = above.filter(|cookie| cookie.reach == Reach::Subdomains);
                fitting.extend(above.filter(|cookie| cookie.fits(url, now)));
            }
        }
        fitting.sort_by_key(|cookie| (Reverse(cookie.path.len()), cookie.line));
        let mut value = HeaderValue::from_bytes(&joined(&fitting)?).expect("signs were checked");
        value.set_sensitive(true);
        Some(value)
    }

    /// The number of cookies, expired ones included.
    pub fn len(&self) -> usize {
        self.cookies
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.cookies == 0
    }

    fn of(&self, domain: &str) -> impl Iterator<Item = &Cookie> + use<'_> {
        self.domains.get(domain).into_iter().flat_map(BTreeMap::values)
    }

    /// Later lines replace earlier ones of the same name, domain and path.
    fn keep(&mut self, domain: String, cookie: Cookie) -> Result<(), WrongCookie> {
        let key = (cookie.path.clone(), cookie.name.clone());
        let replaced = self.domains.entry(domain).or_default().insert(key, cookie);
        self.cookies += usize::from(replaced.is_none());
        if self.cookies > MOST_COOKIES { Err(WrongCookie::Many) } else { Ok(()) }
    }
}

impl fmt::Debug for Jar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jar").field("cookies", &self.cookies).finish_non_exhaustive()
    }
}

impl Cookie {
    fn fits(&self, url: &Url, now: SystemTime) -> bool {
        let open = self.channel == Channel::Any || url.scheme() == "https";
        let valid = self.expires_at.is_none_or(|expires_at| now < expires_at);
        open && valid && covers(&self.path, url.path())
    }
}

/// Returns `true` if a cookie's path covers that of a request (RFC 6265, section 5.1.4).
fn covers(path: &str, asked: &str) -> bool {
    asked
        .strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || path.ends_with('/'))
}

fn joined(cookies: &[&Cookie]) -> Option<Vec<u8>> {
    let mut header = Vec::new();
    for cookie in cookies {
        let length = cookie.name.len() + cookie.value.len() + "; =".len();
        if header.len() + length > LONGEST_HEADER {
            continue;
        }
        if !header.is_empty() {
            header.extend_from_slice(b"; ");
        }
        header.extend_from_slice(&cookie.name);
        header.push(b'=');
        header.extend_from_slice(&cookie.value);
    }
    (!header.is_empty()).then_some(header)
}

fn cookie(text: &[u8], line: usize) -> Result<(String, Cookie), WrongCookie> {
    let mut fields: Vec<&[u8]> = text.splitn(8, |&byte| byte == b'\t').collect();
    if fields.len() == 6 {
        // Editors strip the tab before an empty value.
        fields.push(b"");
    }
    let [domain, subdomains, path, secure, expiry, name, value] = fields[..] else {
        return Err(WrongCookie::Fields);
    };
    let domain = domain_of(domain)?;
    let mut reach = if flag(subdomains)? { Reach::Subdomains } else { Reach::Host };
    if !domain.contains('.') {
        // A cookie for a whole top-level domain such as `com` is ignored.
        reach = Reach::Host;
    }
    if name.is_empty() || !fit(name) || name.contains(&b'=') || !fit(value) {
        return Err(WrongCookie::Sign);
    }
    if name.len() + value.len() > LONGEST_HEADER - "; =".len() {
        return Err(WrongCookie::Long);
    }
    let path = std::str::from_utf8(path).ok().filter(|path| path.starts_with('/'));
    let cookie = Cookie {
        line,
        reach,
        path: path.unwrap_or("/").into(),
        channel: if flag(secure)? { Channel::Secure } else { Channel::Any },
        expires_at: expiry_of(expiry)?,
        name: name.into(),
        value: value.into(),
    };
    Ok((domain, cookie))
}

fn domain_of(field: &[u8]) -> Result<String, WrongCookie> {
    let text = std::str::from_utf8(field).map_err(|_| WrongCookie::Domain)?;
    let text = text.strip_prefix('.').unwrap_or(text);
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    Host::parse(text).map(|host| plain(&host)).map_err(|_| WrongCookie::Domain)
}

/// A host as the key of the jar: IPv6 addresses without brackets.
fn plain<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(name) => name.as_ref().to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

fn flag(field: &[u8]) -> Result<bool, WrongCookie> {
    match field {
        _ if field.eq_ignore_ascii_case(b"true") => Ok(true),
        _ if field.eq_ignore_ascii_case(b"false") => Ok(false),
        _ => Err(WrongCookie::Flag),
    }
}

/// Seconds since 1970, with a fraction in some exports. Empty or 0 means a session cookie.
fn expiry_of(field: &[u8]) -> Result<Option<SystemTime>, WrongCookie> {
    let whole = field.split(|&byte| byte == b'.').next().unwrap_or(field);
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    let fraction = field.get(whole.len() + 1..).unwrap_or(b"");
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && !field.is_empty()) {
        return Err(WrongCookie::Expiry);
    }
    let seconds = whole.iter().fold(0u64, |seconds, digit| {
        seconds.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    // A time beyond the clock's range never comes.
    Ok(UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).filter(|_| seconds > 0))
}

/// Returns `true` if a header can contain it as one name or one value.
fn fit(part: &[u8]) -> bool {
    part.iter().all(|&byte| byte >= b' ' && byte != 0x7f && byte != b';')
}

#[cfg(test)]
mod tests;
