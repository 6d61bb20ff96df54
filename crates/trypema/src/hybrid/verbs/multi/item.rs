//! One check of an all-or-nothing request: deciding, taking and undoing it.

use super::Holds;
use crate::check::{Check, Deadline, IfUnreachable, Receipts, TakeRequest, validate};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::hybrid::HybridRateLimiterProvider;
use crate::hybrid::state::TakeArgs;
use crate::hybrid::verbs::decide::{Attempt, Reached, Standing, Turn};
use crate::hybrid::verbs::receipt::{Origin, Receipt};
use crate::redis::{Receipt as RedisReceipt, RedisFailure, RedisKey};
use crate::strategy::{Strategy, UnspentUnits, with_strategy};

/// A check with its key, its decision, and the receipt of its take.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) check: Check<'a>,
    pub(super) key: RedisKey,
    pub(super) standing: Standing,
    pub(super) decision: Option<Decision>,
    pub(super) receipt: Option<Receipt>,
    /// The failure, if Redis was needed and did not decide.
    pub(super) failure: Option<TrypemaError>,
}

impl HybridRateLimiterProvider {
    pub(super) fn items<'a>(&self, checks: &[Check<'a>], turn: Turn) -> Result<Vec<Item<'a>>, TrypemaError> {
        validate(checks)?;
        let item = |check: &Check<'a>| {
            let key = RedisKey::encode(check.key);
            let standing = with_strategy!(check.limit, |S, limit| {
                let take = TakeArgs { key: &key, limit, cost: check.cost };
                Holds::<S>::limiter(self).shared.standing(take, turn)
            });
            Item { check: *check, key, standing, decision: None, receipt: None, failure: None }
        };
        Ok(checks.iter().map(item).collect())
    }

    /// Whether a remembered denial applies to one of the checks. If so, sets the decisions of all checks
    /// that this process can decide.
    pub(super) fn deny(&self, items: &mut [Item<'_>]) -> bool {
        if !items.iter().any(|item| matches!(item.standing, Standing::Denied(_))) {
            return false;
        }
        for item in items.iter_mut() {
            let (check, key) = (item.check, &item.key);
            item.decision = match item.standing {
                Standing::Denied(decision) => Some(decision),
                Standing::Leased | Standing::Cold => with_strategy!(check.limit, |S, limit| {
                    let found =
                        Holds::<S>::limiter(self).shared.peeked(TakeArgs { key, limit, cost: check.cost });
                    found.map(|found| S::core(&found.decision::<S>(limit)))
                }),
            };
        }
        self.forgo(items);
        true
    }

    /// Takes the checks without a lease from Redis. Returns whether the leased checks may be spent after
    /// that.
    pub(super) async fn take_cold(&self, items: &mut [Item<'_>], request: TakeRequest<'_>) -> bool {
        let cold: Vec<usize> =
            (0..items.len()).filter(|index| matches!(items[*index].standing, Standing::Cold)).collect();
        if cold.is_empty() {
            return true;
        }
        let in_redis: Vec<Check<'_>> = cold.iter().map(|index| items[*index].check).collect();
        let if_unreachable: Vec<IfUnreachable> =
            cold.iter().map(|index| request.if_unreachable(*index)).collect();
        // Without leased checks nothing will have to be undone, and takes without receipts cost Redis less.
        let receipts = if cold.len() < items.len() { Receipts::Wanted } else { request.receipts };
        let deadline =
            if cold.len() < items.len() { request.deadline.of_first_step() } else { request.deadline };
        let asked = TakeRequest {
            checks: &in_redis,
            independent: &[],
            if_unreachable: &if_unreachable,
            receipts,
            deadline,
        };
        let mut taken = match self.redis.take(asked).await {
            Ok(taken) => taken,
            Err(error) => {
                cold.iter().for_each(|index| items[*index].failure = Some(error.clone()));
                return false;
            }
        };
        let mut may_go_on = taken.is_allowed();
        for failed in taken.failures {
            may_go_on &= if_unreachable.get(failed.index) == Some(&IfUnreachable::Continue);
            if let Some(item) = cold.get(failed.index).and_then(|index| items.get_mut(*index)) {
                item.failure = Some(failed.error);
            }
        }
        taken.receipts.resize_with(cold.len(), || None);
        for ((index, decision), receipt) in cold.iter().zip(taken.decisions).zip(taken.receipts) {
            let item = &mut items[*index];
            item.decision = decision;
            self.note_denial(item);
            item.receipt = receipt.map(|receipt| item.receipt_of(receipt));
        }
        may_go_on
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
            let answered_at = shared.instance.clock.now();
            shared.table.with_new(TakeArgs { key: &item.key, limit, cost }, answered_at, |entry| {
                if entry.holding.limit() == limit {
                    entry.holding.vetoed(cost, answered_at, decision);
                }
            });
        });
    }

    /// Spends the leased checks. Undoes everything if one is denied, or if one fails and its failure stops
    /// the request.
    pub(super) async fn take_leased(&self, items: &mut [Item<'_>], request: TakeRequest<'_>) {
        for index in 0..items.len() {
            if !matches!(items[index].standing, Standing::Leased) {
                continue;
            }
            let may_go_on = match self.spend(&mut items[index], request.deadline).await {
                Ok(decision) => {
                    items[index].decision = Some(decision);
                    decision.is_allowed()
                }
                Err(failure) => {
                    items[index].failure = Some(self.failed(&items[index], failure));
                    request.if_unreachable(index) == IfUnreachable::Continue
                }
            };
            if !may_go_on {
                return self.undo(items, request.deadline).await;
            }
        }
    }

    /// Notifies the observer of a failure. Returns it as an error.
    fn failed(&self, item: &Item<'_>, failure: RedisFailure) -> TrypemaError {
        with_strategy!(item.check.limit, |S, _limit| {
            Holds::<S>::limiter(self).redis().failed(&item.key, failure)
        })
    }

    /// Takes a check with leases, or in Redis if they cannot decide it.
    async fn spend(&self, item: &mut Item<'_>, deadline: Deadline) -> Result<Decision, RedisFailure> {
        let (check, key) = (item.check, &item.key);
        let mut spent = Vec::new();
        let receipt;
        let decision = with_strategy!(check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            let tell = |back: UnspentUnits| spent.push(back);
            let attempt = Attempt { turn: Turn::Again, deadline: Some(deadline.before_rollback()) };
            match limiter.shared.decide(TakeArgs { key, limit, cost: check.cost }, attempt, tell).await? {
                Reached::Found(found) => {
                    receipt = limiter.leased_receipt(key, limit, spent);
                    S::core(&found.decision::<S>(limit))
                }
                Reached::Cold(deadline) => {
                    let reserved = limiter.redis().plain_reserve(deadline, key, (limit, check.cost)).await?;
                    receipt = reserved.receipt.map(|receipt| Receipt::new::<S>(key, Origin::Redis(receipt)));
                    S::core(&reserved.decision)
                }
            }
        });
        item.receipt = receipt;
        Ok(decision)
    }

    /// Takes a check with leases. Returns whether it is allowed; `None` if that needs waiting.
    #[cfg(feature = "rules")]
    pub(super) fn try_spend(&self, item: &mut Item<'_>) -> Option<bool> {
        let (check, key) = (item.check, &item.key);
        let mut spent = Vec::new();
        with_strategy!(check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            let take = TakeArgs { key, limit, cost: check.cost };
            let found = limiter.shared.here_only(take, Turn::Again, |back: UnspentUnits| spent.push(back))?;
            let decision = S::core(&found.decision::<S>(limit));
            item.decision = Some(decision);
            item.receipt = limiter.leased_receipt(key, limit, spent);
            Some(decision.is_allowed())
        })
    }

    /// Returns spent units to their leases. Receipts from Redis stay with their items.
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

    /// Refunds everything, because a check was denied or failed after others were spent.
    async fn undo(&self, items: &mut [Item<'_>], deadline: Deadline) {
        self.put_back(items);
        let receipts: Vec<(Check<'_>, Receipt)> =
            items.iter_mut().filter_map(|item| Some((item.check, item.receipt.take()?))).collect();
        // Units that cannot be refunded stay spent, which is the stricter outcome.
        self.refund_by_receipts(receipts.iter().map(|(check, receipt)| (check, receipt)), deadline).await;
    }

    /// Adds the checks of a denied request to the calls to report, for keys that this process decides.
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
