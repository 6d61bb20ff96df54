//! The library's local provider on a manual clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::local::Limiter;
use trypema::strategy::Abuse;
use trypema::{AbuseLimit, LocalRateLimiterOptions, RateLimiter, Receipt, TrypemaError};

use super::answer::{Answer, Head, Value};
use super::limit::{Limit, Seed};
use super::parse::Trace;
use super::provider::{Provider, TimedCall, Unsupported};
use super::step::Verb;
use super::view::{Worded, check_answer, seed_answer};

/// The local provider, every verb of it.
#[derive(Debug)]
pub struct Local {
    clock: Arc<ManualClock>,
    limiter: RateLimiter,
    options: LocalRateLimiterOptions,
    receipts: Receipts,
}

/// What was reserved, by name; `None` where nothing was.
type Receipts = HashMap<String, Option<Receipt>>;

impl Local {
    /// A provider without keys, whose options for the seeds' calls are those that `trace` wants.
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

    /// The seeds' calls take their window once: a trace may not change it under them.
    fn check_options(&self, seed: &Seed) -> Result<(), Unsupported> {
        if seed.options == self.options {
            Ok(())
        } else {
            Err(Unsupported("the seeds' calls keep the window, group and factor of the first limit line"))
        }
    }
}

impl Provider for Local {
    fn call(&mut self, call: TimedCall<'_>) -> Result<Answer, Unsupported> {
        self.clock.set(call.now);
        let local = self.limiter.local();
        match call.limit {
            Limit::Absolute(limit, seed) => match call.verb {
                Verb::Inc(cost) => {
                    self.check_options(seed)?;
                    Ok(seed_answer(local.absolute().inc(call.key, &seed.rate, *cost)))
                }
                Verb::IsAllowed => {
                    self.check_options(seed)?;
                    Ok(seed_answer(local.absolute().is_allowed(call.key)))
                }
                Verb::SetRate(rate) => Ok(truth(local.absolute().set_rate_limit(call.key, rate))),
                _ => core(local.absolute(), limit, call, &mut self.receipts),
            },
            Limit::Suppressed(limit, seed) => match call.verb {
                Verb::Inc(cost) => {
                    self.check_options(seed)?;
                    Ok(seed_answer(local.suppressed().inc(call.key, &seed.rate, *cost)))
                }
                Verb::IsAllowed => {
                    self.check_options(seed)?;
                    Ok(seed_answer(local.suppressed().is_allowed(call.key)))
                }
                Verb::SetRate(rate) => Ok(truth(local.suppressed().set_rate_limit(call.key, rate))),
                _ => core(local.suppressed(), limit, call, &mut self.receipts),
            },
            Limit::TokenBucket(limit) => core(local.token_bucket(), limit, call, &mut self.receipts),
            Limit::FixedWindow(limit) => core(local.fixed_window(), limit, call, &mut self.receipts),
            Limit::SlidingWindow(limit) => core(local.sliding_window(), limit, call, &mut self.receipts),
            Limit::Abuse(limit) => abuse(local.abuse(), limit, call, &mut self.receipts),
        }
    }
}

/// The verbs that every strategy has.
fn core<S: Worded>(
    limiter: &Limiter<S>,
    limit: &S::Limit,
    call: TimedCall<'_>,
    receipts: &mut Receipts,
) -> Result<Answer, Unsupported> {
    let key = call.key;
    Ok(match call.verb {
        Verb::Take(cost) => S::answer(&limiter.take(key, limit, *cost)),
        Verb::Peek(cost) => S::answer(&limiter.peek(key, limit, *cost)),
        Verb::Usage => S::answer(&limiter.usage(key, limit)),
        Verb::UpTo(cost) => {
            let most = limiter.take_up_to(key, limit, *cost);
            S::answer(&most.decision).headed(Head::Granted(most.units))
        }
        Verb::Reserve { cost, name, lease } => {
            let reservation = limiter.reserve_for(key, limit, *cost, *lease);
            let answer = S::answer(&reservation.decision);
            let answer = stamped(answer, call, reservation.receipt.as_ref());
            receipts.insert(name.clone(), reservation.receipt);
            answer
        }
        Verb::Refund(name) => {
            let receipt = receipts.get(name).copied().flatten();
            let receipt = receipt.ok_or(Unsupported("a refund of what was not taken"))?;
            Answer::new(Head::Refunded(limiter.refund(key, limit, &receipt)))
        }
        Verb::RefundUnits(units) => Answer::new(Head::Refunded(limiter.refund_units(key, limit, *units))),
        Verb::Reset => truth(limiter.reset(key)),
        Verb::Forget => {
            limiter.forget_stale(Duration::ZERO);
            Answer::new(Head::Done).with("keys", Value::Count(limiter.len() as u64))
        }
        _ => return Err(Unsupported("a verb that this strategy does not have")),
    })
}

/// What only the abuse strategy has.
fn abuse(
    limiter: &Limiter<Abuse>,
    limit: &AbuseLimit,
    call: TimedCall<'_>,
    receipts: &mut Receipts,
) -> Result<Answer, Unsupported> {
    match call.verb {
        Verb::Check => Ok(check_answer(limiter.check(call.key, limit))),
        Verb::Block(scope, duration) => {
            limiter.block(call.key, *duration, *scope);
            Ok(Answer::new(Head::Done))
        }
        Verb::Unblock => Ok(truth(limiter.unblock(call.key))),
        _ => core(limiter, limit, call, receipts),
    }
}

/// Adds how far ahead the units of `receipt` are counted.
fn stamped(answer: Answer, call: TimedCall<'_>, receipt: Option<&Receipt>) -> Answer {
    let Some(receipt) = receipt else {
        return answer;
    };
    let ahead_us = receipt.recorded_at().as_micros().saturating_sub(call.now.as_micros());
    answer.with_time("stamp", Duration::from_micros(ahead_us))
}

fn truth(is_so: bool) -> Answer {
    Answer::new(Head::Truth(is_so))
}
