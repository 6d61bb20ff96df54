//! Requests and responses as the middleware sees them: everything but their bodies.

use std::net::{IpAddr, SocketAddr};

use ::http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri, Version};

/// A request without its body: what keys, costs and exceptions are functions of.
///
/// ```
/// use trypema::tower::Incoming;
///
/// let request = http::Request::get("/search?q=rust").body(())?;
/// let incoming = Incoming::of(&request);
/// assert_eq!((incoming.method.as_str(), incoming.uri.path()), ("GET", "/search"));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Incoming<'r> {
    /// What is to be done.
    pub method: &'r Method,
    /// With what.
    pub uri: &'r Uri,
    /// In which version of HTTP.
    pub version: Version,
    /// What the client says.
    pub headers: &'r HeaderMap,
    /// What the server and the layers further out know: addresses, the user, the route.
    pub extensions: &'r Extensions,
}

impl<'r> Incoming<'r> {
    /// What there is to see of `request`.
    pub fn of<B>(request: &'r Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The path that the client asked for: with the feature `axum` also inside of a nested router, which sees only the
    /// rest of it.
    pub fn path(&self) -> &'r str {
        #[cfg(feature = "axum")]
        if let Some(path) = super::axum::original_path(self.extensions) {
            return path;
        }
        self.uri.path()
    }

    /// The address that the request came from, which may be a proxy's: axum's `ConnectInfo<SocketAddr>` (with the
    /// feature `axum`), or else a [`SocketAddr`] or an [`IpAddr`] among the extensions.
    pub fn peer_ip(&self) -> Option<IpAddr> {
        #[cfg(feature = "axum")]
        if let Some(address) = super::axum::connected(self.extensions) {
            return Some(address.ip());
        }
        let socket = self.extensions.get::<SocketAddr>().map(SocketAddr::ip);
        socket.or_else(|| self.extensions.get::<IpAddr>().copied())
    }
}

/// A response without its body: what [`charge_if`](super::RateLimitLayerBuilder::charge_if) and
/// [`refund_if`](super::RateLimitLayerBuilder::refund_if) decide by.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ResponseView<'r> {
    /// How it went. gRPC has 200 here whatever happened, and says it in the header `grpc-status` if at all.
    pub status: StatusCode,
    /// In which version of HTTP.
    pub version: Version,
    /// What the handler says to the client.
    pub headers: &'r HeaderMap,
    /// What the handler says to the layers further out.
    pub extensions: &'r Extensions,
}

impl<'r> ResponseView<'r> {
    /// What there is to see of `response`.
    pub fn of<B>(response: &'r Response<B>) -> Self {
        Self {
            status: response.status(),
            version: response.version(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }
}
