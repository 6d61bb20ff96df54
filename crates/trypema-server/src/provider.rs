//! Making the limiter and the engine that were chosen.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::Clock;
use trypema::observer::Observer;
use trypema::redis::{RedisConnection, RedisFailureKind};
use trypema::rules::{Engine, RuleSet};
use trypema::{RateLimiter, RateLimiterBuilder, TrypemaError};

use crate::config::{Config, ProviderChoice, RedisChoice};

/// How long the first connection to Redis may take before the service starts without it.
const FIRST_CONNECTION: Duration = Duration::from_secs(2);

/// Which provider decides, for metrics and messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    Memory,
    Redis,
    Hybrid,
}

impl Provider {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Hybrid => "hybrid",
        }
    }
}

/// What decides.
pub(crate) struct Deciding {
    pub(crate) engine: Engine,
    pub(crate) limiter: Arc<RateLimiter>,
    pub(crate) provider: Provider,
}

/// What else a limiter is made with.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// The clock, if it is not the system's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// Who is told of calls to the store.
    pub(crate) observer: Arc<dyn Observer>,
}

/// Makes what was chosen. A Redis that cannot be reached is waited for a moment and then left to come back; one that refuses us is an
/// error, as it will not change its mind.
pub(crate) async fn connect(config: &Config, rules: RuleSet, parts: Parts) -> Result<Deciding, TrypemaError> {
    let mut builder = RateLimiter::builder().max_keys(config.max_keys);
    if let Some(clock) = parts.clock {
        builder = builder.clock(clock);
    }
    let (limiter, provider) = match &config.provider {
        ProviderChoice::Memory => (builder.build()?, Provider::Memory),
        ProviderChoice::Redis(redis) => {
            let builder = builder.observer(parts.observer);
            (with_redis(builder, redis).await?.build()?, Provider::Redis)
        }
        ProviderChoice::Hybrid(redis, interval) => {
            let builder = builder.observer(parts.observer).sync_interval(*interval);
            (with_redis(builder, redis).await?.build()?, Provider::Hybrid)
        }
    };
    let limiter = Arc::new(limiter);
    limiter.run_cleanup_loop();
    let shared = Arc::clone(&limiter);
    let engine = match provider {
        Provider::Memory => Engine::local(shared, rules),
        Provider::Redis => Engine::redis(shared, rules),
        Provider::Hybrid => Engine::hybrid(shared, rules),
    };
    Ok(Deciding { engine, limiter, provider })
}

async fn with_redis(
    builder: RateLimiterBuilder,
    redis: &RedisChoice,
) -> Result<RateLimiterBuilder, TrypemaError> {
    let url = redis.url.reveal();
    let connection = match tokio::time::timeout(FIRST_CONNECTION, RedisConnection::connect(url)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) if is_final(&error) => return Err(error),
        Ok(Err(error)) => {
            tracing::warn!(%error, "redis cannot be reached; starting without it");
            RedisConnection::lazy(url)?
        }
        Err(_) => {
            tracing::warn!("redis does not answer; starting without it");
            RedisConnection::lazy(url)?
        }
    };
    let builder = builder.redis(connection).redis_deadline(redis.deadline).on_redis_failure(redis.on_failure);
    Ok(match redis.prefix.clone() {
        Some(prefix) => builder.redis_prefix(prefix),
        None => builder,
    })
}

fn is_final(error: &TrypemaError) -> bool {
    match error {
        TrypemaError::RedisError(failure) => {
            failure.kind() == RedisFailureKind::Refused || failure.is_login_refused()
        }
        _ => true,
    }
}
