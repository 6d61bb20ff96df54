//! Several checks that are spent all or nothing.

use std::time::Duration;

use super::ask::{Ask, Told, Verb};
use super::failure::{RedisFailure, RedisFailureKind};
use super::key::RedisKey;
use super::limiter::{Asking, Limiter};
use super::store::Store;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::{Decision, When};
use crate::error::TrypemaError;
use crate::observer::{Event, Failure, Observer};
use crate::strategy::{Call, Wire};

/// More checks than any set of rules applies to one request, few enough to bound a script call.
const MAX_CHECKS: usize = 64;

/// One take of several that are spent all or nothing; made by [`Limiter::check_of`].
pub struct Check<'l> {
    strategy: &'static str,
    key: RedisKey,
    ask: Ask,
    read: Read<'l>,
}

/// Makes a decision of what a script told.
type Read<'l> = Box<dyn Fn(&Told) -> Option<Decision> + Send + Sync + 'l>;

impl std::fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check").field("ask", &self.ask).finish_non_exhaustive()
    }
}

/// What became of checks that were asked together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Together {
    /// Whether all were admitted. If not, none was spent; what strategies count of denials was counted.
    pub is_allowed: bool,
    /// What each check was answered, in their order, as if it had been the only one.
    pub decisions: Vec<Decision>,
}

impl<S: Wire> Limiter<S> {
    /// A take of `cost`, to be asked together with others by
    /// [`take_all`](super::RedisRateLimiterProvider::take_all).
    pub fn check_of<'l>(&self, key: &RedisKey, limit: &'l S::Limit, cost: u64) -> Check<'l> {
        let read = move |told: &Told| {
            let call = Call::new(told.now, cost);
            let outcome = S::read_outcome(limit, &mut told.facts(), call, told.spent)?;
            Some(S::core(&S::decision(limit, outcome, When::exactly(told.now))))
        };
        let ask = self.ask(key, Some(limit), Asking::new(Verb::Take, cost));
        Check { strategy: S::NAME, key: key.clone(), ask, read: Box::new(read) }
    }
}

pub(super) async fn take_all(store: &Store, checks: Vec<Check<'_>>) -> Result<Together, TrypemaError> {
    validate(&checks)?;
    let started = SystemClock.now();
    let asks = checks.iter().map(|check| check.ask.clone()).collect();
    let told = store.ask_together(asks, store.terms()).await;
    let result = told.and_then(|told| together(&checks, &told)).map_err(TrypemaError::from);
    if let Some(observer) = store.observer() {
        tell(observer.as_ref(), &checks, started, &result);
    }
    result
}

fn together(checks: &[Check<'_>], told: &[Told]) -> Result<Together, RedisFailure> {
    let decisions: Option<Vec<Decision>> =
        checks.iter().zip(told).map(|(check, told)| (check.read)(told)).collect();
    let bad_reply = || RedisFailure::new(RedisFailureKind::BadReply, "an outcome that cannot be");
    let decisions = decisions.filter(|decisions| decisions.len() == checks.len()).ok_or_else(bad_reply)?;
    Ok(Together { is_allowed: decisions.iter().all(Decision::is_allowed), decisions })
}

/// Tells the observer what became of each check.
fn tell(
    observer: &dyn Observer,
    checks: &[Check<'_>],
    started: Timestamp,
    result: &Result<Together, TrypemaError>,
) {
    let elapsed_us = SystemClock.now().as_micros().saturating_sub(started.as_micros());
    let latency = Duration::from_micros(elapsed_us);
    for (index, check) in checks.iter().enumerate() {
        let (strategy, key, cost) = (check.strategy, check.key.as_str(), check.ask.cost);
        match result {
            Ok(answer) => {
                let decision = &answer.decisions[index];
                observer.decided(&Event { strategy, key, cost, decision, latency });
            }
            Err(error) => observer.failed(&Failure { strategy, key, error }),
        }
    }
}

fn validate(checks: &[Check<'_>]) -> Result<(), TrypemaError> {
    let reason = if checks.is_empty() || checks.len() > MAX_CHECKS {
        Some(format!("{} of them: need 1 to {MAX_CHECKS}", checks.len()))
    } else {
        let is_repeated = |(index, check): (usize, &Check<'_>)| {
            checks[..index].iter().any(|c| c.ask.name == check.ask.name)
        };
        let repeated = checks.iter().enumerate().any(is_repeated);
        repeated.then(|| "a key is asked for twice by one strategy".to_owned())
    };
    reason.map_or(Ok(()), |reason| Err(TrypemaError::InvalidChecks { reason }))
}
