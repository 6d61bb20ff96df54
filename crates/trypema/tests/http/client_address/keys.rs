//! The key that is derived from a client address.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;
use proptest::prelude::*;
use trypema::http::{AddressKey, Ipv6Prefix};

use super::ip;

#[test]
fn ten_thousand_addresses_of_one_network_are_one_client() {
    let network = 0x2001_0db8_0001_0002_u128 << 64;
    // Multiples of an odd number spread over all 64 host bits.
    let host = |index: u64| u128::from(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let address = |index| IpAddr::V6(Ipv6Addr::from_bits(network | host(index)));
    let keys: HashSet<AddressKey> = (0..10_000).map(|index| AddressKey::of(address(index))).collect();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys.iter().next().unwrap().as_str(), "2001:db8:1:2::/64");
    assert!(!keys.contains(&AddressKey::of(ip("2001:db8:1:3::"))));
    assert!(!keys.contains(&AddressKey::of(ip("2001:db8:1:1:ffff:ffff:ffff:ffff"))));
}

#[test]
fn ipv4_that_is_written_as_ipv6_has_the_key_of_ipv4() {
    for bits in [1, 64, 96, 128] {
        let key = AddressKey::with_prefix(ip("::ffff:1.2.3.4"), Ipv6Prefix::new(bits).unwrap());
        assert_eq!(key.as_str(), "1.2.3.4");
    }
}

#[test]
fn prefixes_are_1_to_128_bits() {
    assert_eq!((0..=u8::MAX).filter(|bits| Ipv6Prefix::new(*bits).is_some()).count(), 128);
    assert_eq!((Ipv6Prefix::new(0), Ipv6Prefix::new(129)), (None, None));
    let longest = ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    let key = |bits| AddressKey::with_prefix(longest, Ipv6Prefix::new(bits).unwrap()).to_string();
    assert_eq!(key(128), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128");
    assert_eq!(key(1), "8000::/1");
}

#[test]
fn keys_can_be_shown() {
    let key = AddressKey::from(ip("10.0.0.1"));
    assert_eq!(format!("{key:>10}|{key:?}"), "  10.0.0.1|AddressKey(\"10.0.0.1\")");
    assert_eq!(key.as_ref(), "10.0.0.1");
}

proptest! {
    #[test]
    fn ipv4_is_written_as_usual(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        prop_assert_eq!(AddressKey::of(address.into()).to_string(), address.to_string());
        prop_assert_eq!(AddressKey::of(address.to_ipv6_mapped().into()), AddressKey::of(address.into()));
    }

    #[test]
    fn ipv6_is_written_as_its_network(address in any::<u128>(), bits in 1..=128_u8) {
        let address = Ipv6Addr::from_bits(address);
        prop_assume!(address.to_ipv4_mapped().is_none());
        let network = Ipv6Net::new(address, bits).unwrap().trunc();
        let key = AddressKey::with_prefix(address.into(), Ipv6Prefix::new(bits).unwrap());
        prop_assert_eq!(key.as_str(), network.to_string());
    }

    /// Two addresses share a key exactly if the flipped bit is outside the prefix.
    #[test]
    fn networks_that_differ_have_other_keys(address in any::<u128>(), bits in 1..=128_u8, flipped in 0..128_u8) {
        let key = |address| AddressKey::with_prefix(Ipv6Addr::from_bits(address).into(), Ipv6Prefix::new(bits).unwrap());
        let other = address ^ (1 << (127 - flipped));
        prop_assume!([address, other].iter().all(|bits| Ipv6Addr::from_bits(*bits).to_ipv4_mapped().is_none()));
        prop_assert_eq!(key(address) == key(other), flipped >= bits);
    }
}
