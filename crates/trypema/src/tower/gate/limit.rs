//! The gate with one limit.

mod alone;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use super::super::incoming::Incoming;
use super::super::key::KeyExtractor;
use super::{Asked, Counting, Finding, Found, Settled, Terms, Told, Trouble};
use crate::decision::Decision;
use crate::http::{ErrorCode, Policy, Standing};
use crate::rate_limiter::RateLimiter;
use crate::rules::{SelectProvider, counter};
use crate::strategy::Limit;

/// A limit, the location of its counters, and the extractor of keys.
pub(in super::super) struct LimitGate {
    pub(in super::super) name: Box<str>,
    pub(in super::super) limit: Limit,
    pub(in super::super) quota: u64,
    pub(in super::super) window: Duration,
    pub(in super::super) standing: Standing,
    pub(in super::super) limiter: Arc<RateLimiter>,
    pub(in super::super) place: Place,
    pub(in super::super) key_extractor: Box<dyn KeyExtractor>,
}

/// The location of a limit's counters.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Place {
    /// In this process, in a limiter that only this layer uses.
    Alone,
    /// In a provider that other layers and callers may use.
    Shared(SelectProvider),
}

impl LimitGate {
    fn finding(self: &Arc<Self>, decision: Decision) -> Finding {
        Finding::Limit { gate: Arc::clone(self), decision }
    }

    pub(super) fn told<'a>(&'a self, decision: &'a Decision) -> Told<'a> {
        let policy = Policy { name: &self.name, quota: self.quota, window: Some(self.window), decision };
        Told::Limit { policy, standing: &self.standing, code: ErrorCode::of_limit(&self.limit) }
    }

    #[inline]
    pub(super) fn ask(self: &Arc<Self>, request: &Incoming<'_>, terms: Terms) -> Asked {
        let Some(key) = self.key_extractor.extract(request) else {
            return Asked::Now(Err(Trouble::NoKey(self.key_extractor.advice())));
        };
        match self.place {
            // No other counters are in this limiter, so the key alone is a sufficient name.
            Place::Alone if terms.counting == Counting::Before => {
                self.ask_alone(key.bytes(&mut [0; 9]), terms)
            }
            Place::Alone => self.ask_shared(|limiter| limiter.local(), key.as_str().to_owned(), terms),
            Place::Shared(select) => self.ask_shared(select, self.counter(key.as_str()), terms),
        }
    }

    /// Returns the name of a key's counter in a shared provider. Its only attribute name is empty, so it
    /// cannot be the counter of a rule.
    fn counter(&self, key: &str) -> String {
        let mut text = String::with_capacity(self.name.len() + "|=".len() + key.len());
        counter::write(&mut text, &self.name, std::iter::once(("", counter::Value::Text(key))));
        text
    }

    /// Returns the cost for checking a request that is counted after its response. It is 0 for abuse limits,
    /// which are only checked for a block.
    fn looking(&self, cost: u64) -> u64 {
        if matches!(self.limit, Limit::Abuse(_)) { 0 } else { cost }
    }
}
