//! The pages of `docs/` whose examples are compiled, and run, with the documentation's. The README is beside the crate's
//! own page.

/// Rules.
#[cfg(feature = "rules")]
#[doc = include_str!("../../../docs/rules.md")]
struct Rules;

/// Answers over HTTP and gRPC, and the middleware.
#[cfg(feature = "axum")]
#[doc = include_str!("../../../docs/http.md")]
struct Http;

/// From governor and tower_governor.
#[cfg(feature = "axum")]
#[doc = include_str!("../../../docs/migrating.md")]
struct Migrating;

/// The hybrid provider.
#[cfg(feature = "redis-tokio")]
#[doc = include_str!("../../../docs/hybrid.md")]
struct Hybrid;
