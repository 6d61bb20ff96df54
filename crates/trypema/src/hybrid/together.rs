//! Several checks that are spent all or nothing, where some are leased.
//!
//! What is not leased is asked of Redis first, in one call, and with receipts if something is leased; then what is leased is
//! spent here. Should one of those be denied after all, everything is put back. Where one is sure to be denied, nobody is
//! asked.

mod item;

use super::limiter::Limiter;
use super::provider::HybridRateLimiterProvider;
use super::receipt::Receipt;
use super::shared::{Standing, Turn};
use crate::check::{Check, Together, problem_with};
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::redis::{OnFailure, Receipt as RedisReceipt, RedisKey, RedisRateLimiterProvider};
use crate::strategy::{Leasable, LimitOf, Strategy, with_strategy};
use item::Item;

/// The limiter of each strategy.
pub(crate) trait Holds<S: LimitOf + Leasable> {
    fn limiter(&self) -> &Limiter<S>;
}

/// What it means to a check, by its place, that Redis cannot be asked; `None` as the limiter was built.
pub(crate) type Meaning<'a> = dyn Fn(usize) -> Option<OnFailure> + Sync + 'a;

/// What is kept of what was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Nothing,
    /// Receipts, to give it back.
    Receipts,
}

/// What became of checks.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) is_allowed: bool,
    /// What each was told; `None` of those that nobody had to be asked for.
    pub(crate) decisions: Vec<Option<Decision>>,
    pub(crate) receipts: Vec<Option<Receipt>>,
}

