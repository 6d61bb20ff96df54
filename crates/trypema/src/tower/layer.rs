//! The layer, which wraps services.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::any_body::AnyBodyLayer;
use super::builder::{ByLimit, ByRules, RateLimitLayerBuilder};
use super::config::LayerConfig;
use super::service::RateLimitService;
use crate::rules::Engine;

/// Wraps services in [`RateLimitService`]. All clones of a layer, and all services they wrap, share their
/// counters.
///
/// The response body of the inner service has to be `From<String>`, as axum's is. For others, such as
/// tonic's, use [`any_body`](Self::any_body).
#[derive(Clone)]
pub struct RateLimitLayer {
    config: Arc<LayerConfig>,
}

impl RateLimitLayer {
    /// Returns a builder of a layer with one limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::FixedWindowLimit;
    /// use trypema::http::HeaderStyle;
    /// use trypema::tower::{PathKeyExtractor, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .limit(FixedWindowLimit::new(1_000, Duration::from_secs(3600))?)
    ///     .name("hourly")
    ///     .key_extractor(PathKeyExtractor)
    ///     .use_headers(HeaderStyle::Standard)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> RateLimitLayerBuilder<ByLimit> {
        RateLimitLayerBuilder::by_limit()
    }

    /// Returns a builder of a layer with the rules of an engine. The rules can be [replaced](Engine::replace)
    /// at any time.
    ///
    /// Requests always have the attributes `endpoint` (the path) and `method`. Set the other attributes that
    /// the rules use with [`attribute`](RateLimitLayerBuilder::attribute).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use trypema::RateLimiter;
    /// use trypema::rules::{Engine, RuleSet};
    /// use trypema::tower::{HeaderKeyExtractor, PeerIpKeyExtractor, RateLimitLayer};
    ///
    /// let rules = RuleSet::from_yaml(
    ///     "
    ///     rules:
    ///       - {id: per-ip, scope: ip, strategy: {token_bucket: {limit: 20, window: 1s}}}
    ///       - id: search
    ///         scope: tenant
    ///         key_pattern: '{api_key}'
    ///         endpoints: [/search/**]
    ///         strategy: {fixed_window: {limit: 1000, window: 1h}}
    ///     ",
    ///     "rules.yaml",
    /// )?;
    /// // Clients may make keys up, so there is an end to them.
    /// let limiter = RateLimiter::builder().max_keys(1_000_000).build()?;
    /// let engine = Arc::new(Engine::local(Arc::new(limiter), rules));
    /// let layer = RateLimitLayer::rules(engine)
    ///     .attribute("ip", PeerIpKeyExtractor)
    ///     .attribute("api_key", HeaderKeyExtractor::new(http::HeaderName::from_static("x-api-key")))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rules(engine: Arc<Engine>) -> RateLimitLayerBuilder<ByRules> {
        RateLimitLayerBuilder::by_rules(engine)
    }

    /// Converts the layer for services whose response body is not `From<String>`: tonic's bodies, boxed
    /// bodies, or those of inner layers that compress or trace. Their responses then have the body type
    /// [`ResponseBody`](super::ResponseBody).
    ///
    /// ```
    /// use trypema::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::builder().per_second(1).burst_size(10).build()?;
    /// let server = tonic::transport::Server::builder().layer(layer.any_body());
    /// # let _ = server;
    /// # Ok::<(), trypema::tower::InvalidLayer>(())
    /// ```
    pub fn any_body(self) -> AnyBodyLayer {
        AnyBodyLayer::new(self)
    }

    pub(super) fn new(config: LayerConfig) -> Self {
        Self { config: Arc::new(config) }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> RateLimitService<S> {
        RateLimitService::new(inner, Arc::clone(&self.config))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").finish_non_exhaustive()
    }
}
