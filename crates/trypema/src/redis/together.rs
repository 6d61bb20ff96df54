//! Several checks that are spent all or nothing.

use super::ask::{Ask, Told, Verb};
use super::failure::{RedisFailure, RedisFailureKind};
use super::key::RedisKey;
use super::limiter::{Asking, Limiter};
use super::store::Store;
use crate::decision::{Decision, When};
use crate::error::TrypemaError;
use crate::strategy::{Call, Wire};

/// More checks than any set of rules applies to one request, few enough to bound a script call.
const MAX_CHECKS: usize = 64;

/// One take of several that are spent all or nothing; made by [`Limiter::check_of`].
pub struct Check<'l> {
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
        Check { ask, read: Box::new(read) }
    }
}

pub(super) async fn take_all(store: &Store, checks: Vec<Check<'_>>) -> Result<Together, TrypemaError> {
    validate(&checks)?;
    let (asks, reads): (Vec<_>, Vec<_>) = checks.into_iter().map(|check| (check.ask, check.read)).unzip();
    let told = store.ask_together(asks).await?;
    let decisions: Option<Vec<Decision>> = told.iter().zip(&reads).map(|(told, read)| read(told)).collect();
    let bad_reply = || RedisFailure::new(RedisFailureKind::BadReply, "an outcome that cannot be");
    let decisions = decisions.filter(|decisions| decisions.len() == reads.len()).ok_or_else(bad_reply)?;
    Ok(Together { is_allowed: decisions.iter().all(Decision::is_allowed), decisions })
}

fn validate(checks: &[Check<'_>]) -> Result<(), TrypemaError> {
    let reason = if checks.is_empty() || checks.len() > MAX_CHECKS {
        Some(format!("{} of them: need 1 to {MAX_CHECKS}", checks.len()))
    } else {
        let is_repeated = |(index, check): (usize, &Check<'_>)| {
            checks[..index].iter().any(|c| c.ask.names == check.ask.names)
        };
        let repeated = checks.iter().enumerate().any(is_repeated);
        repeated.then(|| "a key is asked for twice by one strategy".to_owned())
    };
    reason.map_or(Ok(()), |reason| Err(TrypemaError::InvalidChecks { reason }))
}
