//! The builder of layers with one limit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::enforcer::{CounterLocation, Enforcer, LimitEnforcer};
use super::super::extractors::PeerIpKeyExtractor;
use super::super::invalid::InvalidLayer;
use super::super::key::KeyExtractor;
use super::super::layer::RateLimitLayer;
use super::RateLimitLayerBuilder;
use crate::http::{Quota, QuotaUnit, StaticHeaders};
use crate::provider::Provider;
use crate::rate_limiter::RateLimiter;
use crate::rules::REQUESTS;
use crate::strategy::{Limit, TokenBucketLimits, TokenLimit};

/// The defaults of tower_governor for a period or burst size that is not set.
const DEFAULT_PERIOD: Duration = Duration::from_millis(500);
const DEFAULT_BURST_SIZE: u32 = 8;

/// The policy name if none is set.
const DEFAULT_NAME: &str = "default";

/// The longest name in bytes, the same as for rule ids. The name is part of every counter name and of
/// response headers.
const MAX_NAME_BYTES: usize = 64;

/// The most keys in a layer's own limiter: more than a service has clients, and few enough that an attacker
/// with many addresses does not exhaust the memory. Beyond it, new keys share counters.
const MAX_OWN_KEYS: usize = 1_000_000;

/// The settings of a layer with one limit. See [`RateLimitLayer::builder`].
pub struct ByLimit {
    limit: Option<Limit>,
    period: Option<Duration>,
    burst_size: Option<u32>,
    name: Option<String>,
    counters: Option<CounterStore>,
    key_extractor: Box<dyn KeyExtractor>,
}

/// A limiter that other layers and callers may use as well.
struct CounterStore {
    limiter: Arc<RateLimiter>,
    location: CounterLocation,
}

impl RateLimitLayerBuilder<ByLimit> {
    pub(in super::super) fn by_limit() -> Self {
        Self::new(ByLimit {
            limit: None,
            period: None,
            burst_size: None,
            name: None,
            counters: None,
            key_extractor: Box::new(PeerIpKeyExtractor),
        })
    }

    /// Sets the limit, of any strategy.
    pub fn limit(mut self, limit: impl Into<Limit>) -> Self {
        self.settings.limit = Some(limit.into());
        self
    }

    /// Sets a token bucket that gains one token per `period`. Use it with [`burst_size`](Self::burst_size),
    /// in place of [`limit`](Self::limit). Defaults to 500 ms if only the burst size is set.
    pub fn period(mut self, period: Duration) -> Self {
        self.settings.period = Some(period);
        self
    }

    /// Sets the [`period`](Self::period) in seconds. As in tower_governor, `per_second(4)` is one request
    /// every four seconds, not four requests per second.
    pub fn per_second(self, seconds: u64) -> Self {
        self.period(Duration::from_secs(seconds))
    }

    /// Sets the [`period`](Self::period) in milliseconds.
    pub fn per_millisecond(self, milliseconds: u64) -> Self {
        self.period(Duration::from_millis(milliseconds))
    }

    /// Sets the capacity of the token bucket that gains one token per [`period`](Self::period). The bucket
    /// starts full. Defaults to 8 if only the period is set.
    pub fn burst_size(mut self, tokens: u32) -> Self {
        self.settings.burst_size = Some(tokens);
        self
    }

    /// Sets the name of the limit, for headers and counter names. Layers on the same limiter share counters
    /// if they have the same name. Letters, digits, `_`, `-` and `.`; at most 64.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Counts in this process, in `limiter`, with its clock and its observer. Requires a
    /// [`name`](Self::name).
    ///
    /// Without a limiter, the layer creates its own for a million keys. Beyond that number, new keys share
    /// counters.
    pub fn limiter(mut self, limiter: Arc<RateLimiter>) -> Self {
        self.settings.counters = Some(CounterStore {
            limiter,
            location: CounterLocation::Shared(|limiter| Provider::Local(limiter.local())),
        });
        self
    }

