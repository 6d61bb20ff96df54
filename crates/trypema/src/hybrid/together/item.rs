//! One check of several: how its key stands, taking it, and putting it back.

use super::{Holds, Keeping, Meaning, checked, take_without};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::hybrid::provider::HybridRateLimiterProvider;
use crate::hybrid::receipt::{Origin, Receipt};
#[cfg(feature = "rules")]
use crate::hybrid::shared::Here;
use crate::hybrid::shared::{Reached, Standing, Turn};
use crate::hybrid::table::Entry;
use crate::redis::{Errand, Receipt as RedisReceipt, RedisFailure, RedisKey};
use crate::strategy::{Back, Strategy, with_strategy};

/// A check with its key, and what it took.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) check: Check<'a>,
    pub(super) key: RedisKey,
    pub(super) standing: Standing,
    pub(super) decision: Option<Decision>,
    pub(super) receipt: Option<Receipt>,
}

impl HybridRateLimiterProvider {
    pub(super) fn items<'a>(&self, checks: &[Check<'a>], turn: Turn) -> Result<Vec<Item<'a>>, TrypemaError> {
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
    pub(super) fn deny(&self, items: &mut [Item<'_>]) -> bool {
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
    pub(super) async fn take_cold(
        &self,
        items: &mut [Item<'_>],
        keeping: Keeping,
        meaning: &Meaning<'_>,
    ) -> Result<bool, TrypemaError> {
        let cold: Vec<usize> =
            (0..items.len()).filter(|index| matches!(items[*index].standing, Standing::Cold)).collect();
        if cold.is_empty() {
            return Ok(true);
        }
        let checks: Vec<Check<'_>> = cold.iter().map(|index| items[*index].check).collect();
        let means = |place: usize| cold.get(place).and_then(|index| meaning(*index));
        let redis = &self.redis;
        let substitute = |place: usize| redis.take_without(checks.get(place)?, means(place));
        // Without a lease beside them nothing will have to be undone, and a plain take costs Redis less.
        let is_giving_receipts = keeping == Keeping::Receipts || cold.len() < items.len();
        let errand =
            Errand { together: &checks, alone: &[], is_giving_receipts, substitute: Some(&substitute) };
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
    pub(super) async fn take_leased(
        &self,
        items: &mut [Item<'_>],
        meaning: &Meaning<'_>,
    ) -> Result<bool, TrypemaError> {
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
    pub(super) fn try_spend(&self, item: &mut Item<'_>) -> Option<bool> {
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
    pub(super) fn put_back(&self, items: &mut [Item<'_>]) {
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
    pub(super) async fn undo(&self, items: &mut [Item<'_>]) {
        self.put_back(items);
        let checks: Vec<Check<'_>> = items.iter().map(|item| item.check).collect();
        let receipts: Vec<Option<Receipt>> = items.iter_mut().map(|item| item.receipt.take()).collect();
        // What Redis does not take back now stays spent, which is stricter.
        let _ = self.refund_all(&checks, &receipts).await;
    }

    /// Counts calls of leased keys that another check has denied.
    pub(super) fn forgo(&self, items: &[Item<'_>]) {
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
