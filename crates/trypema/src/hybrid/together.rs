//! Several checks that are spent all or nothing, where some are leased.
//!
//! What is not leased is asked of Redis first, in one call, and with receipts if something is leased; then what is leased is
//! spent here. Should one of those be denied after all, everything is put back. Where one is sure to be denied, nobody is
//! asked.

use super::limiter::Limiter;
use super::provider::HybridRateLimiterProvider;
use super::receipt::{Origin, Receipt};
#[cfg(feature = "rules")]
use super::shared::Here;
use super::shared::{Reached, Standing, Turn};
use super::table::Entry;
use crate::check::{Check, Together, problem_with};
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::redis::{
    Errand, OnFailure, Receipt as RedisReceipt, RedisFailure, RedisKey, RedisRateLimiterProvider,
};
use crate::strategy::{Back, Leasable, LimitOf, Strategy, with_strategy};

/// The limiter of each strategy.
pub(crate) trait Holds<S: LimitOf + Leasable> {
    fn limiter(&self) -> &Limiter<S>;
}

/// What it means to a check, by its place, that Redis cannot be asked; `None` as the limiter was built.
pub(crate) type Meaning<'a> = dyn Fn(usize) -> Option<OnFailure> + Sync + 'a;

/// What became of checks.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) is_allowed: bool,
    /// What each was told; `None` of those that nobody had to be asked for.
    pub(crate) decisions: Vec<Option<Decision>>,
    pub(crate) receipts: Vec<Option<Receipt>>,
}

/// A check with its key, and what it took.
#[derive(Debug)]
struct Item<'a> {
    check: Check<'a>,
    key: RedisKey,
    standing: Standing,
    decision: Option<Decision>,
    receipt: Option<Receipt>,
}

