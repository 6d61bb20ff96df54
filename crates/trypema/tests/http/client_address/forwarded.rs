//! `Forwarded`: the examples of RFC 7239, and other well-formed and malformed lines.

use http::HeaderMap;
use http::header::FORWARDED;
use trypema::http::ForwardingHeader;

use super::{ip, lines, proxies};

/// The client address of a request from the proxy 10.0.0.1.
fn client(headers: &HeaderMap) -> String {
    proxies().with_header(ForwardingHeader::Forwarded).client_address(ip("10.0.0.1"), headers).to_string()
}

/// The address of the direct peer, used if the header yields no client address.
const PEER: &str = "10.0.0.1";

#[test]
fn lines_are_read_as_written() {
    let table = [
        // The examples of RFC 7239.
        (r#"for="_gazonk""#, PEER),
        (r#"For="[2001:db8:cafe::17]:4711""#, "2001:db8:cafe::17"),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("for=192.0.2.43, for=198.51.100.17", "198.51.100.17"),
        (r#"for="192.0.2.43:47011""#, "192.0.2.43"),
        (r#"for="[2001:db8:cafe::17]:47011""#, "2001:db8:cafe::17"),
        (r#"for=192.0.2.43, for="[2001:db8:cafe::17]""#, "2001:db8:cafe::17"),
        (r#"for=192.0.2.43,for="[2001:db8:cafe::17]",for=unknown"#, PEER),
        (r#"for="_SEVKISEK""#, PEER),
        ("for=unknown", PEER),
        (r#"for=192.0.2.43;by="[2001:db8::1]";proto=https;host=example.com"#, "192.0.2.43"),
        // Other well-formed lines.
        (r#"for="192.0.2.43:_obfuscated""#, "192.0.2.43"),
        (r#"proto=http;FOR="192.0.2.43""#, "192.0.2.43"),
        (r#";;for=192.0.2.43;"#, "192.0.2.43"),
        (r#"for=192.0.2.43 ; proto=http"#, "192.0.2.43"),
        (r#"for="\1\9\2.0.2.43""#, "192.0.2.43"),
        (r#"for=192.0.2.1, host="a, for=6.6.6.6, b";for=192.0.2.43"#, "192.0.2.43"),
        (r#"host="a;for=6.6.6.6;b";for=192.0.2.43"#, "192.0.2.43"),
        (r#"host="\", for=6.6.6.6";for=192.0.2.43"#, "192.0.2.43"),
        (r#"for=192.0.2.43;host="\\", for=10.0.0.2"#, "192.0.2.43"),
        (r#"for=192.0.2.43;host="\\\"", for=10.0.0.2"#, "192.0.2.43"),
        (r#"for=192.0.2.43, for="[fd00::2]""#, "192.0.2.43"),
        (r#"for="[::ffff:192.0.2.43]:80""#, "192.0.2.43"),
        (r#"for=192.0.2.43,,"#, "192.0.2.43"),
        // Values that should be quoted but are unambiguous.
        ("for=192.0.2.43:80", "192.0.2.43"),
        ("for=[2001:db8::1]", "2001:db8::1"),
        // No address, or an ambiguous one.
        ("proto=https", PEER),
        ("192.0.2.43", PEER),
        ("for", PEER),
        ("for=", PEER),
        (r#"for="""#, PEER),
        (r#"for=""#, PEER),
        (r#"for="192.0.2.43"#, PEER),
        (r#"for="192.0.2.43\""#, PEER),
        (r#"for=192.0.2.43""#, PEER),
        (r#"for=192.0.2.43;host="open"#, PEER),
        ("for=192.0.2.43;for=192.0.2.44", PEER),
        ("fore=192.0.2.43", PEER),
        (r#"for=6.6.6.6, for="unclosed"#, PEER),
        ("for=6.6.6.6, for=192.0.2.43 for=192.0.2.44", PEER),
    ];
    for (line, expected) in table {
        assert_eq!(client(&lines(FORWARDED, [line.as_bytes()])), expected, "{line}");
    }
}

#[test]
fn a_node_of_any_length_is_no_address() {
    for length in [63, 64, 65, 10_000] {
        let line = format!("for=\"{}\"", "1".repeat(length));
        assert_eq!(client(&lines(FORWARDED, [line.as_bytes()])), PEER);
    }
}

/// A quote that the client leaves open on the left does not swallow entries that proxies add on the right.
#[test]
fn an_open_quote_spoils_only_its_own_entry() {
    for start in ["for=\"", "\"", "\\", "\"\\", "for=\"\\\\\\\"", "a=\"b\", c=\"", "for=\"x\\", "\u{e9}\""] {
        let line = format!("{start}, for=192.0.2.43;host=\"a, \\\"b\\\\\", for=10.0.0.2");
        assert_eq!(client(&lines(FORWARDED, [line.as_bytes()])), "192.0.2.43", "{line}");
    }
}
