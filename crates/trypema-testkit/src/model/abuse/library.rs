//! The abuse strategy of the library, as tests use it.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::Abuse;
use trypema::{AbuseDecision, AbuseLimit, AbuseTier, TrypemaError};

use super::{AbuseModel, AttemptLimit, Tier, WhileBlocked};
#[cfg(feature = "redis")]
use crate::simulator::fleet::{HasInvariant, Invariant};
use crate::subject::{Detail, LocalStrategy, Modelled, micros};
use crate::trace::{self, Answer, Head, Limit, NoLimit, Value, count, duration, unknown_option};

impl LocalStrategy for AbuseModel {
    type Strategy = Abuse;

    fn limit(limit: &AttemptLimit) -> AbuseLimit {
        let tier = |tier: Tier| {
            let window = Duration::from_micros(tier.window_us);
            AbuseTier::new(window, tier.threshold, Duration::from_micros(tier.block_us)).unwrap()
        };
        limit.while_blocked.apply(AbuseLimit::new(tier(limit.temp), tier(limit.long)))
    }

    fn detail(decision: &AbuseDecision) -> Detail {
        Detail::Abuse {
            scope: decision.scope(),
            short_count: decision.short_count(),
            long_count: decision.long_count(),
            block_us: micros(decision.block_ends_after()),
        }
    }
}

impl Modelled for Abuse {
    type Model = AbuseModel;

    /// An attempt beyond the capacity is blocked for one window.
    fn sized(capacity: u64, window: Duration) -> Result<AbuseLimit, TrypemaError> {
        let tier = AbuseTier::new(window, capacity + 1, window)?;
        Ok(AbuseLimit::new(tier, tier))
    }

    fn parse(words: &[&str]) -> Result<Limit, NoLimit> {
        let (mut short, mut long, mut while_blocked) = (None, None, WhileBlocked::Count);
        for option in words {
            match option.split_once('=') {
                Some(("short", value)) => short = Some(tier(value)?),
                Some(("long", value)) => long = Some(tier(value)?),
                Some(("while_blocked", "lengthen")) => while_blocked = WhileBlocked::Lengthen,
                Some(("while_blocked", "ignore")) => while_blocked = WhileBlocked::Ignore,
                _ => return Err(unknown_option(option)),
            }
        }
        let (Some(short), Some(long)) = (short, long) else {
            return Err(NoLimit::Unreadable("a short and a long tier are needed".to_owned()));
        };
        Ok(Limit::new(while_blocked.apply(AbuseLimit::new(short, long))))
    }

    fn answer(decision: &AbuseDecision) -> Answer {
        let answer = trace::core_answer(decision);
        let head = match decision.scope() {
            Some(scope) => Head::Blocked(scope, decision.retry_after().into()),
            None => answer.head,
        };
        answer
            .headed(head)
            .with("short", Value::Count(decision.short_count()))
            .with("long", Value::Count(decision.long_count()))
            .with_time("end", decision.block_ends_after())
    }
}

/// Parses a tier: window, threshold, block.
fn tier(text: &str) -> Result<AbuseTier, NoLimit> {
    let parts: Vec<&str> = text.split('/').collect();
    let [window, threshold, block] = parts[..] else {
        return Err(NoLimit::Unreadable(format!("`{text}` is no window/threshold/block")));
    };
    let threshold =
        count(threshold).ok_or_else(|| NoLimit::Unreadable(format!("`{threshold}` is no whole number")))?;
    Ok(AbuseTier::new(duration(window)?, threshold, duration(block)?)?)
}

/// Fewer attempts than the lower threshold are admitted.
#[cfg(feature = "redis")]
impl HasInvariant for Abuse {
    fn invariant(limit: &AbuseLimit) -> Invariant {
        let limit = trypema::Limit::from(*limit);
        Invariant::Sliding { capacity: limit.quota(), window_us: limit.window().as_micros() as u64 }
    }
}
