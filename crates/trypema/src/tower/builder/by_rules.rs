//! The builder of layers with rules.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::enforcer::{Attribute, Enforcer, RulesEnforcer, UnitCost};
use super::super::invalid::InvalidLayer;
use super::super::key::KeyExtractor;
use super::super::layer::RateLimitLayer;
use super::super::reserving::ReservingLayer;
use super::super::view::RequestView;
use super::RateLimitLayerBuilder;
use crate::rules::{Engine, ReserveOptions};

/// The most attributes: the maximum of a request to rules, less `endpoint` and `method`, which every request
/// has.
const MAX_ATTRIBUTES: usize = 30;

/// The settings of a layer with rules. See [`RateLimitLayer::rules`].
pub struct ByRules<R = ()> {
    engine: Arc<Engine>,
    attributes: Vec<Attribute>,
    unit_costs: Vec<UnitCost>,
    reserve: R,
}

/// The settings of the reservations of a layer. See [`RateLimitLayerBuilder::reserve`].
#[derive(Debug)]
pub struct Reserving {
    ttl: Duration,
    patience: Duration,
}

impl RateLimitLayerBuilder<ByRules> {
    pub(in super::super) fn by_rules(engine: Arc<Engine>) -> Self {
        Self::new(ByRules { engine, attributes: Vec::new(), unit_costs: Vec::new(), reserve: () })
    }

    /// Reserves the costs of each request until its response has ended, and then settles them. Use it
    ///
    /// - for rules that limit concurrency: without it, the layer skips them, because a check alone cannot
    ///   hold anything;
    /// - for costs that are known only afterwards, such as tokens of a language model: [`cost`](Self::cost)
    ///   and [`unit_cost`](Self::unit_cost) are estimates then, and handlers set the real cost by the
    ///   [`ReservationHandle`](super::super::ReservationHandle) in the extensions of the request.
    ///
    /// The response ends with its body, and also if the client goes away or if the inner service fails or
    /// panics. Then slots of concurrency rules are free again, at once with counters in this process and
    /// after another call to Redis with others. Units of other rules stay counted at their estimate, unless
    /// the handler has set the cost or [`refund_if`](Self::refund_if) applies. A connection that is upgraded,
    /// for a WebSocket for example, outlasts its response.
    ///
    /// While Redis is unreachable, the layer tries again to settle a response that has ended, until the reservation
    /// has expired. A process that shuts down gracefully should [wait for
    /// this](crate::rules::Engine::wait_for_settlements) after the last response, or those settlements are lost:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use trypema::rules::Engine;
    ///
    /// # async fn serve() {}
    /// # async fn run(engine: Arc<Engine>) {
    /// serve().await; // until the last response has ended
    /// let _ = tokio::time::timeout(Duration::from_secs(5), engine.wait_for_settlements()).await;
    /// # }
    /// ```
    ///
    /// If this process dies, the units stay reserved for `ttl`, at most one hour; for slots of concurrency
    /// rules the `hold` of the rule counts if it is shorter. Until the response has ended, the layer renews
    /// the reservation each third of this time, even if the client reads slowly.
    ///
    /// Requests that the layer exempts have no handle. [`charge_if`](Self::charge_if) is an error.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use trypema::RateLimiter;
    /// use trypema::rules::{Engine, RuleSet};
    /// use trypema::tower::{PeerIpKeyExtractor, RateLimitLayer};
    ///
    /// let rules = RuleSet::from_yaml(
    ///     "rules: [{id: uploads, scope: ip, strategy: {concurrency: {limit: 2, hold: 30s}}}]",
    ///     "rules.yaml",
    /// )?;
    /// let engine = Arc::new(Engine::local(Arc::new(RateLimiter::builder().build()?), rules));
    /// let layer = RateLimitLayer::rules(engine)
    ///     .attribute("ip", PeerIpKeyExtractor)
    ///     .reserve(Duration::from_secs(60))
    ///     .wait(Duration::from_secs(5))
    ///     .build()?;
    /// let app: axum::Router = axum::Router::new().layer(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(self, ttl: Duration) -> RateLimitLayerBuilder<ByRules<Reserving>> {
        let Self { settings, options, charge_if, refund_if } = self;
        let ByRules { engine, attributes, unit_costs, reserve: () } = settings;
        let reserve = Reserving { ttl, patience: Duration::ZERO };
        let settings = ByRules { engine, attributes, unit_costs, reserve };
        RateLimitLayerBuilder { settings, options, charge_if, refund_if }
    }

    /// Builds the layer. Fails if a setting is invalid.
    pub fn build(self) -> Result<RateLimitLayer, InvalidLayer> {
        self.build_with(|settings| settings.into_enforcer(None))
    }

    /// The same as [`build`](Self::build).
    pub fn finish(self) -> Result<RateLimitLayer, InvalidLayer> {
        self.build()
    }
}

