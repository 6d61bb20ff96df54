//! The library's Redis provider on a manual clock.
#![allow(clippy::expect_used, reason = "a test whose Redis cannot be asked should stop right there")]

use std::sync::Arc;

use trypema::clock::ManualClock;
use trypema::redis::{RedisConnection, RedisLimiter, RedisReceipt};
use trypema::strategy::Abuse;
use trypema::{AbuseLimit, LocalRateLimiterOptions, RateLimiter, TrypemaError};

use super::answer::{Answer, Head};
use super::core::{Receipts, core, truth};
use super::limit::Limit;
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
        let (redis, key) = (self.limiter.redis(), key(call.key));
        let receipts = &mut self.receipts;
        match call.limit {
            Limit::Absolute(limit, compat) => {
                let absolute = redis.absolute();
                let answer = match call.verb {
                    Verb::Inc(cost) => wait_for(absolute.inc(&key, &compat.rate, *cost)),
                    Verb::IsAllowed => wait_for(absolute.is_allowed(&key)),
                    Verb::SetRate(rate) => {
                        return Ok(truth(wait_for(absolute.set_rate_limit(&key, rate)).expect("an answer")));
                    }
                    _ => return core(&Blocking(absolute), limit, call, receipts),
                };
                compat.check(&self.options)?;
                Ok(compat_answer(answer.expect("a decision")))
            }
            Limit::Suppressed(limit, compat) => {
                let suppressed = redis.suppressed();
                let answer = match call.verb {
                    Verb::Inc(cost) => wait_for(suppressed.inc(&key, &compat.rate, *cost)),
                    Verb::IsAllowed => wait_for(suppressed.is_allowed(&key)),
                    Verb::SetRate(rate) => {
                        return Ok(truth(
                            wait_for(suppressed.set_rate_limit(&key, rate)).expect("an answer"),
                        ));
                    }
                    _ => return core(&Blocking(suppressed), limit, call, receipts),
                };
                compat.check(&self.options)?;
                Ok(compat_answer(answer.expect("a decision")))
            }
            Limit::TokenBucket(limit) => core(&Blocking(redis.token_bucket()), limit, call, receipts),
            Limit::FixedWindow(limit) => core(&Blocking(redis.fixed_window()), limit, call, receipts),
            Limit::SlidingWindow(limit) => core(&Blocking(redis.sliding_window()), limit, call, receipts),
            Limit::Abuse(limit) => abuse(redis.abuse(), limit, call, receipts),
            Limit::Concurrency(limit) => core(&Blocking(redis.concurrency()), limit, call, receipts),
        }
    }
}

/// Calls a verb of the abuse strategy.
fn abuse(
    limiter: &RedisLimiter<Abuse>,
    limit: &AbuseLimit,
    call: TimedCall<'_>,
    receipts: &mut Receipts<RedisReceipt>,
) -> Result<Answer, Unsupported> {
    let key = key(call.key);
    match call.verb {
        Verb::Check => Ok(check_answer(wait_for(limiter.check(&key, limit)).expect("a decision"))),
        Verb::Block(scope, duration) => {
            wait_for(limiter.block(&key, *duration, *scope)).expect("an answer");
            Ok(Answer::new(Head::Done))
        }
        Verb::Unblock => Ok(truth(wait_for(limiter.unblock(&key)).expect("an answer"))),
        _ => core(&Blocking(limiter), limit, call, receipts),
    }
}
