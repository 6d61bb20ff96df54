//! The middleware's view of requests and responses: everything except their bodies.

use std::net::{IpAddr, SocketAddr};

use ::http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri, Version};

/// A request without its body: the argument of key extractors and of the builder's closures.
///
/// ```
/// use trypema::tower::RequestView;
///
/// let request = http::Request::get("/search?q=rust").body(())?;
/// let view = RequestView::of(&request);
/// assert_eq!((view.method.as_str(), view.uri.path()), ("GET", "/search"));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RequestView<'r> {
    /// The method.
    pub method: &'r Method,
    /// The URI.
    pub uri: &'r Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The headers from the client.
    pub headers: &'r HeaderMap,
    /// The extensions from the server and from outer layers: addresses, the user, the route.
    pub extensions: &'r Extensions,
}

impl<'r> RequestView<'r> {
    /// Creates a view of `request`.
    pub fn of<B>(request: &'r Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// Returns the path that the client requested. With the feature `axum`, this is the full path even inside
    /// a nested router, which sees only the rest of it.
    pub fn path(&self) -> &'r str {
        #[cfg(feature = "axum")]
        if let Some(path) = super::axum::original_path(self.extensions) {
            return path;
        }
        self.uri.path()
    }

    /// Returns the peer's address, which may be that of a proxy: axum's `ConnectInfo<SocketAddr>` (with the
    /// feature `axum`), or a [`SocketAddr`] or [`IpAddr`] from the extensions.
    pub fn peer_ip(&self) -> Option<IpAddr> {
        #[cfg(feature = "axum")]
        if let Some(address) = super::axum::connected(self.extensions) {
            return Some(address.ip());
        }
        let socket = self.extensions.get::<SocketAddr>().map(SocketAddr::ip);
        socket.or_else(|| self.extensions.get::<IpAddr>().copied())
    }
}

/// A response without its body: the argument of [`charge_if`](super::RateLimitLayerBuilder::charge_if) and
/// [`refund_if`](super::RateLimitLayerBuilder::refund_if).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ResponseView<'r> {
    /// The status. For gRPC it is always 200; the gRPC status is in the header `grpc-status`, or in the
    /// trailers, which are not visible here.
    pub status: StatusCode,
    /// The version of HTTP.
    pub version: Version,
    /// The headers from the handler.
    pub headers: &'r HeaderMap,
    /// The extensions from the handler and from inner layers.
    pub extensions: &'r Extensions,
}

impl<'r> ResponseView<'r> {
    /// Creates a view of `response`.
    pub fn of<B>(response: &'r Response<B>) -> Self {
        Self {
            status: response.status(),
            version: response.version(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }
}