impl RateLimitLayerBuilder<ByRules<Reserving>> {
    /// Lets denied requests wait for up to `patience` until they fit. Those that wait for the same counter
    /// are admitted in the order of their arrival. A request whose client goes away stops waiting. By default,
    /// requests do not wait.
    ///
    /// A waiting request occupies a connection and its memory: choose a patience that your clients have.
    pub fn wait(mut self, patience: Duration) -> Self {
        self.settings.reserve.patience = patience;
        self
    }

    /// Builds the layer. Fails if a setting is invalid.
    pub fn build(self) -> Result<ReservingLayer, InvalidLayer> {
        if self.charge_if.is_some() {
            return Err(InvalidLayer::ChargeAndReserve);
        }
        let Reserving { ttl, patience } = self.settings.reserve;
        let options = ReserveOptions::new(ttl)?.waiting(patience);
        self.build_with(|settings| settings.into_enforcer(Some(options))).map(ReservingLayer::new)
    }

    /// The same as [`build`](Self::build).
    pub fn finish(self) -> Result<ReservingLayer, InvalidLayer> {
        self.build()
    }
}

impl<R> ByRules<R> {
    fn into_enforcer(self, reserve: Option<ReserveOptions>) -> Result<Enforcer, InvalidLayer> {
        let Self { engine, attributes, unit_costs, .. } = self;
        let (given, max) = (attributes.len(), MAX_ATTRIBUTES);
        if given > max {
            return Err(InvalidLayer::Attributes { given, max });
        }
        Ok(Enforcer::Rules(Arc::new(RulesEnforcer { engine, attributes, unit_costs, reserve })))
    }
}

impl<R> RateLimitLayerBuilder<ByRules<R>> {
    /// Sets the extractor of an attribute that rules use: `ip`, `user`, `tenant`, `plan`, or any other name.
    ///
    /// A rule does not apply to a request that lacks an attribute of its key, unless it has [`if_missing:
    /// deny` or `error`](crate::rules::IfMissing). Be careful with attributes that a client can omit.
    ///
    /// Every request has an address. If a rule needs `ip` and the layer cannot determine it, the server is
    /// misconfigured: either no `PeerIpKeyExtractor` is set, or nothing stores the address in the request's
    /// extensions. The response is then a 500, and the feature `tracing` logs an error with instructions. See
    /// [`KeyExtractor::is_mandatory`].
    ///
    /// If several extractors have the same name, the first one that finds a value counts. The path and the
    /// method of the request are the last resort for `endpoint` and `method`. If you set `endpoint` to the
    /// matched route (axum's `MatchedPath`), `/users/1` and `/users/2` are the same endpoint.
    ///
    /// ```
    /// use axum::extract::MatchedPath;
    /// use trypema::tower::{RateLimitLayer, RequestView};
    ///
    /// # fn layer(engine: std::sync::Arc<trypema::rules::Engine>) {
    /// let route = |request: &RequestView<'_>| {
    ///     let matched = request.extensions.get::<MatchedPath>()?;
    ///     Some(matched.as_str().to_owned())
    /// };
    /// let layer = RateLimitLayer::rules(engine).attribute("endpoint", route).build();
    /// # }
    /// ```
    pub fn attribute(mut self, name: impl Into<String>, extractor: impl KeyExtractor) -> Self {
        let name = name.into().into_boxed_str();
        self.settings.attributes.push(Attribute { name, extractor: Box::new(extractor) });
        self
    }

    /// Sets the function that computes a request's cost in a unit that the rules declare, such as `tokens`.
    /// If it returns `None`, the request has no cost in this unit, and [`if_missing`](crate::rules::IfMissing)
    /// applies. [`cost`](Self::cost) is for the unit `requests`.
    ///
    /// ```
    /// use trypema::tower::{RateLimitLayer, RequestView};
    ///
    /// # fn layer(engine: std::sync::Arc<trypema::rules::Engine>) {
    /// let estimate = |request: &RequestView<'_>| {
    ///     let header = request.headers.get("x-estimated-tokens")?;
    ///     header.to_str().ok()?.parse().ok()
    /// };
    /// let layer = RateLimitLayer::rules(engine).unit_cost("tokens", estimate).build();
    /// # }
    /// ```
    pub fn unit_cost(
        mut self,
        unit: impl Into<String>,
        cost: impl Fn(&RequestView<'_>) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        let (unit, cost) = (unit.into().into_boxed_str(), Box::new(cost));
        self.settings.unit_costs.push(UnitCost { unit, cost });
        self
    }
}

impl<R> fmt::Debug for ByRules<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRules").field("engine", &self.engine).finish_non_exhaustive()
    }
}
