//! A client cannot change its address: everything it writes is to the left of the entries of trusted proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use http::header::FORWARDED;
use proptest::collection::vec;
use proptest::prelude::*;
use trypema::http::ForwardingHeader;

use super::{X_FORWARDED_FOR, lines, proxies};

/// A request that passed through one or more proxies.
#[derive(Debug, Clone)]
struct Journey {
    /// The header lines that the client sent.
    attack: Vec<Vec<u8>>,
    client: IpAddr,
    /// The proxies in the order in which the request passed them. The last one is the direct peer.
    hops: Vec<Hop>,
}

/// A proxy, and the way in which it writes down the address of its caller.
#[derive(Debug, Clone, Copy)]
struct Hop {
    proxy: IpAddr,
    style: usize,
    adds_a_line: bool,
}

/// Header lines as an attacker might send them: arbitrary bytes, mixed with fragments that are likely to
/// confuse a parser.
fn attacks() -> impl Strategy<Value = Vec<Vec<u8>>> {
    const HURTING: [&str; 17] = [
        "\"",
        "\\",
        ",",
        ";",
        "=",
        "for=",
        "for=\"",
        "\\\"",
        "unknown",
        "6.6.6.6",
        "10.0.0.9",
        "10.0.0.9, ",
        "[fd00::9]",
        "::ffff:10.0.0.9",
        "for=10.0.0.9, ",
        "for=\"10.0.0.9\"",
        "1.2.3.4:80",
    ];
    let piece = prop_oneof![
        vec(prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8], 0..12),
        prop::sample::select(&HURTING[..]).prop_map(|text| text.as_bytes().to_vec()),
    ];
    let line = vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let long = (0..200_usize).prop_map(|entries| b"10.0.0.9, ".repeat(entries));
    vec(prop_oneof![8 => line, 1 => long], 0..4)
}

fn addresses() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

fn is_strange(address: &IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets()[0] != 10,
        IpAddr::V6(address) => address.octets()[0] != 0xfd,
    }
}

fn hops() -> impl Strategy<Value = Hop> {
    let proxy = prop_oneof![
        any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c])),
        any::<u16>().prop_map(|end| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, end])),
    ];
    (proxy, 0..4_usize, any::<bool>()).prop_map(|(proxy, style, adds_a_line)| Hop {
        proxy,
        style,
        adds_a_line,
    })
}

fn journeys() -> impl Strategy<Value = Journey> {
    (attacks(), addresses().prop_filter("a stranger", is_strange), vec(hops(), 1..5))
        .prop_map(|(attack, client, hops)| Journey { attack, client, hops })
}

impl Journey {
    /// The header lines as the server receives them, if each proxy adds `written(caller, style)`.
    fn lines(&self, written: fn(IpAddr, usize) -> String) -> Vec<Vec<u8>> {
        let (mut lines, mut caller) = (self.attack.clone(), self.client);
        for hop in &self.hops {
            let entry = written(caller, hop.style);
            match lines.last_mut() {
                Some(last) if !hop.adds_a_line => last.extend_from_slice(format!(", {entry}").as_bytes()),
                _ => lines.push(entry.into_bytes()),
            }
            caller = hop.proxy;
        }
        lines
    }

    fn peer(&self) -> IpAddr {
        self.hops[self.hops.len() - 1].proxy
    }
}

fn with_brackets(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn in_a_list(address: IpAddr, style: usize) -> String {
    match (style, address) {
        (0, _) => address.to_string(),
        (1, _) => format!("{}:65535", with_brackets(address)),
        (2, IpAddr::V4(address)) => address.to_ipv6_mapped().to_string(),
        _ => with_brackets(address),
    }
}

fn in_a_pair(address: IpAddr, style: usize) -> String {
    let node = with_brackets(address);
    match style {
        0 => format!("for=\"{node}\""),
        1 => format!("by=unknown;For=\"{node}:80\";proto=https"),
        2 => format!("for=\"{node}\";host=\"a, for=6.6.6.6;\\\"\\\\\""),
        _ => format!("host=\"\\\\\"; for=\"\\{node}:_port\""),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_a_client_writes_changes_nothing(journey in journeys()) {
        let client = journey.client.to_canonical();
        let values = journey.lines(in_a_list);
        let headers = lines(X_FORWARDED_FOR, values.iter().map(Vec::as_slice));
        prop_assert_eq!(proxies().client_address(journey.peer(), &headers), client);

        let values = journey.lines(in_a_pair);
        let headers = lines(FORWARDED, values.iter().map(Vec::as_slice));
        let proxies = proxies().with_header(ForwardingHeader::Forwarded);
        prop_assert_eq!(proxies.client_address(journey.peer(), &headers), client);
    }

    #[test]
    fn a_stranger_is_itself_whatever_it_sends(attack in attacks(), peer in addresses()) {
        prop_assume!(is_strange(&peer));
        let mut headers: HeaderMap = lines(X_FORWARDED_FOR, attack.iter().map(Vec::as_slice));
        headers.extend(lines(FORWARDED, attack.iter().map(Vec::as_slice)));
        for header in [ForwardingHeader::XForwardedFor, ForwardingHeader::Forwarded] {
            let proxies = proxies().with_header(header);
            prop_assert_eq!(proxies.client_address(peer, &headers), peer.to_canonical());
        }
    }
}