    /// Counts in the Redis of `limiter`. Requires a [`name`](Self::name).
    ///
    /// The limiter's failure policy applies while Redis is unreachable. By default, and with
    /// [`OnFailure::Deny`](crate::redis::OnFailure::Deny), the response is a 503.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn redis(mut self, limiter: Arc<RateLimiter>) -> Self {
        self.settings.counters = Some(CounterStore {
            limiter,
            location: CounterLocation::Shared(|limiter| Provider::Redis(limiter.redis())),
        });
        self
    }

    /// Counts in the Redis of `limiter`, with leases: see [`hybrid`](crate::hybrid). Requires a
    /// [`name`](Self::name), and a running
    /// [`keep_in_sync`](crate::hybrid::HybridRateLimiterProvider::keep_in_sync) task.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn hybrid(mut self, limiter: Arc<RateLimiter>) -> Self {
        self.settings.counters = Some(CounterStore {
            limiter,
            location: CounterLocation::Shared(|limiter| Provider::Hybrid(limiter.hybrid())),
        });
        self
    }

    /// Sets the extractor of the key that a request is counted under. Defaults to the peer's address
    /// ([`PeerIpKeyExtractor`]). The response to a request without a key is a 500.
    pub fn key_extractor(mut self, key_extractor: impl KeyExtractor) -> Self {
        self.settings.key_extractor = Box::new(key_extractor);
        self
    }

    /// Builds the layer. Fails if a setting is invalid.
    pub fn build(self) -> Result<RateLimitLayer, InvalidLayer> {
        self.build_with(|settings| Ok(Enforcer::Limit(Arc::new(settings.into_enforcer()?))))
    }

    /// The same as [`build`](Self::build), under tower_governor's name.
    pub fn finish(self) -> Result<RateLimitLayer, InvalidLayer> {
        self.build()
    }
}

impl ByLimit {
    fn into_enforcer(self) -> Result<LimitEnforcer, InvalidLayer> {
        let limit = self.chosen_limit()?;
        if let Some(name) = self.name.as_deref().filter(|name| !is_name(name)) {
            let given = name.chars().take(MAX_NAME_BYTES).collect();
            return Err(InvalidLayer::Name { given, max_bytes: MAX_NAME_BYTES });
        }
        let CounterStore { limiter, location } = match (self.counters, &self.name) {
            (Some(_), None) => return Err(InvalidLayer::NoName),
            (Some(counters), Some(_)) => counters,
            (None, _) => CounterStore::own()?,
        };
        let name = self.name.as_deref().unwrap_or(DEFAULT_NAME);
        let (quota, unit) = (limit.quota(), QuotaUnit::of(&limit, REQUESTS));
        let window = unit.window_of(&limit);
        Ok(LimitEnforcer {
            name: name.into(),
            quota,
            window,
            unit,
            static_headers: StaticHeaders::new(name, Quota { units: quota, window, unit }),
            limit,
            limiter,
            location,
            key_extractor: self.key_extractor,
        })
    }

    fn chosen_limit(&self) -> Result<Limit, InvalidLayer> {
        match (&self.limit, self.period, self.burst_size) {
            (Some(limit), None, None) => Ok(limit.clone()),
            (None, None, None) => Err(InvalidLayer::NoLimit),
            (None, period, burst_size) => {
                let tokens = burst_size.unwrap_or(DEFAULT_BURST_SIZE);
                let refill = period.unwrap_or(DEFAULT_PERIOD).saturating_mul(tokens);
                let bucket = TokenLimit::new(u64::from(tokens), refill)?;
                Ok(Limit::from(TokenBucketLimits::from(bucket)))
            }
            (Some(_), ..) => Err(InvalidLayer::TwoLimits),
        }
    }
}

impl CounterStore {
    fn own() -> Result<Self, InvalidLayer> {
        let limiter = RateLimiter::builder().max_keys(MAX_OWN_KEYS).build()?;
        Ok(Self { limiter: Arc::new(limiter), location: CounterLocation::OwnLimiter })
    }
}

fn is_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_fine)
}

impl fmt::Debug for ByLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ByLimit");
        debug.field("limit", &self.limit).field("name", &self.name).finish_non_exhaustive()
    }
}
