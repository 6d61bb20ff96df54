//! Builds the limiter and the engine of the configured provider.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::Clock;
use trypema::observer::Observer;
use trypema::redis::{OnFailure, RedisConnection, RedisFailureKind};
use trypema::rules::{Engine, RuleSet};
use trypema::{RateLimiter, RateLimiterBuilder, TrypemaError};

use crate::config::{Config, RedisConfig};
use crate::settings::{FailurePolicy, Provider, Values};

/// The time that the first connection to Redis may take. After it, the server starts without Redis.
const FIRST_CONNECTION: Duration = Duration::from_secs(2);

/// The engine that decides, and the limiter behind it.
pub(crate) struct EngineAndLimiter {
    pub(crate) engine: Arc<Engine>,
    pub(crate) limiter: Arc<RateLimiter>,
    pub(crate) provider: Provider,
    /// Whether Redis has answered. `false` for [`Provider::Memory`].
    pub(crate) is_connected: bool,
}

/// Dependencies of the limiter that are not settings.
#[derive(Debug, Clone)]
pub(crate) struct LimiterDependencies {
    /// The clock; `None` for the system's clock.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// The observer of calls to Redis.
    pub(crate) observer: Arc<dyn Observer>,
    /// The observer of reservations.
    pub(crate) reservations: Arc<dyn Observer>,
}

/// Builds the limiter and the engine of the configured provider. If Redis is unreachable, the server waits
/// up to [`FIRST_CONNECTION`], then starts and reconnects later. If Redis rejects the login or the
/// commands, this returns an error, because a later attempt would be rejected as well.
pub(crate) async fn connect(
    config: &Config,
    rules: RuleSet,
    dependencies: LimiterDependencies,
) -> Result<EngineAndLimiter, TrypemaError> {
    let (values, provider) = (&config.values, config.provider);
    let mut builder = RateLimiter::builder().max_keys(values.max_keys);
    if let Some(clock) = dependencies.clock {
        builder = builder.clock(clock);
    }
    if provider == Provider::Hybrid {
        builder = builder.sync_interval(values.sync_interval.0);
    }
    let (builder, is_connected) = match &config.redis {
        Some(redis) => with_redis(builder.observer(dependencies.observer), redis, values).await?,
        None => (builder, false),
    };
    let limiter = Arc::new(builder.build()?);
    limiter.run_cleanup_loop();
    let shared = Arc::clone(&limiter);
    let engine = match provider {
        Provider::Memory => Engine::local(shared, rules),
        Provider::Redis => Engine::redis(shared, rules),
        Provider::Hybrid => Engine::hybrid(shared, rules),
    };
    let engine = Arc::new(engine.observed_by(dependencies.reservations));
    Ok(EngineAndLimiter { engine, limiter, provider, is_connected })
}

/// Returns the builder with a connection, and whether Redis has answered.
async fn with_redis(
    builder: RateLimiterBuilder,
    redis: &RedisConfig,
    values: &Values,
) -> Result<(RateLimiterBuilder, bool), TrypemaError> {
    let (url, policy) = (redis.url.reveal(), values.on_store_failure);
    let connecting = tokio::time::timeout(FIRST_CONNECTION, RedisConnection::connect(url)).await;
    let connected = match connecting {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) if is_final(&error) => return Err(error),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no reply within {} s", FIRST_CONNECTION.as_secs())),
    };
    let is_connected = connected.is_ok();
    let connection = match connected {
        Ok(connection) => connection,
        Err(error) => {
            tracing::warn!(
                "store: Redis is unreachable ({error}); starting anyway, applying on_store_failure={policy}, or the \
                 rule's own, until it recovers"
            );
            RedisConnection::lazy(url)?
        }
    };
    let on_failure = match policy {
        FailurePolicy::Error => OnFailure::Fail,
        FailurePolicy::Allow => OnFailure::Allow,
        FailurePolicy::Deny => OnFailure::Deny,
        FailurePolicy::Local => OnFailure::Local { instances: redis.instances },
    };
    let mut builder =
        builder.redis(connection).redis_deadline(values.redis_deadline.0).on_redis_failure(on_failure);
    if let Some(prefix) = redis.prefix.clone() {
        builder = builder.redis_prefix(prefix);
    }
    Ok((builder, is_connected))
}

fn is_final(error: &TrypemaError) -> bool {
    match error {
        TrypemaError::RedisError(failure) => {
            failure.kind() == RedisFailureKind::Refused || failure.is_login_refused()
        }
        _ => true,
    }
}
