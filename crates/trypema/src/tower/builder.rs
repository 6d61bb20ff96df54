//! Making layers, step by step: what is the same whatever decides.

mod by_limit;
mod by_rules;

use std::fmt;

use ::http::{Method, Response};

use super::config::Config;
use super::denial::Denial;
use super::gate::Gate;
use super::incoming::{Incoming, ResponseView};
use super::invalid::InvalidLayer;
use super::keyless::Keyless;
use super::layer::RateLimitLayer;
use super::options::{Charging, Options, Predicate};
use crate::http::HeaderStyle;

pub use by_limit::ByLimit;
pub use by_rules::ByRules;

/// Makes a [`RateLimitLayer`] step by step: [`ByLimit`] or [`ByRules`].
///
/// Every function that is given here sees the request without its body and runs for each request, before the service
/// inside: it has to be quick and cannot wait.
#[must_use]
pub struct RateLimitLayerBuilder<G> {
    gate: G,
    options: Options,
    charge_if: Option<Predicate>,
    refund_if: Option<Predicate>,
}

impl<G> RateLimitLayerBuilder<G> {
    fn new(gate: G) -> Self {
        let options = Options {
            methods: None,
            skips: Vec::new(),
            cost: None,
            headers: HeaderStyle::None,
            error_handler: None,
            charging: Charging::Before,
        };
        Self { gate, options, charge_if: None, refund_if: None }
    }

    /// What a request spends: one unit, unless told otherwise. A cost that can never fit is denied without
    /// `Retry-After`; a cost of 0 spends nothing, and only a block denies it.
    ///
    /// ```
    /// use trypema::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .per_second(1)
    ///     .burst_size(10)
    ///     .cost(|request| if request.uri.path().starts_with("/export") { 5 } else { 1 })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), trypema::tower::InvalidLayer>(())
    /// ```
    pub fn cost(mut self, cost: impl Fn(&Incoming<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.options.cost = Some(Box::new(cost));
        self
    }

    /// Requests that the layer has nothing to do with: they are not counted, and their responses have no headers.
    /// Called again, it adds others.
    pub fn skip(mut self, skip: impl Fn(&Incoming<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.options.skips.push(Box::new(skip));
        self
    }

    /// The methods that the layer is for: all of them, unless told otherwise. Requests with others are skipped.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.options.methods = Some(methods.into_iter().collect());
        self
    }

    /// How clients are told what is left, on responses to requests that are let in and on denials. Without it they are
    /// not told; denials always say when to come back.
    ///
    /// tower_governor's `use_headers()` is [`HeaderStyle::XRateLimit`], which has `x-ratelimit-reset` in place of
    /// `x-ratelimit-after`, and no `x-ratelimit-whitelisted`.
    pub fn use_headers(mut self, style: HeaderStyle) -> Self {
        self.options.headers = style;
        self
    }

    /// Makes the responses to requests that are not let in, gRPC included. The headers of the chosen style are added to
    /// them, and `Retry-After` if it is missing.
    pub fn error_handler(
        mut self,
        handler: impl Fn(&Denial<'_>) -> Response<String> + Send + Sync + 'static,
    ) -> Self {
        self.options.error_handler = Some(Box::new(handler));
        self
    }

    /// Counts a request after its response, if that is so: only failed logins, say.
    ///
    /// Before the service inside is called it is only looked whether the request would be let in; an abuse limit is
    /// asked whether it blocks. So as many requests as run at the same time may pass before the first of them is
    /// counted. The response is sent when it has been counted, whatever that found: who exceeds a limit hears of it
    /// next time. An error of the service inside is no response and is not counted. Headers tell what is left after
    /// counting, and what would be left for requests that are not counted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::tower::RateLimitLayer;
    /// use trypema::{AbuseLimit, AbuseTier};
    ///
    /// let guesses = AbuseLimit::new(
    ///     AbuseTier::new(Duration::from_secs(60), 3, Duration::from_secs(600))?,
    ///     AbuseTier::new(Duration::from_secs(3600), 10, Duration::from_secs(86_400))?,
    /// );
    /// let layer = RateLimitLayer::builder()
    ///     .limit(guesses)
    ///     .charge_if(|response| response.status == http::StatusCode::UNAUTHORIZED)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn charge_if(
        mut self,
        is_charged: impl Fn(&ResponseView<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.charge_if = Some(Box::new(is_charged));
        self
    }

    /// Counts a request before it is let in, and gives that back if its response is so: when the server failed, say.
    ///
    /// Stays spent: a request whose client went away before the response, or that ended in an error of the service
    /// inside, and what a store that fails cannot give back. Headers tell what was left when the request was let in.
    ///
    /// ```
    /// use trypema::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .per_second(1)
    ///     .burst_size(10)
    ///     .refund_if(|response| response.status.is_server_error())
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), trypema::tower::InvalidLayer>(())
    /// ```
    pub fn refund_if(
        mut self,
        is_refunded: impl Fn(&ResponseView<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.refund_if = Some(Box::new(is_refunded));
        self
    }

    /// The layer, once what decides is known.
    fn build_with(
        self,
        gate: impl FnOnce(G) -> Result<Gate, InvalidLayer>,
    ) -> Result<RateLimitLayer, InvalidLayer> {
        let mut options = self.options;
        options.charging = match (self.charge_if, self.refund_if) {
            (None, None) => Charging::Before,
            (Some(is_charged), None) => Charging::ChargeIf(is_charged),
            (None, Some(is_refunded)) => Charging::RefundIf(is_refunded),
            (Some(_), Some(_)) => return Err(InvalidLayer::ChargeAndRefund),
        };
        Ok(RateLimitLayer::new(Config { gate: gate(self.gate)?, options, keyless: Keyless::default() }))
    }
}

impl<G> fmt::Debug for RateLimitLayerBuilder<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayerBuilder").finish_non_exhaustive()
    }
}
