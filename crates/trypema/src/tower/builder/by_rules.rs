//! The builder of layers with rules.

use std::fmt;
use std::sync::Arc;

use super::super::enforcer::{Attribute, Enforcer, RulesEnforcer, UnitCost};
use super::super::invalid::InvalidLayer;
use super::super::key::KeyExtractor;
use super::super::layer::RateLimitLayer;
use super::super::view::RequestView;
use super::RateLimitLayerBuilder;
use crate::rules::Engine;

/// The most attributes: the maximum of a request to rules, less `endpoint` and `method`, which every request
/// has.
const MAX_ATTRIBUTES: usize = 30;

/// The settings of a layer with rules. See [`RateLimitLayer::rules`].
pub struct ByRules {
    engine: Arc<Engine>,
    attributes: Vec<Attribute>,
    unit_costs: Vec<UnitCost>,
}

impl RateLimitLayerBuilder<ByRules> {
    pub(in super::super) fn by_rules(engine: Arc<Engine>) -> Self {
        Self::new(ByRules { engine, attributes: Vec::new(), unit_costs: Vec::new() })
    }

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

    /// Builds the layer. Fails if a setting is invalid.
    pub fn build(self) -> Result<RateLimitLayer, InvalidLayer> {
        self.build_with(|ByRules { engine, attributes, unit_costs }| {
            let (given, max) = (attributes.len(), MAX_ATTRIBUTES);
            if given > max {
                return Err(InvalidLayer::Attributes { given, max });
            }
            Ok(Enforcer::Rules(Arc::new(RulesEnforcer { engine, attributes, unit_costs })))
        })
    }

    /// The same as [`build`](Self::build).
    pub fn finish(self) -> Result<RateLimitLayer, InvalidLayer> {
        self.build()
    }
}

impl fmt::Debug for ByRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRules").field("engine", &self.engine).finish_non_exhaustive()
    }
}
