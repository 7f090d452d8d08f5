//! The addresses that requests may reach: all, or only public ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that may be connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// All of them.
    #[default]
    Everywhere,
    /// Only those of the public internet, whatever a name resolves to.
    Public,
}

impl Reach {
    /// Returns `true` if connections to this address are allowed.
    pub fn allows(self, address: IpAddr) -> bool {
        self == Reach::Everywhere || is_public(address)
    }
}

/// Returns `true` if an address belongs to the public internet: it is not local, private, or
/// unassigned.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Shared by the customers of one provider (RFC 6598).
        || (a == 100 && (64..128).contains(&b))
        // Protocol assignments (RFC 6890) and benchmarks (RFC 2544).
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = carried(address) {
        return is_public_v4(inner);
    }
    let first = address.segments()[0];
    let documentation = first == 0x2001 && address.segments()[1] == 0xdb8;
    // Global unicast, as far as it is assigned (RFC 4291). The rest is local, private, multicast or
    // unassigned.
    (0x2000..0x4000).contains(&first) && !documentation
}

/// The IPv4 address inside an IPv6 one, which must be allowed as well.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        // Mapped (RFC 4291), and through a translator (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(v4(high, low))
        }
        // Compatible, the predecessor of mapped.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(v4(high, low)),
        // In a tunnel (RFC 3056).
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, public: bool) {
        let parsed: IpAddr = address.parse().expect("an address");
        assert_eq!(is_public(parsed), public, "{address}");
        assert!(Reach::Everywhere.allows(parsed));
        assert_eq!(Reach::Public.allows(parsed), public);
    }

    #[test]
    fn only_the_public_internet_is_public() {
        for address in ["1.1.1.1", "93.184.215.14", "100.63.0.1", "172.32.0.1", "2606:4700::1111"] {
            check(address, true);
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            check(address, false);
        }
        for address in [
            "::",
            "::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "100::1",
        ] {
            check(address, false);
        }
    }

    #[test]
    fn an_address_inside_another_counts_as_itself() {
        for inner in [
            "::ffff:127.0.0.1",
            "::ffff:10.1.1.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
        ] {
            check(inner, false);
        }
        for inner in ["::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::"] {
            check(inner, true);
        }
    }
}
