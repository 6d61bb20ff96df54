//! The client address of a request, whatever the client writes into its headers.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod forwarded;
mod keys;
mod spoofing;

use std::net::IpAddr;

use crate::counting_allocator::{allocations, live_bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use trypema::http::{AddressKey, ForwardingHeader, Network, TrustedProxies};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Trusts 10.0.0.0/8 and fd00::/8.
fn proxies() -> TrustedProxies {
    TrustedProxies::new(["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()))
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

fn lines<'a>(name: HeaderName, values: impl IntoIterator<Item = &'a [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(&name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

/// The client address of a request from the proxy 10.0.0.1 with these `X-Forwarded-For` lines.
fn client(values: &[&str]) -> String {
    let headers = lines(X_FORWARDED_FOR, values.iter().map(|value| value.as_bytes()));
    proxies().client_address(ip("10.0.0.1"), &headers).to_string()
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client() {
    let headers = lines(X_FORWARDED_FOR, [b"6.6.6.6".as_slice()]);
    assert_eq!(proxies().client_address(ip("192.0.2.1"), &headers), ip("192.0.2.1"));
    assert_eq!(TrustedProxies::default().client_address(ip("10.0.0.1"), &headers), ip("10.0.0.1"));
}

#[test]
fn the_first_from_the_right_that_is_not_trusted_is_the_client() {
    assert_eq!(client(&["192.0.2.1"]), "192.0.2.1");
    assert_eq!(client(&["6.6.6.6, 192.0.2.1"]), "192.0.2.1");
    assert_eq!(client(&["6.6.6.6,192.0.2.1 ,\t10.0.0.3, 10.0.0.2"]), "192.0.2.1");
    assert_eq!(client(&["6.6.6.6, 192.0.2.1", "10.0.0.3", "10.0.0.2"]), "192.0.2.1");
    assert_eq!(client(&["192.0.2.1, fd00::2"]), "192.0.2.1");
}

#[test]
fn without_entries_the_peer_is_the_client() {
    assert_eq!(client(&[]), "10.0.0.1");
    assert_eq!(client(&[""]), "10.0.0.1");
    assert_eq!(client(&[", ,"]), "10.0.0.1");
}

#[test]
fn if_all_are_trusted_the_leftmost_is_the_client() {
    assert_eq!(client(&["10.0.0.4, 10.0.0.3", "10.0.0.2"]), "10.0.0.4");
}

#[test]
fn empty_entries_mean_nothing() {
    assert_eq!(client(&["192.0.2.1,, 10.0.0.2,", ","]), "192.0.2.1");
}

#[test]
fn what_is_no_address_ends_the_search_at_who_wrote_it() {
    for garbage in [
        "unknown",
        "_hidden",
        "example.org",
        "192.0.2",
        "192.0.2.1.1",
        "192.0.2.256",
        "192.0.2.1:",
        "192.0.2.1:123456",
        "192.0.2.1:80x",
        "192.0.2.1 192.0.2.2",
        "[192.0.2.1]",
        "[2001:db8::1",
        "[2001:db8::1]80",
        "[2001:db8::1]:",
        "2001:db8::1]",
        "2001:db8:::1",
        "\"192.0.2.1\"",
        "for=192.0.2.1",
    ] {
        assert_eq!(client(&[&format!("6.6.6.6, {garbage}, 10.0.0.2")]), "10.0.0.2", "{garbage}");
        assert_eq!(client(&[garbage]), "10.0.0.1", "{garbage}");
    }
    let headers = lines(X_FORWARDED_FOR, [b"6.6.6.6, 192.0.2.\xb9, 10.0.0.2".as_slice()]);
    assert_eq!(proxies().client_address(ip("10.0.0.1"), &headers), ip("10.0.0.2"));
}

#[test]
fn ports_and_brackets_are_left_out() {
    for (entry, address) in [
        ("192.0.2.1:567", "192.0.2.1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:567", "2001:db8::1"),
        ("[2001:db8::1]:_port", "2001:db8::1"),
        ("2001:DB8:0::1", "2001:db8::1"),
    ] {
        assert_eq!(client(&[entry]), address);
    }
}

#[test]
fn ipv4_that_is_written_as_ipv6_is_ipv4_everywhere() {
    let headers = lines(X_FORWARDED_FOR, [b"6.6.6.6, ::ffff:192.0.2.1, [::ffff:10.0.0.2]:80".as_slice()]);
    assert_eq!(proxies().client_address(ip("::ffff:10.0.0.1"), &headers), ip("192.0.2.1"));
    assert_eq!(proxies().client_address(ip("::ffff:192.0.2.7"), &headers), ip("192.0.2.7"));

    let mapped = TrustedProxies::new(["::ffff:10.0.0.0/104".parse().unwrap()]);
    assert_eq!(mapped.client_address(ip("10.0.0.1"), &headers), ip("192.0.2.1"));
    assert_eq!(mapped.client_address(ip("11.0.0.1"), &headers), ip("11.0.0.1"));
    let one = TrustedProxies::new(["::ffff:10.0.0.1/128".parse().unwrap()]);
    assert_eq!(one.client_address(ip("10.0.0.1"), &headers), ip("10.0.0.2"));
}

#[test]
fn a_proxy_may_be_one_address() {
    let headers = lines(X_FORWARDED_FOR, [b"192.0.2.1".as_slice()]);
    for proxy in ["10.0.0.1", "10.0.0.1/32", "::ffff:10.0.0.1", "::1", "::1/128", "fd00::1"] {
        let trusted = TrustedProxies::new([proxy.parse().unwrap()]);
        let address = ip(proxy.split('/').next().unwrap());
        assert_eq!(trusted.client_address(address, &headers), ip("192.0.2.1"), "{proxy}");
        for stranger in ["10.0.0.0", "10.0.0.2", "::2", "fd00::2"] {
            assert_eq!(trusted.client_address(ip(stranger), &headers), ip(stranger), "{proxy}");
        }
    }
    for text in [
        "",
        "10.0.0",
        "10.0.0.1/33",
        "::1/129",
        "10.0.0.1:80",
        "[::1]",
        " 10.0.0.1",
        "10.0.0.1/",
        "localhost",
    ] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
    assert!(Network::from(ip("::ffff:10.0.0.1")).contains(ip("10.0.0.1")));
}

#[test]
fn only_the_header_that_was_chosen_is_read() {
    let mut headers = lines(X_FORWARDED_FOR, [b"192.0.2.1".as_slice()]);
    headers.insert("forwarded", HeaderValue::from_static("for=192.0.2.2"));
    assert_eq!(proxies().client_address(ip("10.0.0.1"), &headers), ip("192.0.2.1"));
    let forwarded = proxies().with_header(ForwardingHeader::Forwarded);
    assert_eq!(forwarded.client_address(ip("10.0.0.1"), &headers), ip("192.0.2.2"));
}

#[test]
fn no_more_than_64_entries_are_looked_at() {
    let chain: Vec<String> = (0..100).rev().map(|index| format!("10.1.0.{index}")).collect();
    assert_eq!(client(&[&format!("6.6.6.6, {}", chain.join(", "))]), "10.1.0.63");
    let lines: Vec<&str> = chain.iter().map(String::as_str).collect();
    assert_eq!(client(&lines), "10.1.0.63");
}

#[test]
fn nothing_is_allocated() {
    let spoofed =
        b"for=\"[2001:db8::7]:80\";by=10.0.0.9, for=192.0.2.1;host=\"a,\\\"b\", for=\"\\[fd00::2]\"";
    let mut headers = lines(http::header::FORWARDED, [spoofed.as_slice()]);
    headers.insert(X_FORWARDED_FOR, HeaderValue::from_static("6.6.6.6, 2001:db8::1, 10.0.0.2"));
    let (by_addresses, by_pairs) = (proxies(), proxies().with_header(ForwardingHeader::Forwarded));
    let before = (allocations(), live_bytes());
    let one = AddressKey::of(by_addresses.client_address(ip("10.0.0.1"), &headers));
    let other = AddressKey::of(by_pairs.client_address(ip("10.0.0.1"), &headers));
    assert_eq!((allocations(), live_bytes()), before);
    assert_eq!([one.as_str(), other.as_str()], ["2001:db8::/64", "192.0.2.1"]);
}
