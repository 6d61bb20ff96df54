//! The library's local provider on a manual clock.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::local::LocalLimiter;
use trypema::strategy::Abuse;
use trypema::{AbuseLimit, LocalRateLimiterOptions, LocalReceipt, RateLimiter, TrypemaError};

use super::answer::{Answer, Head, Value};
use super::core::{Receipts, core, truth};
use super::limit::Limit;
use super::parse::Trace;
use super::provider::{Provider, TimedCall, Unsupported};
use super::step::Verb;
use super::view::{check_answer, compat_answer};

/// The local provider with all of its verbs.
#[derive(Debug)]
pub struct Local {
    clock: Arc<ManualClock>,
    limiter: RateLimiter,
    options: LocalRateLimiterOptions,
    receipts: Receipts<LocalReceipt>,
}

impl Local {
    /// Creates a provider without keys. Calls of the trypema 1.x API use the options of `trace`.
    pub fn for_trace(trace: &Trace) -> Result<Self, TrypemaError> {
        let options = trace.window_options()?;
        let clock = Arc::new(ManualClock::default());
        let builder = RateLimiter::builder()
            .window_size_seconds(options.window_size_seconds)
            .rate_group_size_ms(options.rate_group_size_ms)
            .hard_limit_factor(options.hard_limit_factor);
        let limiter = builder.clock(clock.clone()).build()?;
        Ok(Self { clock, limiter, options, receipts: Receipts::new() })
    }

    /// Removes stale keys. Returns the number of keys left under the strategy of `limit`.
    fn forget(&self, limit: &Limit) -> Answer {
        let local = self.limiter.local();
        local.forget_stale(Duration::ZERO);
        let keys = match limit {
            Limit::Absolute(..) => local.absolute().len(),
            Limit::Suppressed(..) => local.suppressed().len(),
            Limit::TokenBucket(_) => local.token_bucket().len(),
            Limit::FixedWindow(_) => local.fixed_window().len(),
            Limit::SlidingWindow(_) => local.sliding_window().len(),
            Limit::Abuse(_) => local.abuse().len(),
            Limit::Concurrency(_) => local.concurrency().len(),
        };
        Answer::new(Head::Done).with("keys", Value::Count(keys as u64))
    }
}

impl Provider for Local {
    fn call(&mut self, call: TimedCall<'_>) -> Result<Answer, Unsupported> {
        self.clock.set(call.now);
        if let Verb::Forget = call.verb {
            return Ok(self.forget(call.limit));
        }
        let local = self.limiter.local();
        match call.limit {
            Limit::Absolute(limit, compat) => match call.verb {
                Verb::Inc(cost) => {
                    compat.check(&self.options)?;
                    Ok(compat_answer(local.absolute().inc(call.key, &compat.rate, *cost)))
                }
                Verb::IsAllowed => {
                    compat.check(&self.options)?;
                    Ok(compat_answer(local.absolute().is_allowed(call.key)))
                }
                Verb::SetRate(rate) => Ok(truth(local.absolute().set_rate_limit(call.key, rate))),
                _ => core::<_, &LocalLimiter<_>>(&&**local.absolute(), limit, call, &mut self.receipts),
            },
            Limit::Suppressed(limit, compat) => match call.verb {
                Verb::Inc(cost) => {
                    compat.check(&self.options)?;
                    Ok(compat_answer(local.suppressed().inc(call.key, &compat.rate, *cost)))
                }
                Verb::IsAllowed => {
                    compat.check(&self.options)?;
                    Ok(compat_answer(local.suppressed().is_allowed(call.key)))
                }
                Verb::SetRate(rate) => Ok(truth(local.suppressed().set_rate_limit(call.key, rate))),
                _ => core::<_, &LocalLimiter<_>>(&&**local.suppressed(), limit, call, &mut self.receipts),
            },
            Limit::TokenBucket(limit) => core(&local.token_bucket(), limit, call, &mut self.receipts),
            Limit::FixedWindow(limit) => core(&local.fixed_window(), limit, call, &mut self.receipts),
            Limit::SlidingWindow(limit) => core(&local.sliding_window(), limit, call, &mut self.receipts),
            Limit::Abuse(limit) => abuse(local.abuse(), limit, call, &mut self.receipts),
            Limit::Concurrency(limit) => core(&local.concurrency(), limit, call, &mut self.receipts),
        }
    }
}

/// Calls a verb of the abuse strategy.
fn abuse(
    limiter: &LocalLimiter<Abuse>,
    limit: &AbuseLimit,
    call: TimedCall<'_>,
    receipts: &mut Receipts<LocalReceipt>,
) -> Result<Answer, Unsupported> {
    match call.verb {
        Verb::Check => Ok(check_answer(limiter.check(call.key, limit))),
        Verb::Block(scope, duration) => {
            limiter.block(call.key, *duration, *scope);
            Ok(Answer::new(Head::Done))
        }
        Verb::Unblock => Ok(truth(limiter.unblock(call.key))),
        _ => core(&limiter, limit, call, receipts),
    }
}
