//! What a client writes left of what trusted proxies add changes nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use proptest::collection::vec;
use proptest::prelude::*;
use trypema::http::{AddressKey, ForwardingHeader};

use super::{X_FORWARDED_FOR, lines, proxies};

/// How a proxy adds its caller.
#[derive(Debug, Clone, Copy)]
enum Adds {
    ToTheLastLine,
    AsALineOfItsOwn,
}

/// A line as a client might send it: any bytes a header may have, and some that hurt.
fn attacks() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let piece = prop_oneof![
        4 => vec(prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8], 0..12),
        4 => prop::sample::select(vec![
            "\"", "\\", ",", ";", "=", "for=", "for=\"", "\\\"", "unknown", "6.6.6.6", "10.0.0.9", "10.0.0.9, ",
            "[fd00::9]", "::ffff:10.0.0.9", "for=10.0.0.9, ", "for=\"10.0.0.9\"", "1.2.3.4:80",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    let line = vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let long = (0..200_usize).prop_map(|entries| b"10.0.0.9, ".repeat(entries));
    vec(prop_oneof![8 => line, 1 => long], 0..4)
}

fn clients() -> impl Strategy<Value = IpAddr> {
    let is_strange = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.octets()[0] != 10,
        IpAddr::V6(v6) => v6.octets()[0] != 0xfd && v6.to_ipv4_mapped().is_none(),
    };
    let any_address = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ];
    any_address.prop_filter("a stranger", is_strange)
}

fn trusted() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c])),
        any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::V4(Ipv4Addr::new(10, a, b, c).to_ipv6_mapped().to_canonical_v4())),
        any::<u16>().prop_map(|end| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, end])),
    ]
}

/// The header that arrives when `client` sent `attack` through proxies that add as they do.
fn arriving(
    name: HeaderName,
    (attack, added): (&[Vec<u8>], &[(Vec<u8>, Adds)]),
) -> HeaderMap {
    let mut values = attack.to_vec();
    for (entry, adds) in added {
        match (adds, values.last_mut()) {
            (Adds::ToTheLastLine, Some(last)) => {
                last.extend_from_slice(b", ");
                last.extend_from_slice(entry);
            }
            _ => values.push(entry.clone()),
        }
    }
    lines(name, values.iter().map(Vec::as_slice))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn x_forwarded_for_is_read_from_the_right(todo in any::<bool>()) {
        let _ = todo;
    }
}
