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

/// Migration from governor.
#[cfg(feature = "axum")]
#[doc = include_str!("../../../docs/migrating/governor.md")]
struct GovernorPage;

/// Migration from tower_governor.
#[cfg(feature = "axum")]
#[doc = include_str!("../../../docs/migrating/tower-governor.md")]
struct TowerGovernorPage;

/// Migration from trypema 2.x.
#[cfg(feature = "redis-tokio")]
#[doc = include_str!("../../../docs/migrating/trypema-2.md")]
struct TrypemaTwoPage;

/// Migration from limitador.
#[cfg(all(feature = "axum", feature = "redis-tokio"))]
#[doc = include_str!("../../../docs/migrating/limitador.md")]
struct LimitadorPage;

/// The hybrid provider.
#[cfg(feature = "redis-tokio")]
#[doc = include_str!("../../../docs/hybrid.md")]
struct HybridPage;

/// The tour of the library.
#[cfg(all(feature = "axum", feature = "redis-tokio"))]
#[doc = include_str!("../../../docs/guide.md")]
struct GuidePage;

/// Recipes.
#[cfg(all(feature = "axum", feature = "redis-tokio"))]
#[doc = include_str!("../../../docs/recipes.md")]
struct RecipesPage;

/// Settings: what each trades, and its measured effect.
#[cfg(feature = "redis-tokio")]
#[doc = include_str!("../../../docs/tuning.md")]
struct TuningPage;
