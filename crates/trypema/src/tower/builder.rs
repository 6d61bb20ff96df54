//! The builder of layers: the options that one limit and rules have in common.

mod by_limit;
mod by_rules;

use std::fmt;

use ::http::{Method, Response};

use super::config::LayerConfig;
use super::denial::Denial;
use super::enforcer::{CountWhen, Enforcer};
use super::invalid::InvalidLayer;
use super::layer::RateLimitLayer;
use super::misconfiguration_log::MisconfigurationLog;
use super::options::{Options, Predicate};
use super::view::{RequestView, ResponseView};
use crate::http::HeaderStyle;

pub use by_limit::ByLimit;
pub use by_rules::{ByRules, Reserving};

/// A builder of [`RateLimitLayer`]s: with one limit ([`ByLimit`]) or with rules ([`ByRules`]).
///
/// The closures passed to the builder see the request or response without its body. They run on the request's
/// path and cannot wait, so they have to be fast.
#[must_use]
pub struct RateLimitLayerBuilder<G> {
    settings: G,
    options: Options,
    charge_if: Option<Predicate>,
    refund_if: Option<Predicate>,
}

impl<G> RateLimitLayerBuilder<G> {
    fn new(settings: G) -> Self {
        let options = Options {
            methods: None,
            skips: Vec::new(),
            accepts_dot_segments: false,
            cost: None,
            headers: HeaderStyle::None,
            error_handler: None,
            count_when: CountWhen::Before,
            is_followed_up: None,
        };
        Self { settings, options, charge_if: None, refund_if: None }
    }

    /// Sets the cost of a request. Defaults to 1. A cost that can never fit is denied without `Retry-After`.
    /// A cost of 0 spends nothing and is denied only during a block.
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
    pub fn cost(mut self, cost: impl Fn(&RequestView<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.options.cost = Some(Box::new(cost));
        self
    }

    /// Exempts requests from the layer: they are not counted, and their responses get no headers. Several
    /// calls add up. Requests that are [refused](Self::accept_dot_segments) are not exempt.
    pub fn skip(mut self, skip: impl Fn(&RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.options.skips.push(Box::new(skip));
        self
    }

    /// Accepts paths with a segment `.` or `..`. By default they are refused with 400, also if the segment is
    /// encoded (`%2e`) or between backslashes or encoded slashes
    /// ([`has_dot_segments`](crate::rules::has_dot_segments)). No client sends such a path by
    /// itself, and handlers, routers and the closures of this builder may read it in different ways.
    ///
    /// If they are accepted, rules apply to every path that servers may read them as.
    ///
    /// ```
    /// use trypema::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::builder().per_second(1).burst_size(10).accept_dot_segments().build()?;
    /// # let _ = layer;
    /// # Ok::<(), trypema::tower::InvalidLayer>(())
    /// ```
    pub fn accept_dot_segments(mut self) -> Self {
        self.options.accepts_dot_segments = true;
        self
    }

    /// Restricts the layer to these methods, in any case. Defaults to all methods. Requests with other methods are
    /// exempt.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.options.methods = Some(methods.into_iter().collect());
        self
    }

    /// Sets the headers that report the remaining quota, on responses to admitted requests and on denials.
    /// Defaults to none. Denials always report the wait, if there is one.
    ///
    /// The equivalent of tower_governor's `use_headers()` is [`HeaderStyle::XRateLimit`], with
    /// `x-ratelimit-reset` instead of `x-ratelimit-after`, and without `x-ratelimit-whitelisted`.
    pub fn use_headers(mut self, style: HeaderStyle) -> Self {
        self.options.headers = style;
        self
    }

    /// Sets a function that creates the responses to denied requests, including gRPC requests. The layer adds
    /// the headers of the chosen style and, for HTTP, `Retry-After` if it is missing.
    pub fn error_handler(
        mut self,
        handler: impl Fn(&Denial<'_>) -> Response<String> + Send + Sync + 'static,
    ) -> Self {
        self.options.error_handler = Some(Box::new(handler));
        self
    }

    /// Counts a request only after its response, and only if `is_charged` returns true for the response. Use
    /// it to count only failed logins, for example.
    ///
    /// Before calling the inner service, the layer only checks whether the request would be allowed; for an
    /// abuse limit, whether the key is blocked. Concurrent requests may therefore all pass before the first
    /// of them is counted. The response is sent after counting, whatever the result: exceeding a limit
    /// affects only the next request. An error of the inner service is not a response and is not counted. For
    /// counted requests, headers show the units that are left after counting. For other requests, they show
    /// the units that would be left if the request were counted.
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

    /// Counts a request before the inner service is called, and refunds it if `is_refunded` returns true for
    /// its response. Use it to refund requests that failed because of the server, for example.
    ///
    /// Nothing is refunded if the client disconnects before the response, if the inner service returns an
    /// error, or if the store fails. Headers show the units that were left when the request was admitted.
    ///
    /// A layer that [reserves](Self::reserve) refunds when the response has ended; slots of concurrency rules
    /// are held until then. If a streaming handler sets the cost after the headers of the response, that cost
    /// counts.
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

    /// Builds the layer. `enforcer` creates the enforcer from the settings.
    fn build_with(
        self,
        enforcer: impl FnOnce(G) -> Result<Enforcer, InvalidLayer>,
    ) -> Result<RateLimitLayer, InvalidLayer> {
        let mut options = self.options;
        (options.count_when, options.is_followed_up) = match (self.charge_if, self.refund_if) {
            (None, None) => (CountWhen::Before, None),
            (is_charged, None) => (CountWhen::After, is_charged),
            (None, is_refunded) => (CountWhen::BeforeWithReceipt, is_refunded),
            (Some(_), Some(_)) => return Err(InvalidLayer::ChargeAndRefund),
        };
        Ok(RateLimitLayer::new(LayerConfig {
            enforcer: enforcer(self.settings)?,
            options,
            log: MisconfigurationLog::default(),
        }))
    }
}

impl<G> fmt::Debug for RateLimitLayerBuilder<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayerBuilder").finish_non_exhaustive()
    }
}
