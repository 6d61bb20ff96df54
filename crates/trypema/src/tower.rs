//! Rate limiting middleware for axum, tonic, hyper and everything else built on tower services.
//!
//! [`RateLimitLayer`] enforces one limit or a set of rules. If it denies a request, it responds in place of
//! the inner service: HTTP clients get 429 with `Retry-After` and `application/problem+json`, gRPC clients
//! get the status `RESOURCE_EXHAUSTED` with retry information.
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
//! # Options
//!
//! - The limit: [`limit`](RateLimitLayerBuilder::limit) of any strategy;
//!   [`per_second`](RateLimitLayerBuilder::per_second) and [`burst_size`](RateLimitLayerBuilder::burst_size)
//!   for a token bucket; [`RateLimitLayer::rules`] for rules from a file.
//! - The counters: in the layer itself by default; in a [`limiter`](RateLimitLayerBuilder::limiter) that is
//!   shared; in Redis; or leased from Redis. Rules use the counters of their engine.
//! - The key: [`key_extractor`](RateLimitLayerBuilder::key_extractor). It is the peer's address by default;
//!   there are extractors for the address of a client behind [proxies](SmartIpKeyExtractor), a
//!   [header](HeaderKeyExtractor), the [path](PathKeyExtractor), an [extension](ExtensionKeyExtractor) and
//!   [one key for all](GlobalKeyExtractor), and closures work as well. Rules have
//!   [`attribute`](RateLimitLayerBuilder::attribute)s instead.
//! - The cost of a request: [`cost`](RateLimitLayerBuilder::cost).
//! - The requests that are limited: [`methods`](RateLimitLayerBuilder::methods),
//!   [`skip`](RateLimitLayerBuilder::skip).
//! - The time of counting: before the request by default. [`charge_if`](RateLimitLayerBuilder::charge_if)
//!   counts after the response, for example only failed logins.
//!   [`refund_if`](RateLimitLayerBuilder::refund_if) refunds after the response, for example server errors.
//! - Reservations: [`reserve`](RateLimitLayerBuilder::reserve) takes the costs of a request as an estimate and
//!   settles them when the response has ended. Rules that limit [concurrency](crate::rules) need it.
//! - The inner service: its response body has to be `From<String>`, as axum's is. With
//!   [`any_body`](RateLimitLayer::any_body), all other services work, such as tonic's.
//! - The responses: [`use_headers`](RateLimitLayerBuilder::use_headers),
//!   [`error_handler`](RateLimitLayerBuilder::error_handler).
//!
//! # Responses
//!
//! | cause | HTTP | gRPC |
//! | --- | --- | --- |
//! | a limit is reached, or a rule throttles | 429, `Retry-After` | `RESOURCE_EXHAUSTED`, `RetryInfo` |
//! | the cost can never fit, or a block list matches | 429 | `RESOURCE_EXHAUSTED`, without retries |
//! | the store is unreachable | 503, `Retry-After` | `UNAVAILABLE`, `RetryInfo` |
//! | an attribute is missing, and its rule has `if_missing: error` | 400 | `INVALID_ARGUMENT` |
//! | the request has no key, or the store sent an invalid reply | 500 | `INTERNAL` |
//!
//! No response repeats input from the client. The failure policy, which applies while the store is
//! unreachable, is set in [`RateLimiter::builder`](crate::RateLimiter::builder) or per rule. A denial by this
//! policy is a 503, never a 429.
//!
//! # Migrating from tower_governor
//!
//! - `GovernorConfigBuilder::default()` … `.finish().unwrap()` and `GovernorLayer::new(config)` become
//!   [`RateLimitLayer::builder()`](RateLimitLayer::builder) … `.finish()?`, which returns the layer.
//! - `per_second`, `per_millisecond`, `period` and `burst_size` are the same, but setting none of them is an
//!   error. There is no `per_nanosecond`: the resolution is one microsecond.
//! - `key_extractor`, `PeerIpKeyExtractor` and `GlobalKeyExtractor` are the same. IPv6 addresses are counted
//!   by their /64 network.
//! - `SmartIpKeyExtractor` needs the proxies to trust: [`SmartIpKeyExtractor::new`].
//! - `impl KeyExtractor`, with a `Key` type and errors, becomes a closure that returns an `Option<String>`,
//!   or an implementation of [`KeyExtractor`].
//! - `methods` and `error_handler` are the same.
//! - Responses that are `From<GovernorError>` (features `axum` and `tonic`) become bodies that are
//!   `From<String>`, or [`any_body`](RateLimitLayer::any_body).
//! - `use_headers()` becomes [`use_headers(HeaderStyle::XRateLimit)`](RateLimitLayerBuilder::use_headers), or
//!   the newer `Standard`.
//! - `config.limiter().retain_recent()` in a thread is not needed: expired keys are removed as new keys
//!   arrive. The layer's own limiter keeps at most a million keys; for a shared limiter, set
//!   [`max_keys`](crate::RateLimiterBuilder::max_keys).
//!
//! # Cost
//!
//! With counters in this process, the decision is made inside `call`, and the future is little more than that
//! of the inner service: nothing is boxed and the service is not cloned. With one limit and the layer's own
//! limiter, a request of a known client allocates nothing.
//!
//! With Redis, and for rules with `charge_if` or `refund_if`, the decision is made by a boxed future, which
//! takes the ready inner service and leaves a clone in its place. Redis costs one round trip before the inner
//! service is called. `charge_if` and `refund_if` cost one more before the response is sent, if they apply to
//! it. The middleware needs no async runtime.

mod any_body;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod builder;
mod config;
mod denial;
mod enforcer;
mod extractors;
mod future;
mod invalid;
mod key;
mod layer;
mod misconfiguration_log;
mod options;
mod reservation_handle;
mod reserving;
mod service;
mod view;

pub use any_body::{AnyBody, AnyBodyFuture, AnyBodyLayer};
pub use body::ResponseBody;
pub use builder::{ByLimit, ByRules, RateLimitLayerBuilder, Reserving};
pub use denial::Denial;
pub use extractors::{
    ExtensionKeyExtractor, GlobalKeyExtractor, HeaderKeyExtractor, PathKeyExtractor, PeerIpKeyExtractor,
    SmartIpKeyExtractor,
};
pub use future::ResponseFuture;
pub use invalid::InvalidLayer;
pub use key::{Key, KeyExtractor};
pub use layer::RateLimitLayer;
pub use reservation_handle::ReservationHandle;
pub use reserving::{Reserved, ReservedBody, ReservedFuture, ReservingLayer};
pub use service::RateLimitService;
pub use view::{RequestView, ResponseView};
