//! Networks of IP addresses.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use thiserror::Error;

/// A network of IP addresses, or a single address: `10.0.0.0/8`, `10.0.0.1`.
/// [`TrustedProxies`](super::TrustedProxies) are given as networks.
///
/// IPv4-mapped IPv6 addresses are treated as IPv4.
///
/// ```
/// use trypema::http::Network;
///
/// let one: Network = "10.0.0.1".parse()?;
/// assert!(one.contains("10.0.0.1".parse()?) && !one.contains("10.0.0.2".parse()?));
/// let all: Network = "fd00::/8".parse()?;
/// assert!(all.contains("fd12::1".parse()?));
/// assert!("10.0.0.0/33".parse::<Network>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(IpNet);

/// The error for text that is not a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a network: need an address, or an address and the length of a prefix, as in 10.0.0.0/8")]
pub struct InvalidNetwork;

impl Network {
    /// Whether `address` is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let alone = || text.parse::<IpAddr>().map(IpNet::from);
        let network = text.parse::<IpNet>().or_else(|_| alone()).map_err(|_| InvalidNetwork)?;
        Ok(Self(folded(network)))
    }
}

/// Creates a network that contains only this address.
impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(IpNet::from(address.to_canonical()))
    }
}

/// Converts a network of IPv4-mapped IPv6 addresses to an IPv4 network.
fn folded(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let IpNet::V6(mapped) = network else { return network };
    let folded = mapped.addr().to_ipv4_mapped().zip(mapped.prefix_len().checked_sub(MAPPED_BITS));
    folded.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok()).map_or(network, IpNet::V4)
}
