//! Hosts and networks that are reached without a proxy.

use std::net::IpAddr;

use url::{Host, Url};

/// One entry of `no_proxy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exempt {
    whom: Whom,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Whom {
    All,
    /// This domain and its subdomains.
    Domain(String),
    Network {
        address: IpAddr,
        bits: u32,
    },
}

impl Exempt {
    /// `None` if the entry is none of the known forms.
    pub(super) fn parse(entry: &str) -> Option<Exempt> {
        if entry == "*" {
            return Some(Exempt { whom: Whom::All, port: None });
        }
        if let Some((address, bits)) = entry.split_once('/') {
            return Some(Exempt { whom: network(address, bits)?, port: None });
        }
        if let Some(address) = address(entry) {
            return Some(Exempt { whom: single(address), port: None });
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(decimal(port)?)),
            None => (entry, None),
        };
        let whom = match address(host) {
            Some(address) => single(address),
            None => domain(host)?,
        };
        Some(Exempt { whom, port })
    }

    pub(super) fn covers(&self, url: &Url) -> bool {
        if self.port.is_some() && self.port != url.port_or_known_default() {
            return false;
        }
        match (&self.whom, url.host()) {
            (Whom::All, _) => true,
            (Whom::Domain(domain), Some(Host::Domain(host))) => {
                let host = host.strip_suffix('.').unwrap_or(host);
                let above = host.strip_suffix(domain.as_str());
                above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
            }
            (Whom::Network { address, bits }, Some(Host::Ipv4(host))) => {
                within(host.into(), *address, *bits)
            }
            (Whom::Network { address, bits }, Some(Host::Ipv6(host))) => {
                within(host.into(), *address, *bits)
            }
            _ => false,
        }
    }
}

/// An address with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

fn single(address: IpAddr) -> Whom {
    Whom::Network { address, bits: width(address) }
}

fn network(text: &str, bits: &str) -> Option<Whom> {
    let address = address(text)?;
    let bits = decimal(bits).map(u32::from).filter(|&bits| bits <= width(address))?;
    Some(Whom::Network { address, bits })
}

fn domain(text: &str) -> Option<Whom> {
    let text = text.strip_prefix('*').filter(|text| text.starts_with('.')).unwrap_or(text);
    let text = text.strip_prefix('.').unwrap_or(text);
    let text = text.strip_suffix('.').unwrap_or(text);
    match Host::parse(text) {
        Ok(Host::Domain(name)) if !name.contains('*') => Some(Whom::Domain(name)),
        _ => None,
    }
}

fn decimal(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns `true` if the first `bits` are equal. Addresses of different versions never match,
/// except that an IPv6 address may wrap an IPv4 one.
fn within(host: IpAddr, network: IpAddr, bits: u32) -> bool {
    let host = if network.is_ipv4() { host.to_canonical() } else { host };
    let differ = match (host, network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => {
            (host.to_bits() ^ network.to_bits()).checked_shr(32 - bits).unwrap_or(0) != 0
        }
        (IpAddr::V6(host), IpAddr::V6(network)) => {
            (host.to_bits() ^ network.to_bits()).checked_shr(128 - bits).unwrap_or(0) != 0
        }
        _ => true,
    };
    !differ
}
