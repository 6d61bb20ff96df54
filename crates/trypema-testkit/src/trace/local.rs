//! The library's local provider on a manual clock.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::local::LocalLimiter;
use trypema::strategy::{Abuse, WindowStrategy, with_strategy};
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
        let keys = with_strategy!(&limit.limit, |S, _limit| local.limiter::<S>().len());
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
        let own = match &call.limit.limit {
            trypema::Limit::Absolute(_) => self.compat(local.absolute(), call)?,
            trypema::Limit::Suppressed(_) => self.compat(local.suppressed(), call)?,
            trypema::Limit::Abuse(limit) => abuse(local.abuse(), limit, call),
            _ => None,
        };
        match own {
            Some(answer) => Ok(answer),
            None => with_strategy!(&call.limit.limit, |S, limit| {
                core(&local.limiter::<S>(), limit, call, &mut self.receipts)
            }),
        }
    }
}

impl Local {
    /// Makes a call of the trypema 1.x API. Returns `None` if it is another verb.
    fn compat<S: WindowStrategy>(
        &self,
        limiter: &LocalLimiter<S>,
        call: TimedCall<'_>,
    ) -> Result<Option<Answer>, Unsupported> {
        let Some(compat) = call.limit.compat else { return Ok(None) };
        let answer = match call.verb {
            Verb::Inc(cost) => limiter.inc(call.key, &compat.rate, *cost),
            Verb::IsAllowed => limiter.is_allowed(call.key),
            Verb::SetRate(rate) => return Ok(Some(truth(limiter.set_rate_limit(call.key, rate)))),
            _ => return Ok(None),
        };
        compat.check(&self.options)?;
        Ok(Some(compat_answer(answer)))
    }
}

/// Calls a verb that only the abuse strategy has. Returns `None` if it is another one.
fn abuse(limiter: &LocalLimiter<Abuse>, limit: &AbuseLimit, call: TimedCall<'_>) -> Option<Answer> {
    Some(match call.verb {
        Verb::Check => check_answer(limiter.check(call.key, limit)),
        Verb::Block(scope, duration) => {
            limiter.block(call.key, *duration, *scope);
            Answer::new(Head::Done)
        }
        Verb::Unblock => truth(limiter.unblock(call.key)),
        _ => return None,
    })
}