impl HybridRateLimiterProvider {
    /// Takes all of `checks`, which may be of any strategies and keys, or none of them. A failure of Redis is always an
    /// `Err` here.
    ///
    /// What is leased is decided here; the rest is one call of Redis, as
    /// [`redis().take_all`](crate::redis::RedisRateLimiterProvider::take_all). Where one is sure to be denied the others are only
    /// looked at, for what they have left.
    pub async fn take_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        let taken = self.reserve_all(checks).await?;
        Ok(Together { receipts: Vec::new(), ..taken })
    }

    /// As [`take_all`](Self::take_all), with receipts for giving everything back by [`refund_all`](Self::refund_all).
    pub async fn reserve_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        let decided = self.run(checks, &|_| Some(OnFailure::Fail)).await?;
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
        meaning: &Meaning<'_>,
    ) -> Result<Decided, TrypemaError> {
        let started = self.fixed_window.redis().started();
        let mut items = self.items(checks, Turn::First)?;
        if self.deny(&mut items) {
            return Ok(self.told(items, started));
        }
        if !self.take_cold(&mut items, meaning).await? {
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

    fn items<'a>(&self, checks: &[Check<'a>], turn: Turn) -> Result<Vec<Item<'a>>, TrypemaError> {
        checked(checks)?;
        let keys: Result<Vec<RedisKey>, _> =
            checks.iter().map(|check| RedisKey::try_from(check.key)).collect();
        let item = |(check, key): (&Check<'a>, RedisKey)| {
            let standing = with_strategy!(check.limit, |S, limit| {
                Holds::<S>::limiter(self).shared.standing(&key, (limit, check.cost), turn)
            });
            Item { check: *check, key, standing, decision: None, receipt: None }
        };
        Ok(checks.iter().zip(keys?).map(item).collect())
    }

    /// Whether one of them is sure to be denied; then what is known of the others is noted.
    fn deny(&self, items: &mut [Item<'_>]) -> bool {
        if !items.iter().any(|item| matches!(item.standing, Standing::Denied(_))) {
            return false;
        }
        for item in items.iter_mut() {
            let (check, key) = (item.check, &item.key);
            item.decision = match item.standing {
                Standing::Denied(decision) => Some(decision),
                Standing::Leased | Standing::Cold => with_strategy!(check.limit, |S, limit| {
                    let found = Holds::<S>::limiter(self).peeked(key, limit, check.cost);
                    found.map(|found| S::core(&found.decision::<S>(limit)))
                }),
            };
        }
        self.forgo(items);
        true
    }

    /// Asks Redis for what is not leased; whether that was let pass.
    async fn take_cold(&self, items: &mut [Item<'_>], meaning: &Meaning<'_>) -> Result<bool, TrypemaError> {
        let cold: Vec<usize> =
            (0..items.len()).filter(|index| matches!(items[*index].standing, Standing::Cold)).collect();
        if cold.is_empty() {
            return Ok(true);
        }
        let checks: Vec<Check<'_>> = cold.iter().map(|index| items[*index].check).collect();
        let means = |place: usize| cold.get(place).and_then(|index| meaning(*index));
        let redis = &self.redis;
        let substitute = |place: usize| redis.take_without(checks.get(place)?, means(place));
        let errand =
            Errand { together: &checks, alone: &[], is_giving_receipts: true, substitute: Some(&substitute) };
        let taken = match redis.run(errand).await {
            Ok(done) => done.together,
            Err(error @ TrypemaError::RedisError(_)) => take_without(redis, &checks, &means).ok_or(error)?,
            Err(error) => return Err(error),
        };
        let mut receipts = taken.receipts.into_iter();
        for (index, decision) in cold.iter().zip(taken.decisions) {
            let item = &mut items[*index];
            item.decision = Some(decision);
            self.note_denial(item);
            item.receipt = receipts.next().flatten().map(|receipt| item.receipt_of(receipt));
        }
        Ok(taken.is_allowed)
    }

    /// Remembers that Redis denied a check.
    fn note_denial(&self, item: &Item<'_>) {
        let (Some(decision), cost) =
            (item.decision.filter(|decision| !decision.is_allowed()), item.check.cost)
        else {
            return;
        };
        with_strategy!(item.check.limit, |S, limit| {
            let shared = &Holds::<S>::limiter(self).shared;
            let answered_at = shared.hub.clock.now();
            let remember = |entry: &mut Entry<S>| {
                if entry.holding.limit() == limit {
                    entry.holding.vetoed(cost, answered_at, decision);
                }
            };
            shared.table.with_new(&item.key, (limit, shared.pace(limit)), (answered_at, remember));
        });
    }

    /// Spends what is leased; whether all of it was let pass.
    async fn take_leased(&self, items: &mut [Item<'_>], meaning: &Meaning<'_>) -> Result<bool, TrypemaError> {
        let leased = |item: &Item<'_>| matches!(item.standing, Standing::Leased);
        for (index, item) in items.iter_mut().enumerate().filter(|(_, item)| leased(item)) {
            let decision = match self.spend(item).await {
                Ok(decision) => decision,
                Err(failure) => {
                    let error = self.failed(item, failure);
                    self.redis.take_without(&item.check, meaning(index)).ok_or(error)?
                }
            };
            item.decision = Some(decision);
            if !decision.is_allowed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells the observer of a failure.
    fn failed(&self, item: &Item<'_>, failure: RedisFailure) -> TrypemaError {
        with_strategy!(item.check.limit, |S, _limit| {
            Holds::<S>::limiter(self).redis().failed(&item.key, failure)
        })
    }

    /// Takes a check by a lease, or in Redis after all.
    async fn spend(&self, item: &mut Item<'_>) -> Result<Decision, RedisFailure> {
        let (check, key) = (item.check, &item.key);
        let mut spent = Vec::new();
        let receipt;
        let decision = with_strategy!(check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            let tell = |back: Back| spent.push(back);
            match limiter.shared.decide(key, (limit, check.cost), Turn::Again, tell).await? {
                Reached::Found(found) => {
                    receipt = (!spent.is_empty()).then(|| limiter.leased_receipt(key, limit, spent));
                    S::core(&found.decision::<S>(limit))
                }
                Reached::Cold(_) => {
                    let reserved = limiter.redis().plain_reserve(key, limit, check.cost).await?;
                    receipt = reserved.receipt.map(|receipt| Receipt::new::<S>(key, Origin::Redis(receipt)));
                    S::core(&reserved.decision)
                }
            }
        });
        item.receipt = receipt;
        Ok(decision)
    }

    /// Takes a check by a lease; `None` if somebody has to be waited for.
    #[cfg(feature = "rules")]
    fn try_spend(&self, item: &mut Item<'_>) -> Option<bool> {
        let (check, key) = (item.check, &item.key);
        let mut spent = Vec::new();
        with_strategy!(check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            let shared = &limiter.shared;
            match shared.here(key, (limit, check.cost), Turn::Again, |back: Back| spent.push(back)) {
                Here::Decided(found) => {
                    let decision = S::core(&found.decision::<S>(limit));
                    item.decision = Some(decision);
                    item.receipt = (!spent.is_empty()).then(|| limiter.leased_receipt(key, limit, spent));
                    Some(decision.is_allowed())
                }
                Here::Ask(job) => {
                    shared.drop_job(&job);
                    None
                }
                Here::Cold | Here::Wait(_) => None,
            }
        })
    }

    /// Puts back what came out of leases.
    fn put_back(&self, items: &mut [Item<'_>]) {
        for item in items {
            let Some(receipt) = item.receipt.take() else { continue };
            with_strategy!(item.check.limit, |S, limit| {
                match receipt.redeem::<S>(&item.key) {
                    Some(Origin::Leased(spent)) => {
                        Holds::<S>::limiter(self).put_back(&item.key, limit, spent);
                    }
                    Some(Origin::Redis(receipt)) => item.receipt = Some(item.receipt_of(receipt)),
                    None => {}
                }
            });
        }
    }

    /// Gives everything back, because one was denied after others were spent.
    async fn undo(&self, items: &mut [Item<'_>]) {
        self.put_back(items);
        let checks: Vec<Check<'_>> = items.iter().map(|item| item.check).collect();
        let receipts: Vec<Option<Receipt>> = items.iter_mut().map(|item| item.receipt.take()).collect();
        // What Redis does not take back now stays spent, which is stricter.
        let _ = self.refund_all(&checks, &receipts).await;
    }

    /// Counts calls of leased keys that another check has denied.
    fn forgo(&self, items: &[Item<'_>]) {
        for item in items {
            let is_counting = match item.standing {
                Standing::Leased => !matches!(item.check.limit, crate::Limit::Abuse(_)),
                Standing::Denied(_) => true,
                Standing::Cold => false,
            };
            if is_counting {
                with_strategy!(item.check.limit, |S, _limit| {
                    let table = &Holds::<S>::limiter(self).shared.table;
                    table.with(&item.key, |entry| entry.holding.forgo(item.check.cost));
                });
            }
        }
    }
}

impl Item<'_> {
    fn receipt_of(&self, receipt: RedisReceipt) -> Receipt {
        with_strategy!(self.check.limit, |S, _limit| Receipt::new::<S>(&self.key, Origin::Redis(receipt)))
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
