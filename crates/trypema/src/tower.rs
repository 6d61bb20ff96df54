//! Middleware for axum, tonic, hyper and everything else that is made of tower services.
//!
//! [`RateLimitLayer`] has one limit, or a set of rules. Requests beyond it are answered in place of the service inside:
//! 429 with `Retry-After` and `application/problem+json`, or the gRPC status `RESOURCE_EXHAUSTED` with retry
//! information, whichever the client speaks.
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::Router;
//! use axum::routing::get;
//! use trypema::http::HeaderStyle;
//! use trypema::tower::RateLimitLayer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Each client address may send 2 requests at once, and one more every 4 seconds.
//! let limit = RateLimitLayer::builder()
//!     .per_second(4)
//!     .burst_size(2)
//!     .use_headers(HeaderStyle::Standard)
//!     .build()?;
//! let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
//!
//! // A server would be `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`, with the
//! // feature `axum`. Here it is called by hand, with the address that a server would have added.
//! use tower::ServiceExt;
//! let request = || {
//!     let peer = SocketAddr::from(([192, 0, 2, 1], 4000));
//!     http::Request::get("/").extension(peer).body(axum::body::Body::empty())
//! };
//! let welcome = app.clone().oneshot(request()?).await?;
//! assert_eq!(welcome.status(), 200);
//! assert_eq!(welcome.headers()["ratelimit"], "\"default\";r=1;t=4");
//! app.clone().oneshot(request()?).await?;
//! let denied = app.oneshot(request()?).await?;
//! assert_eq!((denied.status().as_u16(), &denied.headers()["retry-after"]), (429, &"4".parse()?));
//! # Ok(())
//! # }
//! ```
//!
//! # What to choose
//!
//! | question | answer |
//! | --- | --- |
//! | which limit? | [`limit`](RateLimitLayerBuilder::limit) of any strategy; [`per_second`](RateLimitLayerBuilder::per_second) and [`burst_size`](RateLimitLayerBuilder::burst_size) for a token bucket; [`RateLimitLayer::rules`] for rules from a file |
//! | counted where? | in the layer, in a [`limiter`](RateLimitLayerBuilder::limiter) that others use too, in Redis, or leased from it; rules, where their engine says |
//! | counted for whom? | [`key_extractor`](RateLimitLayerBuilder::key_extractor): the peer's address, that of a client behind [proxies](SmartIpKeyExtractor), a [header](HeaderKeyExtractor), the [path](PathKeyExtractor), an [extension](ExtensionKeyExtractor), [everybody](GlobalKeyExtractor), or a function; for rules, [`attribute`](RateLimitLayerBuilder::attribute) |
//! | how much? | [`cost`](RateLimitLayerBuilder::cost) |
//! | which requests? | [`methods`](RateLimitLayerBuilder::methods), [`skip`](RateLimitLayerBuilder::skip) |
//! | when? | before the request; with [`charge_if`](RateLimitLayerBuilder::charge_if) after the response (only failed logins count), with [`refund_if`](RateLimitLayerBuilder::refund_if) back again (failures of the server do not) |
//! | in front of what? | services whose response body is `From<String>`, as axum's is; any others, such as tonic's, with [`any_body`](RateLimitLayer::any_body) |
//! | what are clients told? | [`use_headers`](RateLimitLayerBuilder::use_headers), [`error_handler`](RateLimitLayerBuilder::error_handler) |
//!
//! # What clients are answered
//!
//! | | HTTP | gRPC |
//! | --- | --- | --- |
//! | a limit was reached, or a rule throttles | 429, `Retry-After` | `RESOURCE_EXHAUSTED`, `RetryInfo` |
//! | the cost never fits, or the caller is on a block list | 429 | `RESOURCE_EXHAUSTED`, not to be retried |
//! | the store could not be asked | 503, `Retry-After` | `UNAVAILABLE`, `RetryInfo` |
//! | the request has no key, or the store answered nonsense | 500 | `INTERNAL` |
//!
//! No answer repeats what the client sent. What it means that the store cannot be asked is chosen in
//! [`RateLimiter::builder`](crate::RateLimiter::builder), or by each rule; a denial made in its place is 503 too, and
//! never 429.
//!
//! # For users of tower_governor
//!
//! | tower_governor | here |
//! | --- | --- |
//! | `GovernorConfigBuilder::default()` … `.finish().unwrap()`, `GovernorLayer::new(config)` | [`RateLimitLayer::builder()`](RateLimitLayer::builder) … `.finish()?`, which is the layer |
//! | `per_second`, `per_millisecond`, `period`, `burst_size` | the same. Nothing chosen is an error here, and there is no `per_nanosecond`: time is in microseconds |
//! | `key_extractor`, `PeerIpKeyExtractor`, `GlobalKeyExtractor` | the same; IPv6 addresses count by their /64 |
//! | `SmartIpKeyExtractor` | [`SmartIpKeyExtractor::new`], which is told whom to believe |
//! | `impl KeyExtractor`, with a `Key` type and errors | a closure that returns an `Option<String>`, or [`KeyExtractor`] |
//! | `methods`, `error_handler` | the same |
//! | responses that are made `From<GovernorError>`: features `axum` and `tonic` | bodies that are made `From<String>`, or [`any_body`](RateLimitLayer::any_body) |
//! | `use_headers()` | [`use_headers(HeaderStyle::XRateLimit)`](RateLimitLayerBuilder::use_headers), or the newer `Standard` |
//! | `config.limiter().retain_recent()` in a thread | nothing: keys are forgotten as others come. In a limiter of the layer's own they are a million at most; one that you give says so itself ([`max_keys`](crate::RateLimiterBuilder::max_keys)) |
//!
//! # What it costs
//!
//! Counters in this process are asked inside `call`, and the future is that of the service inside: nothing is boxed,
//! the service is not cloned, and one limit in a limiter of the layer's own allocates nothing for a client that it knows.
//! Redis, and rules with `charge_if` or `refund_if`, are asked by a boxed future that takes the service along and leaves
//! a clone. Redis is one round trip before the service is called; `charge_if` and `refund_if`, where they apply to a
//! response, are one more before it is sent. The middleware itself needs no async runtime.

mod any_body;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod builder;
mod config;
mod denial;
mod extractors;
mod future;
mod gate;
mod incoming;
mod invalid;
mod key;
mod keyless;
mod layer;
mod options;
mod service;

pub use any_body::{AnyBody, AnyBodyFuture, AnyBodyLayer};
pub use body::ResponseBody;
pub use builder::{ByLimit, ByRules, RateLimitLayerBuilder};
pub use denial::Denial;
pub use extractors::{
    ExtensionKeyExtractor, GlobalKeyExtractor, HeaderKeyExtractor, PathKeyExtractor, PeerIpKeyExtractor,
    SmartIpKeyExtractor,
};
pub use future::ResponseFuture;
pub use incoming::{Incoming, ResponseView};
pub use invalid::InvalidLayer;
pub use key::{Key, KeyExtractor};
pub use layer::RateLimitLayer;
pub use service::RateLimit;
