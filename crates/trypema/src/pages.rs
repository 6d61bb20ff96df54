//! The pages of `docs/` whose examples are compiled and run with the documentation tests. The README is
//! included in `lib.rs`.

/// Rules.
#[cfg(feature = "rules")]
#[doc = include_str!("../../../docs/rules.md")]
struct RulesPage;

/// Responses over HTTP and gRPC, and the middleware.
#[cfg(feature = "axum")]
#[doc = include_str!("../../../docs/http.md")]
struct HttpPage;

/// Migration from governor and tower_governor.
#[cfg(feature = "axum")]
#[doc = include_str!("../../../docs/migrating.md")]
struct MigratingPage;

/// The hybrid provider.
#[cfg(feature = "redis-tokio")]
#[doc = include_str!("../../../docs/hybrid.md")]
struct HybridPage;
