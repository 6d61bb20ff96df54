//! Keys, and their extraction from requests.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;

use super::view::RequestView;
use crate::http::AddressKey;

/// The key that a request is counted under: text, or an address, which needs no allocation.
///
/// ```
/// use std::net::{IpAddr, Ipv6Addr};
/// use trypema::tower::Key;
///
/// assert_eq!(Key::from("ann").as_str(), "ann");
/// assert_eq!(Key::from(IpAddr::V6(Ipv6Addr::LOCALHOST)).as_str(), "::/64");
/// ```
#[derive(Clone)]
pub struct Key<'r>(KeyForm<'r>);

#[derive(Clone)]
enum KeyForm<'r> {
    Text(Cow<'r, str>),
    Address(AddressKey),
    /// An address that is formatted only when its text is read. Never an IPv4-mapped IPv6 address.
    UnformattedAddress {
        address: IpAddr,
        text: OnceLock<AddressKey>,
    },
}

/// A buffer for an address as bytes: a tag that no text starts with, and at most half of an IPv6 address.
pub(super) type AddressBuffer = [u8; 1 + 8];

impl Key<'_> {
    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            KeyForm::Text(text) => text,
            KeyForm::Address(address) => address.as_str(),
            KeyForm::UnformattedAddress { address, text } => {
                text.get_or_init(|| AddressKey::of(*address)).as_str()
            }
        }
    }

    /// Returns the key as bytes, which is faster than formatting an address. Different keys give different
    /// bytes: an address starts with a byte that cannot occur in UTF-8 text.
    pub(super) fn bytes<'k>(&'k self, buffer: &'k mut AddressBuffer) -> &'k [u8] {
        match &self.0 {
            KeyForm::UnformattedAddress { address: IpAddr::V4(address), .. } => {
                buffer[0] = 0xff;
                buffer[1..5].copy_from_slice(&address.octets());
                &buffer[..5]
            }
            KeyForm::UnformattedAddress { address: IpAddr::V6(address), .. } => {
                // Only the /64 network: a client usually controls all addresses in it.
                buffer[0] = 0xfe;
                buffer[1..].copy_from_slice(&address.octets()[..8]);
                buffer
            }
            KeyForm::Text(_) | KeyForm::Address(_) => self.as_str().as_bytes(),
        }
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.as_str()).finish()
    }
}

impl<'r> From<&'r str> for Key<'r> {
    fn from(text: &'r str) -> Self {
        Self(KeyForm::Text(Cow::Borrowed(text)))
    }
}

impl From<String> for Key<'_> {
    fn from(text: String) -> Self {
        Self(KeyForm::Text(Cow::Owned(text)))
    }
}

impl<'r> From<Cow<'r, str>> for Key<'r> {
    fn from(text: Cow<'r, str>) -> Self {
        Self(KeyForm::Text(text))
    }
}

impl From<AddressKey> for Key<'_> {
    fn from(address: AddressKey) -> Self {
        Self(KeyForm::Address(address))
    }
}

/// The same key as [`AddressKey::of`]: for IPv6, the /64 network.
impl From<IpAddr> for Key<'_> {
    fn from(address: IpAddr) -> Self {
        Self(KeyForm::UnformattedAddress { address: address.to_canonical(), text: OnceLock::new() })
    }
}

/// Extracts the key that a request is counted under.
///
/// Closures implement this trait if their parameter type is annotated:
///
/// ```
/// use trypema::tower::{RateLimitLayer, RequestView};
///
/// let tenant = |request: &RequestView<'_>| {
///     let host = request.headers.get("host")?.to_str().ok()?;
///     Some(host.split('.').next()?.to_ascii_lowercase())
/// };
/// let layer = RateLimitLayer::builder().per_second(1).burst_size(10).key_extractor(tenant).build()?;
/// # let _ = layer;
/// # Ok::<(), trypema::tower::InvalidLayer>(())
/// ```
///
/// An implementation of the trait can borrow the key from the request and avoid the allocation:
///
/// ```
/// use trypema::tower::{Key, KeyExtractor, RequestView};
///
/// struct FirstSegment;
///
/// impl KeyExtractor for FirstSegment {
///     fn extract<'r>(&self, request: &RequestView<'r>) -> Option<Key<'r>> {
///         request.uri.path().split('/').nth(1).map(Key::from)
///     }
/// }
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key of `request`, or `None` if it has none.
    fn extract<'r>(&self, request: &RequestView<'r>) -> Option<Key<'r>>;

    /// Returns instructions for the developer about a request without a key: a sentence for the log and, in
    /// debug builds, for the body of the 500 response.
    fn advice(&self) -> &'static str {
        "The key extractor of the rate limit found no key in this request."
    }

    /// Whether every request has this key unless the server is misconfigured, as with addresses. If such a
    /// key is missing and a rule or a list needs it, a layer with rules responds with 500. For other keys,
    /// the rule's [`if_missing`](crate::rules::IfMissing) applies.
    fn is_mandatory(&self) -> bool {
        false
    }
}

impl<F> KeyExtractor for F
where
    F: Fn(&RequestView<'_>) -> Option<String> + Send + Sync + 'static,
{
    fn extract<'r>(&self, request: &RequestView<'r>) -> Option<Key<'r>> {
        self(request).map(Key::from)
    }
}
