//! The library's Redis provider on a manual clock.
#![allow(clippy::expect_used, reason = "a test whose Redis cannot be asked should stop right there")]

use std::sync::Arc;

use trypema::clock::ManualClock;
use trypema::redis::{RedisConnection, RedisLimiter, RedisReceipt};
use trypema::strategy::{Abuse, WindowStrategy, Wire, with_strategy};
use trypema::{AbuseLimit, LocalRateLimiterOptions, RateLimiter, TrypemaError};

use super::answer::{Answer, Head};
use super::core::{Receipts, core, truth};
use super::parse::Trace;
use super::provider::{Provider, TimedCall, Unsupported};
use super::step::Verb;
use super::view::{check_answer, compat_answer};
use crate::blocking::{self, Blocking, key, wait_for};

/// The Redis provider with all of its verbs but `forget`, because keys expire by themselves.
#[derive(Debug)]
pub struct OnRedis {
    clock: Arc<ManualClock>,
    limiter: RateLimiter,
    options: LocalRateLimiterOptions,
    receipts: Receipts<RedisReceipt>,
}

impl OnRedis {
    /// Creates a provider whose keys start with `prefix`. Calls of the trypema 1.x API use the options of
    /// `trace`.
    pub fn for_trace(
        trace: &Trace,
        connection: &RedisConnection,
        prefix: &str,
    ) -> Result<Self, TrypemaError> {
        let options = trace.window_options()?;
        let clock = Arc::new(ManualClock::default());
        let builder = blocking::limiter(connection, prefix, &clock)
            .window_size_seconds(options.window_size_seconds)
            .rate_group_size_ms(options.rate_group_size_ms)
            .hard_limit_factor(options.hard_limit_factor);
        Ok(Self { clock, limiter: builder.build()?, options, receipts: Receipts::new() })
    }
}

impl Provider for OnRedis {
    fn call(&mut self, call: TimedCall<'_>) -> Result<Answer, Unsupported> {
        self.clock.set(call.now);
        let redis = self.limiter.redis();
        let own = match &call.limit.limit {
            trypema::Limit::Absolute(_) => self.compat(redis.absolute(), call)?,
            trypema::Limit::Suppressed(_) => self.compat(redis.suppressed(), call)?,
            trypema::Limit::Abuse(limit) => abuse(redis.abuse(), limit, call),
            _ => None,
        };
        match own {
            Some(answer) => Ok(answer),
            None => with_strategy!(&call.limit.limit, |S, limit| {
                core(&Blocking(redis.limiter::<S>()), limit, call, &mut self.receipts)
            }),
        }
    }
}

impl OnRedis {
    /// Makes a call of the trypema 1.x API. Returns `None` if it is another verb.
    fn compat<S: WindowStrategy + Wire>(
        &self,
        limiter: &RedisLimiter<S>,
        call: TimedCall<'_>,
    ) -> Result<Option<Answer>, Unsupported> {
        let (Some(compat), key) = (call.limit.compat, key(call.key)) else { return Ok(None) };
        let answer = match call.verb {
            Verb::Inc(cost) => wait_for(limiter.inc(&key, &compat.rate, *cost)),
            Verb::IsAllowed => wait_for(limiter.is_allowed(&key)),
            Verb::SetRate(rate) => {
                return Ok(Some(truth(wait_for(limiter.set_rate_limit(&key, rate)).expect("an answer"))));
            }
            _ => return Ok(None),
        };
        compat.check(&self.options)?;
        Ok(Some(compat_answer(answer.expect("a decision"))))
    }
}

/// Calls a verb that only the abuse strategy has. Returns `None` if it is another one.
fn abuse(limiter: &RedisLimiter<Abuse>, limit: &AbuseLimit, call: TimedCall<'_>) -> Option<Answer> {
    let key = key(call.key);
    Some(match call.verb {
        Verb::Check => check_answer(wait_for(limiter.check(&key, limit)).expect("a decision")),
        Verb::Block(scope, duration) => {
            wait_for(limiter.block(&key, *duration, *scope)).expect("an answer");
            Answer::new(Head::Done)
        }
        Verb::Unblock => truth(wait_for(limiter.unblock(&key)).expect("an answer")),
        _ => return None,
    })
}
