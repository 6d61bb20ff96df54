//! Client addresses in rules: all spellings of an `ip` are the same address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::address_key::AddressKey;

/// A network: an address and a prefix length. IPv4 networks are stored as IPv6, within `::ffff:0:0/96`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CanonicalNetwork {
    bits: u128,
    prefix: u8,
}

impl CanonicalNetwork {
    /// Parses an address or a network: `10.0.0.1`, `10.0.0.0/8`, `2001:db8::1` or `2001:db8::/32`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (bits, most, offset) = match address.to_canonical() {
            IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), 32, 96),
            IpAddr::V6(address) => (address.to_bits(), 128, 0),
        };
        let prefix: u8 = prefix.map_or(Some(most), number)?;
        (prefix <= most).then(|| Self { bits, prefix: prefix + offset }.masked())
    }

    fn masked(self) -> Self {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
        Self { bits: self.bits & mask, ..self }
    }

    /// Returns the first address of the network, as bits.
    pub(super) fn first(self) -> u128 {
        self.bits
    }

    /// Whether the network contains all of `other`.
    pub(super) fn covers(self, other: Self) -> bool {
        self.prefix <= other.prefix && Self { prefix: self.prefix, ..other }.masked() == self
    }

    /// Whether the two networks have an address in common.
    #[cfg(test)]
    pub(super) fn meets(self, other: Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

/// Writes an address, or a network with its prefix length, as rules files do.
impl fmt::Display for CanonicalNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.bits);
        let (address, most, offset) = match address.to_ipv4_mapped().filter(|_| self.prefix >= 96) {
            Some(address) => (IpAddr::V4(address), 32, 96),
            None => (IpAddr::V6(address), 128, 0),
        };
        match self.prefix - offset {
            prefix if prefix == most => write!(f, "{address}"),
            prefix => write!(f, "{address}/{prefix}"),
        }
    }
}

/// Parses a number without leading zeros or a plus sign, so that each number has one spelling.
fn number(text: &str) -> Option<u8> {
    let is_plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_plain)
}

/// Returns the key that an address is counted under: an IPv4 address itself, or the /64 network of an IPv6
/// address. `None` if `text` is not an address.
pub(super) fn key_of(text: &str) -> Option<AddressKey> {
    text.parse().ok().map(AddressKey::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> CanonicalNetwork {
        CanonicalNetwork::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn networks_cover_and_meet() {
        assert!(network("10.0.0.0/8").covers(network("10.1.2.3")));
        assert!(network("10.0.0.0/8").covers(network("::ffff:10.1.2.3")));
        assert!(!network("10.1.2.3").covers(network("10.1.2.4")));
        assert!(network("2001:db8::1").meets(network("2001:db8::/64")));
        assert!(!network("2001:db8::1").covers(network("2001:db8::/64")));
        assert!(
            network("0.0.0.0/0").covers(network("9.9.9.9"))
                && !network("0.0.0.0/0").covers(network("2001:db8::1"))
        );
        assert!(network("::/0").covers(network("9.9.9.9")));
    }

    #[test]
    fn other_texts_are_none() {
        for text in ["", "ann", "10.0.0.0/33", "10.0.0/8", "2001:db8::/129", "1.2.3.4/x", "/8"] {
            assert_eq!(CanonicalNetwork::parse(text), None, "{text}");
        }
    }
}
