//! The built-in key extractors.

use std::fmt;
use std::marker::PhantomData;

use ::http::HeaderName;

use super::key::{Key, KeyExtractor};
use super::view::RequestView;
use crate::http::TrustedProxies;
use crate::rules::canonical_path;

const NO_PEER: &str = "The address of the peer is unknown: serve with \
    `into_make_service_with_connect_info::<SocketAddr>()` and the feature `axum`, or put a `SocketAddr` into the \
    extensions of requests.";

/// Uses the peer's address ([`RequestView::peer_ip`]) as the key; for IPv6, its /64 network.
///
/// Behind a proxy, the peer of every request is the proxy: use [`SmartIpKeyExtractor`].
///
/// tonic stores the address in a type of its own. Use a closure to read it:
///
/// ```
/// use tonic::transport::server::TcpConnectInfo;
/// use trypema::http::AddressKey;
/// use trypema::tower::{RateLimitLayer, RequestView};
///
/// let peer = |request: &RequestView<'_>| {
///     let address = request.extensions.get::<TcpConnectInfo>()?.remote_addr()?;
///     Some(AddressKey::of(address.ip()).to_string())
/// };
/// let layer = RateLimitLayer::builder().per_second(1).burst_size(10).key_extractor(peer).build()?;
/// # let _ = layer;
/// # Ok::<(), trypema::tower::InvalidLayer>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerIpKeyExtractor;

impl KeyExtractor for PeerIpKeyExtractor {
    fn extract<'r>(&self, request: &RequestView<'r>) -> Option<Key<'r>> {
        request.peer_ip().map(Key::from)
    }

    fn advice(&self) -> &'static str {
        NO_PEER
    }

    fn is_mandatory(&self) -> bool {
        true
    }
}

/// Uses the client's address as the key, also behind trusted proxies; for IPv6, its /64 network.
///
/// tower_governor's extractor of the same name trusts `X-Forwarded-For`, `X-Real-Ip` and `Forwarded` from any
/// peer. This one trusts only the configured proxies and the one header that they write: see
/// [`TrustedProxies`].
///
/// ```
/// use trypema::http::TrustedProxies;
/// use trypema::tower::{RateLimitLayer, SmartIpKeyExtractor};
///
/// let client = SmartIpKeyExtractor::new(TrustedProxies::new(["10.0.0.0/8".parse()?]));
/// let layer = RateLimitLayer::builder().per_second(1).burst_size(10).key_extractor(client).build()?;
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SmartIpKeyExtractor(TrustedProxies);

impl SmartIpKeyExtractor {
    /// Creates an extractor that trusts `proxies`.
    pub fn new(proxies: TrustedProxies) -> Self {
        Self(proxies)
    }
}

impl KeyExtractor for SmartIpKeyExtractor {
    fn extract<'r>(&self, request: &RequestView<'r>) -> Option<Key<'r>> {
        request.peer_ip().map(|peer| Key::from(self.0.client_address(peer, request.headers)))
    }

    fn advice(&self) -> &'static str {
        NO_PEER
    }

    fn is_mandatory(&self) -> bool {
        true
    }
}

/// Uses one key for all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GlobalKeyExtractor;

impl KeyExtractor for GlobalKeyExtractor {
    fn extract<'r>(&self, _: &RequestView<'r>) -> Option<Key<'r>> {
        Some(Key::from("all"))
    }
}

/// Uses the value of a header as the key. If the header occurs several times, the first value counts.
///
/// A client can send any value and thus obtain any number of keys. Use this extractor only if an outer layer
/// validates the header, or add a limit by address. Invalid UTF-8 is replaced, so that different invalid
/// values may share a key.
///
/// ```
/// use trypema::tower::{HeaderKeyExtractor, KeyExtractor, RequestView};
///
/// let request = http::Request::get("/").header("x-api-key", "k1").body(())?;
/// let api_key = HeaderKeyExtractor::new(http::HeaderName::from_static("x-api-key"));
/// assert_eq!(api_key.extract(&RequestView::of(&request)).expect("a header").as_str(), "k1");
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderKeyExtractor(HeaderName);

impl HeaderKeyExtractor {
    /// Creates an extractor for the header `name`.
    pub fn new(name: HeaderName) -> Self {
        Self(name)
    }
}

impl KeyExtractor for HeaderKeyExtractor {
    fn extract<'r>(&self, request: &RequestView<'r>) -> Option<Key<'r>> {
        request.headers.get(&self.0).map(|value| Key::from(String::from_utf8_lossy(value.as_bytes())))
    }

    fn advice(&self) -> &'static str {
        "The header that identifies the client is missing."
    }
}

/// Uses the path as the key, without the query and in one spelling: `//users/1`, `/users/1/` and `/user%73/1` are
/// `/users/1`, and an encoded slash is a slash.
///
/// Rules are safer for paths that servers read in different ways: they count each of them. `/users/1` and
/// `/users/2` are different keys. For one key per route, use a closure that reads the matched
/// route, such as axum's `MatchedPath`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathKeyExtractor;

impl KeyExtractor for PathKeyExtractor {
    fn extract<'r>(&self, request: &RequestView<'r>) -> Option<Key<'r>> {
        Some(match canonical_path(request.path()) {
            path if path.is_empty() => Key::from("/"),
            path => Key::from(path),
        })
    }
}

/// Uses a `T` from the request's extensions as the key. An outer layer, for example authentication, has to
/// insert it.
///
/// ```
/// use trypema::tower::{ExtensionKeyExtractor, KeyExtractor, RequestView};
///
/// #[derive(Clone)]
/// struct UserId(String);
///
/// impl AsRef<str> for UserId {
///     fn as_ref(&self) -> &str {
///         &self.0
///     }
/// }
///
/// let request = http::Request::get("/").extension(UserId("ann".to_owned())).body(())?;
/// let user = ExtensionKeyExtractor::<UserId>::new();
/// assert_eq!(user.extract(&RequestView::of(&request)).expect("a user").as_str(), "ann");
/// # Ok::<(), http::Error>(())
/// ```
pub struct ExtensionKeyExtractor<T>(PhantomData<fn() -> T>);

impl<T> ExtensionKeyExtractor<T> {
    /// Creates an extractor for the extension `T`.
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for ExtensionKeyExtractor<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for ExtensionKeyExtractor<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ExtensionKeyExtractor<T> {}

impl<T> fmt::Debug for ExtensionKeyExtractor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtensionKeyExtractor")
    }
}

impl<T: AsRef<str> + Send + Sync + 'static> KeyExtractor for ExtensionKeyExtractor<T> {
    fn extract<'r>(&self, request: &RequestView<'r>) -> Option<Key<'r>> {
        request.extensions.get::<T>().map(|value| Key::from(value.as_ref()))
    }

    fn advice(&self) -> &'static str {
        "The extension that identifies the client is missing: the layer that adds it has to be further out."
    }
}
