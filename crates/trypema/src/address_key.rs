//! The key text of a client's address.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The length of the longest text: eight groups of four digits, and the prefix.
const MAX_TEXT: usize = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128".len();

/// The key text of a client's address: an IPv4 address as it is, an IPv6 address as its network.
///
/// An IPv6 client usually controls a /64 network, which is 2^64 addresses, so a limit per address would have
/// no effect. An IPv4 address that is written as IPv6 (`::ffff:1.2.3.4`) has the key of the IPv4 address.
/// Nothing is allocated.
///
/// ```
/// use trypema::http::{AddressKey, Ipv6Prefix};
///
/// let key = |text: &str| AddressKey::of(text.parse().expect("an address"));
/// assert_eq!(key("1.2.3.4").as_str(), "1.2.3.4");
/// assert_eq!(key("::ffff:1.2.3.4"), key("1.2.3.4"));
/// assert_eq!(key("2001:db8:1:2:3:4:5:6").as_str(), "2001:db8:1:2::/64");
///
/// let prefix = Ipv6Prefix::new(48).expect("1 to 128");
/// let address = "2001:db8:1:2::1".parse()?;
/// assert_eq!(AddressKey::with_prefix(address, prefix).as_str(), "2001:db8:1::/48");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressKey {
    text: [u8; MAX_TEXT],
    len: u8,
}

/// The number of leading bits of an IPv6 address that identify a client: 1 to 128, 64 by default.
///
/// ```
/// use trypema::http::Ipv6Prefix;
///
/// assert_eq!(Ipv6Prefix::default().bits(), 64);
/// assert_eq!(Ipv6Prefix::new(0), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipv6Prefix(u8);

impl AddressKey {
    /// Returns the key of an address. For IPv6, it is the /64 network.
    pub fn of(address: IpAddr) -> Self {
        Self::with_prefix(address, Ipv6Prefix::default())
    }

    /// Returns the key of an address. For IPv6, it is the network of length `prefix`.
    pub fn with_prefix(address: IpAddr, prefix: Ipv6Prefix) -> Self {
        let mut key = Self { text: [0; MAX_TEXT], len: 0 };
        match address.to_canonical() {
            IpAddr::V4(address) => key.push_v4(address),
            // The buffer fits every text, so writing cannot fail.
            IpAddr::V6(address) => drop(write!(key, "{}/{}", prefix.network_of(address), prefix.0)),
        }
        key
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        // The text is always ASCII.
        std::str::from_utf8(&self.text[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Appends an IPv4 address. This runs for every request, and `write!` would cost several times more.
    fn push_v4(&mut self, address: Ipv4Addr) {
        for (index, octet) in address.octets().into_iter().enumerate() {
            if index > 0 {
                self.push(b'.');
            }
            if octet >= 100 {
                self.push(b'0' + octet / 100);
            }
            if octet >= 10 {
                self.push(b'0' + octet / 10 % 10);
            }
            self.push(b'0' + octet % 10);
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(end) = self.text.get_mut(usize::from(self.len)) {
            *end = byte;
            self.len += 1;
        }
    }
}

impl Ipv6Prefix {
    /// Returns a prefix of `bits`, or `None` unless that is 1 to 128.
    pub const fn new(bits: u8) -> Option<Self> {
        if bits >= 1 && bits <= 128 { Some(Self(bits)) } else { None }
    }

    /// Returns the number of bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    fn network_of(self, address: Ipv6Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - u32::from(self.0))))
    }
}

impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self(64)
    }
}

impl Write for AddressKey {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}

impl fmt::Display for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressKey").field(&self.as_str()).finish()
    }
}

impl AsRef<str> for AddressKey {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<IpAddr> for AddressKey {
    fn from(address: IpAddr) -> Self {
        Self::of(address)
    }
}
