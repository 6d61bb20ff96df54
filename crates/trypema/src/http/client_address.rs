//! Whose request it is, when it came through proxies.

use std::net::IpAddr;

use super::forwarded::{Entries, Syntax};
use super::network::Network;
use ::http::header::{FORWARDED, HeaderMap, HeaderName};

/// Entries that are looked at in one request, from the right: no chain of proxies is that long, and clients may
/// write what they like to the left of it.
const MAX_ENTRIES: usize = 64;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies that are believed, and the one header that they write.
///
/// A header is only as true as who wrote it. A proxy adds the address that called it at the right end, so the
/// entries are read from the right, as long as they are of proxies that are trusted; the first that is not is the
/// client. What the client itself wrote is to the left of that and is never reached.
///
/// Only one header is read, because a proxy writes one and passes the other on as the client sent it: whoever
/// believes both believes the client.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use trypema::http::TrustedProxies;
///
/// let proxies = TrustedProxies::new(["10.0.0.0/8".parse()?, "192.0.2.1".parse()?]);
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 203.0.113.9, 10.0.0.2"));
///
/// let behind = proxies.client_address("10.0.0.1".parse()?, &headers);
/// assert_eq!(behind.to_string(), "203.0.113.9", "6.6.6.6 is only what that client says");
/// let direct = proxies.client_address("198.51.100.7".parse()?, &headers);
/// assert_eq!(direct.to_string(), "198.51.100.7", "nobody believes a stranger's header");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies {
    networks: Box<[Network]>,
    header: ForwardingHeader,
}

/// The header that proxies add the address of their caller to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ForwardingHeader {
    /// `X-Forwarded-For: 203.0.113.9, 10.0.0.2`.
    #[default]
    XForwardedFor,
    /// `Forwarded: for=203.0.113.9;proto=https, for=10.0.0.2` (RFC 7239).
    Forwarded,
}

impl TrustedProxies {
    /// Trusts the proxies in `networks`, which write `X-Forwarded-For`. Without a network nobody is trusted and
    /// every peer is a client.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        Self { networks: networks.into_iter().collect(), header: ForwardingHeader::default() }
    }

    /// The same proxies, writing `header`.
    #[must_use]
    pub fn with_header(self, header: ForwardingHeader) -> Self {
        Self { header, ..self }
    }

    /// The address of the client whose request came from `peer` with `headers`. Allocates nothing.
    ///
    /// An entry that is no address (`unknown`, `_hidden`, anything else) ends the search at the proxy that wrote it:
    /// all who come that way then share one key, which is stricter than letting them choose one. If every entry is a
    /// trusted proxy's, the leftmost is the client. IPv4 addresses that are written as IPv6 are IPv4 addresses
    /// everywhere.
    pub fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.trusts(client) {
            return client;
        }
        let lines = headers.get_all(self.header.name()).iter().rev();
        let entries = lines.flat_map(|line| Entries::new(line.as_bytes(), self.header.syntax()));
        for entry in entries.take(MAX_ENTRIES).filter(|entry| !entry.is_empty()) {
            let Some(address) = entry.address() else { break };
            client = address;
            if !self.trusts(client) {
                break;
            }
        }
        client
    }

    /// Whether what comes from `address` comes from a proxy that is believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }
}

impl ForwardingHeader {
    fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => X_FORWARDED_FOR,
            Self::Forwarded => FORWARDED,
        }
    }

    fn syntax(self) -> Syntax {
        match self {
            Self::XForwardedFor => Syntax::Addresses,
            Self::Forwarded => Syntax::Pairs,
        }
    }
}
