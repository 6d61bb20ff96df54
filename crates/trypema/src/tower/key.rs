//! Who a request is counted for.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;

use super::incoming::Incoming;
use crate::http::AddressKey;

/// Who a request is counted for: a text, or an address that needs no allocation to be one.
///
/// ```
/// use std::net::{IpAddr, Ipv6Addr};
/// use trypema::tower::Key;
///
/// assert_eq!(Key::from("ann").as_str(), "ann");
/// assert_eq!(Key::from(IpAddr::V6(Ipv6Addr::LOCALHOST)).as_str(), "::/64");
/// ```
#[derive(Clone)]
pub struct Key<'r>(Form<'r>);

#[derive(Clone)]
enum Form<'r> {
    Text(Cow<'r, str>),
    Address(AddressKey),
    /// An address, written when somebody reads it; never IPv4 in IPv6.
    Unwritten {
        address: IpAddr,
        text: OnceLock<AddressKey>,
    },
}

/// Room for the bytes of an address: what tells them from text, and half of an IPv6 address.
pub(super) type Room = [u8; 1 + 8];

impl Key<'_> {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Form::Text(text) => text,
            Form::Address(address) => address.as_str(),
            Form::Unwritten { address, text } => text.get_or_init(|| AddressKey::of(*address)).as_str(),
        }
    }

    /// The key as bytes, other keys having others: quicker than the text of an address. Bytes of an address start with
    /// one that no text has.
    pub(super) fn bytes<'k>(&'k self, room: &'k mut Room) -> &'k [u8] {
        match &self.0 {
            Form::Unwritten { address: IpAddr::V4(address), .. } => {
                room[0] = 0xff;
                room[1..5].copy_from_slice(&address.octets());
                &room[..5]
            }
            Form::Unwritten { address: IpAddr::V6(address), .. } => {
                // Its /64: who has one address of it has them all.
                room[0] = 0xfe;
                room[1..].copy_from_slice(&address.octets()[..8]);
                room
            }
            Form::Text(_) | Form::Address(_) => self.as_str().as_bytes(),
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
        Self(Form::Text(Cow::Borrowed(text)))
    }
}

impl From<String> for Key<'_> {
    fn from(text: String) -> Self {
        Self(Form::Text(Cow::Owned(text)))
    }
}

impl<'r> From<Cow<'r, str>> for Key<'r> {
    fn from(text: Cow<'r, str>) -> Self {
        Self(Form::Text(text))
    }
}

impl From<AddressKey> for Key<'_> {
    fn from(address: AddressKey) -> Self {
        Self(Form::Address(address))
    }
}

/// As [`AddressKey::of`]: an IPv6 address by its /64.
impl From<IpAddr> for Key<'_> {
    fn from(address: IpAddr) -> Self {
        Self(Form::Unwritten { address: address.to_canonical(), text: OnceLock::new() })
    }
}

/// Says who a request is counted for.
///
/// Closures do, if they say what they are given:
///
/// ```
/// use trypema::tower::{Incoming, RateLimitLayer};
///
/// let tenant = |request: &Incoming<'_>| {
///     let host = request.headers.get("host")?.to_str().ok()?;
///     Some(host.split('.').next()?.to_ascii_lowercase())
/// };
/// let layer = RateLimitLayer::builder().per_second(1).burst_size(10).key_extractor(tenant).build()?;
/// # let _ = layer;
/// # Ok::<(), trypema::tower::InvalidLayer>(())
/// ```
///
/// An implementation of the trait can borrow the key from the request, and allocate nothing:
///
/// ```
/// use trypema::tower::{Incoming, Key, KeyExtractor};
///
/// struct FirstSegment;
///
/// impl KeyExtractor for FirstSegment {
///     fn extract<'r>(&self, request: &Incoming<'r>) -> Option<Key<'r>> {
///         request.uri.path().split('/').nth(1).map(Key::from)
///     }
/// }
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// Who `request` is counted for; `None` if that cannot be told.
    fn extract<'r>(&self, request: &Incoming<'r>) -> Option<Key<'r>>;

    /// Advice about a request without a key: a sentence for the log and, in debug builds, for the response, which is
    /// 500.
    fn advice(&self) -> &'static str {
        "The key extractor of the rate limit found no key in this request."
    }

    /// Whether every request has this key unless the server is set up wrongly, as with addresses. If it is missing, a
    /// layer with rules answers 500 to requests that a rule or a list needs it for, where it would otherwise do what
    /// [`if_missing`](crate::rules::IfMissing) of the rule says.
    fn is_mandatory(&self) -> bool {
        false
    }
}

impl<F> KeyExtractor for F
where
    F: Fn(&Incoming<'_>) -> Option<String> + Send + Sync + 'static,
{
    fn extract<'r>(&self, request: &Incoming<'r>) -> Option<Key<'r>> {
        self(request).map(Key::from)
    }
}
