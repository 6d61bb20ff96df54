//! The enforcer with one limit.

mod own;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use super::super::key::KeyExtractor;
use super::super::view::RequestView;
use super::{
    AfterResponseResult, CheckOutcome, CheckedRequest, CountWhen, CountingOptions, DecisionReport,
    EnforcerError, LayerDecision,
};
use crate::decision::Decision;
use crate::http::{ErrorCode, Policy, QuotaUnit, StaticHeaders};
use crate::provider::Provider;
use crate::rate_limiter::RateLimiter;
use crate::rules::{SelectProvider, counter};
use crate::strategy::Limit;

/// A limit, the location of its counters, and the extractor of keys.
pub(in super::super) struct LimitEnforcer {
    pub(in super::super) name: Box<str>,
    pub(in super::super) limit: Limit,
    pub(in super::super) quota: u64,
    pub(in super::super) window: Option<Duration>,
    pub(in super::super) unit: QuotaUnit,
    pub(in super::super) static_headers: StaticHeaders,
    pub(in super::super) limiter: Arc<RateLimiter>,
    pub(in super::super) location: CounterLocation,
    pub(in super::super) key_extractor: Box<dyn KeyExtractor>,
}

/// The location of a limit's counters.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum CounterLocation {
    /// In this process, in a limiter that only this layer uses.
    OwnLimiter,
    /// In a provider that other layers and callers may use.
    Shared(SelectProvider),
}

impl LimitEnforcer {
    fn layer_decision(self: &Arc<Self>, decision: Decision) -> LayerDecision {
        LayerDecision::Limit { enforcer: Arc::clone(self), decision }
    }

    pub(super) fn report<'a>(&'a self, decision: &'a Decision) -> DecisionReport<'a> {
        let Self { quota, window, unit, .. } = *self;
        let policy = Policy { name: &self.name, quota, window, unit, decision };
        DecisionReport::Limit {
            policy,
            static_headers: &self.static_headers,
            code: ErrorCode::of_limit(&self.limit),
        }
    }

    #[inline]
    pub(super) fn check(
        self: &Arc<Self>,
        request: &RequestView<'_>,
        options: CountingOptions,
    ) -> CheckOutcome {
        let Some(key) = self.key_extractor.extract(request) else {
            return CheckOutcome::Ready(Err(EnforcerError::MissingKey(self.key_extractor.advice())));
        };
        match self.location {
            // No other counters are in this limiter, so the key alone is a sufficient name.
            CounterLocation::OwnLimiter if options.count_when == CountWhen::Before => {
                self.check_in_own_limiter(key.bytes(&mut [0; 9]), options)
            }
            CounterLocation::OwnLimiter => self.check_in_provider(
                |limiter| Provider::Local(limiter.local()),
                key.as_str().to_owned(),
                options,
            ),
            CounterLocation::Shared(select) => {
                self.check_in_provider(select, self.counter(key.as_str()), options)
            }
        }
    }

    /// Returns the name of a key's counter in a shared provider. Its only attribute name is empty, so it
    /// cannot be the counter of a rule.
    fn counter(&self, key: &str) -> String {
        let mut text = String::with_capacity(self.name.len() + "|=".len() + key.len());
        counter::write(&mut text, &self.name, std::iter::once(("", counter::PlaceholderValue::Text(key))));
        text
    }

    /// Returns the cost for checking a request that is counted after its response. It is 0 for abuse limits,
    /// which are only checked for a block.
    fn peek_cost(&self, cost: u64) -> u64 {
        if self.limit.counts_attempts() { 0 } else { cost }
    }
}
