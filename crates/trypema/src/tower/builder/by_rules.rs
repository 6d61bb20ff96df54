//! Layers with rules.

use std::fmt;
use std::sync::Arc;

use super::super::gate::{Attribute, Gate, RulesGate};
use super::super::invalid::InvalidLayer;
use super::super::key::KeyExtractor;
use super::super::layer::RateLimitLayer;
use super::RateLimitLayerBuilder;
use crate::rules::Engine;

/// What rules take, less the two that every request has.
const MAX_ATTRIBUTES: usize = 30;

/// A layer with rules in the making: see [`RateLimitLayer::rules`].
pub struct ByRules {
    engine: Arc<Engine>,
    attributes: Vec<Attribute>,
}

impl RateLimitLayerBuilder<ByRules> {
    pub(in super::super) fn by_rules(engine: Arc<Engine>) -> Self {
        Self::new(ByRules { engine, attributes: Vec::new() })
    }

    /// How to get an attribute that rules ask for: `ip`, `user`, `tenant`, `plan`, or any other name.
    ///
    /// Rules whose key has an attribute do not apply to requests without it, unless they have
    /// [`if_missing: deny` or `error`](crate::rules::IfMissing). So beware of attributes that clients may leave out.
    ///
    /// An address is never left out by clients: where a rule needs `ip` and the layer cannot tell it, because no
    /// `PeerIpKeyExtractor` is given or nothing puts the address into the extensions, the request is answered with 500,
    /// and the feature `tracing` logs an error that says what to do. See [`KeyExtractor::is_mandatory`].
    ///
    /// Given again for the same name, it is asked where those before it found nothing. In the same way the path and
    /// the method stand in for an `endpoint` or a `method` given here: with the route that matched as the `endpoint`
    /// (axum's `MatchedPath`), `/users/1` and `/users/2` are one.
    ///
    /// ```
    /// use axum::extract::MatchedPath;
    /// use trypema::tower::{Incoming, RateLimitLayer};
    ///
    /// # fn layer(engine: std::sync::Arc<trypema::rules::Engine>) {
    /// let route = |request: &Incoming<'_>| {
    ///     let matched = request.extensions.get::<MatchedPath>()?;
    ///     Some(matched.as_str().to_owned())
    /// };
    /// let layer = RateLimitLayer::rules(engine).attribute("endpoint", route).build();
    /// # }
    /// ```
    pub fn attribute(mut self, name: impl Into<String>, extractor: impl KeyExtractor) -> Self {
        let name = name.into().into_boxed_str();
        self.gate.attributes.push(Attribute { name, extractor: Box::new(extractor) });
        self
    }

    /// The layer; an error if a choice is invalid.
    pub fn build(self) -> Result<RateLimitLayer, InvalidLayer> {
        self.build_with(|ByRules { engine, attributes }| {
            let (given, max) = (attributes.len(), MAX_ATTRIBUTES);
            if given > max {
                return Err(InvalidLayer::Attributes { given, max });
            }
            Ok(Gate::Rules(Arc::new(RulesGate { engine, attributes })))
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