impl HybridRateLimiterProvider {
    /// Takes all of `checks`, which may be of any strategies and keys, or none of them. A failure of Redis is always an
    /// `Err` here.
    ///
    /// What is leased is decided here; the rest is one call of Redis, as
    /// [`redis().take_all`](crate::redis::RedisRateLimiterProvider::take_all). Where one is sure to be denied the others are only
    /// looked at, for what they have left.
    pub async fn take_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        let taken = self.all_of(checks, Keeping::Nothing).await?;
        Ok(Together { receipts: Vec::new(), ..taken })
    }

    /// As [`take_all`](Self::take_all), with receipts for giving everything back by [`refund_all`](Self::refund_all).
    pub async fn reserve_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        self.all_of(checks, Keeping::Receipts).await
    }

    async fn all_of(
        &self,
        checks: &[Check<'_>],
        keeping: Keeping,
    ) -> Result<Together<Receipt>, TrypemaError> {
        let decided = self.run(checks, keeping, &|_| Some(OnFailure::Fail)).await?;
        let mut decisions = Vec::with_capacity(checks.len());
        for (check, decision) in checks.iter().zip(decided.decisions) {
            decisions.push(match decision {
                Some(decision) => decision,
                None => self.peek_one(check).await?,
            });
        }
        Ok(Together { is_allowed: decided.is_allowed, decisions, receipts: decided.receipts })
    }

    /// What each check would be answered if it were the only one; nothing is spent.
    pub async fn peek_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        checked(checks)?;
        let mut decisions = Vec::with_capacity(checks.len());
        for check in checks {
            decisions.push(self.peek_one(check).await?);
        }
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        Ok(Together { is_allowed, decisions, receipts: Vec::new() })
    }

    /// Gives back what `receipts` of [`reserve_all`](Self::reserve_all) name, for the same checks.
    pub async fn refund_all(
        &self,
        checks: &[Check<'_>],
        receipts: &[Option<Receipt>],
    ) -> Result<(), TrypemaError> {
        let mut result = Ok(());
        for (check, receipt) in checks.iter().zip(receipts) {
            let Some(receipt) = receipt else { continue };
            let key = RedisKey::try_from(check.key)?;
            let refunded = with_strategy!(check.limit, |S, limit| {
                Holds::<S>::limiter(self).refund(&key, limit, receipt).await
            });
            result = result.and(refunded.map(|_| ()));
        }
        result
    }

    /// Takes one check on its own.
    #[cfg(feature = "rules")]
    pub(crate) async fn take_one(&self, check: &Check<'_>) -> Result<Decision, TrypemaError> {
        let key = RedisKey::try_from(check.key)?;
        with_strategy!(check.limit, |S, limit| {
            let decision = Holds::<S>::limiter(self).take(&key, limit, check.cost).await?;
            Ok(S::core(&decision))
        })
    }

    /// What a check would be told on its own.
    pub(crate) async fn peek_one(&self, check: &Check<'_>) -> Result<Decision, TrypemaError> {
        let key = RedisKey::try_from(check.key)?;
        with_strategy!(check.limit, |S, limit| {
            let decision = Holds::<S>::limiter(self).peek(&key, limit, check.cost).await?;
            Ok(S::core(&decision))
        })
    }

    /// Spends all checks or none.
    pub(crate) async fn run(
        &self,
        checks: &[Check<'_>],
        keeping: Keeping,
        meaning: &Meaning<'_>,
    ) -> Result<Decided, TrypemaError> {
        let started = self.fixed_window.redis().started();
        let mut items = self.items(checks, Turn::First)?;
        if self.deny(&mut items) {
            return Ok(self.told(items, started));
        }
        if !self.take_cold(&mut items, keeping, meaning).await? {
            self.forgo(&items);
            return Ok(self.told(items, started));
        }
        match self.take_leased(&mut items, meaning).await {
            Ok(true) => {}
            Ok(false) => self.undo(&mut items).await,
            Err(error) => {
                self.undo(&mut items).await;
                return Err(error);
            }
        }
        Ok(self.told(items, started))
    }

    /// Spends all checks or none, if nobody has to be waited for.
    #[cfg(feature = "rules")]
    pub(crate) fn try_run(&self, checks: &[Check<'_>]) -> Option<Result<Decided, TrypemaError>> {
        let started = self.fixed_window.redis().started();
        let mut items = match self.items(checks, Turn::Again) {
            Ok(items) => items,
            Err(error) => return Some(Err(error)),
        };
        if self.deny(&mut items) {
            self.count(&items);
            return Some(Ok(self.told(items, started)));
        }
        if items.iter().any(|item| matches!(item.standing, Standing::Cold)) {
            return None;
        }
        for index in 0..items.len() {
            let taken = self.try_spend(&mut items[index]);
            if taken.is_none() {
                self.unsee(&items);
                self.put_back(&mut items);
                return None;
            }
            if taken == Some(false) {
                self.put_back(&mut items);
                self.count(&items);
                return Some(Ok(self.told(items, started)));
            }
        }
        self.count(&items);
        Some(Ok(self.told(items, started)))
    }

    /// Takes back that calls were seen: they are asked for once more.
    #[cfg(feature = "rules")]
    fn unsee(&self, items: &[Item<'_>]) {
        for item in items.iter().filter(|item| item.decision.is_some()) {
            with_strategy!(item.check.limit, |S, _limit| {
                let table = &Holds::<S>::limiter(self).shared.table;
                table.with(&item.key, |entry| entry.holding.unsee(item.check.cost));
            });
        }
    }

    /// Counts calls that were decided without waiting.
    #[cfg(feature = "rules")]
    fn count(&self, items: &[Item<'_>]) {
        for item in items {
            with_strategy!(item.check.limit, |S, _limit| {
                let shared = &Holds::<S>::limiter(self).shared;
                let now = shared.hub.clock.recent();
                shared.table.with(&item.key, |entry| entry.holding.count(now, item.check.cost));
            });
        }
    }

    /// What became of it, after the observer was told what Redis has not told it.
    fn told(&self, items: Vec<Item<'_>>, started: Option<Timestamp>) -> Decided {
        for item in items.iter().filter(|item| !matches!(item.standing, Standing::Cold)) {
            with_strategy!(item.check.limit, |S, _limit| {
                let redis = Holds::<S>::limiter(self).redis();
                redis.tell(&item.key, item.check.cost, started, item.decision);
            });
        }
        decided(items)
    }
}

fn decided(items: Vec<Item<'_>>) -> Decided {
    let is_allowed = items.iter().all(|item| item.decision.as_ref().is_some_and(Decision::is_allowed));
    let decisions = items.iter().map(|item| item.decision).collect();
    let receipts = items.into_iter().map(|item| item.receipt.filter(|_| is_allowed)).collect();
    Decided { is_allowed, decisions, receipts }
}

/// What checks are answered in place of Redis, all or nothing; `None` if one of them is left undecided.
fn take_without(
    redis: &RedisRateLimiterProvider,
    checks: &[Check<'_>],
    meaning: &Meaning<'_>,
) -> Option<Together<RedisReceipt>> {
    let each = || checks.iter().enumerate();
    let foreseen: Option<Vec<Decision>> =
        each().map(|(place, check)| redis.peek_without(check, meaning(place))).collect();
    let decisions = match foreseen? {
        foreseen if !foreseen.iter().all(Decision::is_allowed) => foreseen,
        _ => each().map(|(place, check)| redis.take_without(check, meaning(place))).collect::<Option<_>>()?,
    };
    let is_allowed = decisions.iter().all(Decision::is_allowed);
    Some(Together { is_allowed, decisions, receipts: Vec::new() })
}

fn checked(checks: &[Check<'_>]) -> Result<(), TrypemaError> {
    problem_with(checks).map_or(Ok(()), |reason| Err(TrypemaError::InvalidChecks { reason }))
}

crate::redis::holds!(HybridRateLimiterProvider);
