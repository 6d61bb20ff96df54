//! Finds the client's address behind proxies.

use std::net::IpAddr;

use super::forwarded::{Entries, Syntax};
use super::network::Network;
use ::http::header::{FORWARDED, HeaderMap, HeaderName};

/// The most entries that are read per request, from the right: more than any chain of proxies has. Clients
/// can send any number of entries, to the left of those.
const MAX_ENTRIES: usize = 64;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The trusted proxies, and the one header that they write.
///
/// A forwarding header is only as trustworthy as the peer that wrote it. Each proxy appends the address of
/// its peer at the right end. So the entries are read from the right, as long as they belong to trusted
/// proxies. The first one that does not is the client. Entries that the client itself sent are further left
/// and are never reached.
///
/// Only one header is read. A proxy writes one of the headers and passes the other one through from the
/// client, so trusting both would mean trusting the client.
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

/// The header to which proxies append the address of their peer.
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
    /// Trusts the proxies in `networks`, which write `X-Forwarded-For`. Without any network, every peer is a
    /// client.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        Self { networks: networks.into_iter().collect(), header: ForwardingHeader::default() }
    }

    /// Returns the same proxies with another header.
    #[must_use]
    pub fn with_header(self, header: ForwardingHeader) -> Self {
        Self { header, ..self }
    }

    /// Returns the address of the client whose request came from `peer` with `headers`. Allocates nothing.
    ///
    /// An entry that is not an address (`unknown`, `_hidden` or anything else) ends the search, and the proxy
    /// that wrote the entry counts as the client. All clients behind it then share one key, which is stricter
    /// than letting them choose a key. If all entries belong to trusted proxies, the leftmost one is the
    /// client. IPv4-mapped IPv6 addresses are always treated as IPv4.
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

    /// Whether `address` belongs to a trusted proxy.
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
