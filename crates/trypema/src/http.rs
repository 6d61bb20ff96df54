//! Decisions as HTTP and gRPC responses, and the addresses of clients.
//!
//! These functions convert values to headers and bodies. They do not wait or log. The waits of a decision
//! are computed from the time at which it was made. No text from a client or an operator can end a header line or open an HTML tag.
//!
//! | task | item |
//! | --- | --- |
//! | report the remaining quota | [`HeaderStyle::write`] |
//! | respond to a denial | [`Problem`] (`application/problem+json`), [`ErrorResponse`], [`GrpcDenial`] |
//! | return an error from a handler | [`guard`], [`local::LocalLimiter::limiter`](crate::local::LocalLimiter::limiter) |
//! | determine the client | [`TrustedProxies::client_address`], [`AddressKey`] |
//!
//! ```
//! use std::time::Duration;
//! use http::{HeaderMap, StatusCode};
//! use trypema::http::{HeaderStyle, Policy, Problem, QuotaUnit};
//! use trypema::{FixedWindowLimit, RateLimiter};
//!
//! let rl = RateLimiter::builder().build()?;
//! let limit = FixedWindowLimit::new(2, Duration::from_secs(60))?;
//! let take = || rl.local().fixed_window().take("ann", &limit, 1);
//!
//! let decision = take();
//! let (window, unit) = (Some(limit.window()), QuotaUnit::Spent);
//! let policy = Policy { name: "per minute", quota: 2, window, unit, decision: &decision };
//! let mut headers = HeaderMap::new();
//! HeaderStyle::Standard.write([policy], &mut headers);
//! assert_eq!(headers["ratelimit-policy"], "\"per minute\";q=2;w=60");
//!
//! take();
//! let policy = Policy { decision: &take(), ..policy };
//! let response = Problem::denied([policy]).expect("the third is too many").into_http_response::<String>();
//! assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert!(response.headers().contains_key("retry-after"));
//! # Ok::<(), trypema::TrypemaError>(())
//! ```

mod client_address;
mod digits;
mod error_code;
mod error_response;
mod field_list;
mod forwarded;
mod grpc;
mod guard;
mod headers;
mod network;
mod policy;
mod problem;
mod response_parts;
mod text;
#[cfg(feature = "rules")]
mod verdict;

pub use crate::address_key::{AddressKey, Ipv6Prefix};
pub use client_address::{ForwardingHeader, TrustedProxies};
pub use error_code::ErrorCode;
pub use error_response::ErrorResponse;
pub use grpc::{GrpcDenial, is_grpc};
pub use guard::guard;
pub use headers::{HeaderStyle, retry_after_seconds, whole_seconds, write_retry_after};
#[cfg(feature = "tower")]
pub(crate) use headers::{Quota, StaticHeaders};
pub use network::{InvalidNetwork, Network};
pub use policy::{Policy, QuotaUnit};
pub use problem::Problem;
#[cfg(feature = "tower")]
pub(crate) use verdict::{is_by_limit, never_detail};
