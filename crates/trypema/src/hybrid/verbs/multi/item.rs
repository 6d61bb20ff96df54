//! One check of an all-or-nothing request: deciding, taking and undoing it.

use crate::check::{Check, Deadline, Receipts, TakeRequest, validate_take};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::hybrid::HybridRateLimiterProvider;
use crate::hybrid::verbs::decide::{Attempt, CountCall, DecidedBy};
use crate::hybrid::verbs::receipt::{HybridReceipt, UnitsOrigin};
use crate::redis::{KeySpend, RedisFailure, RedisKey, RedisReceipt};
use crate::strategy::{LeasedUnits, Strategy, with_strategy};

/// A check with its key, its decision, and the receipt of its take.
#[derive(Debug)]
pub(super) struct CheckItem<'a> {
    pub(super) check: Check<'a>,
    pub(super) key: RedisKey,
    pub(super) decided_by: DecidedBy,
    pub(super) decision: Option<Decision>,
    pub(super) receipt: Option<HybridReceipt>,
    /// The failure, if Redis was needed and did not decide.
    pub(super) failure: Option<TrypemaError>,
}

impl HybridRateLimiterProvider {
    pub(super) fn items<'a>(
        &self,
        checks: &[Check<'a>],
        count: CountCall,
    ) -> Result<Vec<CheckItem<'a>>, TrypemaError> {
        validate_take(checks)?;
        let item = |check: &Check<'a>| {
            let key = RedisKey::encode(check.key);
            let decided_by = match check.is_postpaid {
                true => DecidedBy::Redis,
                false => with_strategy!(check.limit, |S, limit| {
                    let take = KeySpend::new(&key, limit, check.cost);
                    self.limiter::<S>().shared.decided_by(take, count)
                }),
            };
            CheckItem { check: *check, key, decided_by, decision: None, receipt: None, failure: None }
        };
        Ok(checks.iter().map(item).collect())
    }

    /// Whether a remembered denial applies to one of the checks. If so, sets the decisions of all checks
    /// that this process can decide.
    pub(super) fn apply_denials(&self, items: &mut [CheckItem<'_>]) -> bool {
        if !items.iter().any(|item| matches!(item.decided_by, DecidedBy::Denial(_))) {
            return false;
        }
        for item in items.iter_mut() {
            let (check, key) = (item.check, &item.key);
            item.decision = match item.decided_by {
                DecidedBy::Denial(decision) => Some(decision),
                DecidedBy::Redis if check.is_postpaid => None,
                DecidedBy::Lease | DecidedBy::Redis => self.peek_leased(&check, key),
            };
        }
        self.report_leased_usage(items);
        self.report_denied(items);
        true
    }

    /// Decides a check without spending; `None` if Redis has to decide.
    fn peek_leased(&self, check: &Check<'_>, key: &RedisKey) -> Option<Decision> {
        with_strategy!(check.limit, |S, limit| {
            let take = KeySpend::new(key, limit, check.cost);
            let found = self.limiter::<S>().shared.peek(take);
            found.map(|found| S::core(&found.decision(limit)))
        })
    }

    /// Replaces the decisions of the checks that would be admitted in a denied request by what is left, as far as
    /// this process can decide that.
    pub(super) fn report_leased_usage(&self, items: &mut [CheckItem<'_>]) {
        for item in items.iter_mut().filter(|item| item.is_allowed()) {
            let usage = self.peek_leased(&item.check.usage(), &item.key);
            item.decision = usage.filter(Decision::is_allowed).or(item.decision);
        }
    }

    /// Takes the checks without a lease from Redis. Returns whether the leased checks may be spent after
    /// that.
    pub(super) async fn take_in_redis(&self, items: &mut [CheckItem<'_>], request: TakeRequest<'_>) -> bool {
        let in_redis: Vec<usize> =
            (0..items.len()).filter(|index| matches!(items[*index].decided_by, DecidedBy::Redis)).collect();
        if in_redis.is_empty() {
            return true;
        }
        let checks: Vec<Check<'_>> = in_redis.iter().map(|index| items[*index].check).collect();
        let may_fail: Vec<bool> = in_redis.iter().map(|index| request.may_fail(*index)).collect();
        // Without leased checks nothing will have to be undone, and takes without receipts cost Redis less.
        let receipts = if in_redis.len() < items.len() { Receipts::Wanted } else { request.receipts };
        let deadline =
            if in_redis.len() < items.len() { request.deadline.of_first_step() } else { request.deadline };
        let redis_request =
            TakeRequest { may_fail: &may_fail, receipts, ..TakeRequest::new(&checks, deadline) };
        let mut taken = match self.redis.take(redis_request).await {
            Ok(taken) => taken,
            Err(error) => {
                in_redis.iter().for_each(|index| items[*index].failure = Some(error.clone()));
                return false;
            }
        };
        let mut may_go_on = taken.is_allowed();
        for failed in taken.failures {
            may_go_on &= redis_request.may_fail(failed.index);
            if let Some(item) = in_redis.get(failed.index).and_then(|index| items.get_mut(*index)) {
                item.failure = Some(failed.error);
            }
        }
        taken.receipts.resize_with(in_redis.len(), || None);
        for ((index, decision), receipt) in in_redis.iter().zip(taken.decisions).zip(taken.receipts) {
            let item = &mut items[*index];
            item.decision = decision;
            self.remember_group_denial(item);
            item.receipt = receipt.map(|receipt| item.receipt_of(receipt));
        }
        may_go_on
    }

    /// Remembers that Redis denied a check, unless it is postpaid: its denial says nothing about its cost.
    fn remember_group_denial(&self, item: &CheckItem<'_>) {
        let denial = item.decision.filter(|decision| !decision.is_allowed() && !item.check.is_postpaid);
        let (Some(decision), cost) = (denial, item.check.cost) else { return };
        with_strategy!(item.check.limit, |S, limit| {
            let shared = &self.limiter::<S>().shared;
            let replied_at = shared.instance.clock.now();
            shared.table.with_or_insert(KeySpend::new(&item.key, limit, cost), replied_at, |entry| {
                if entry.holding.limit() == limit {
                    entry.holding.remember_group_denial(cost, replied_at, decision);
                }
            });
        });
    }

    /// Spends the leased checks. Undoes everything if one is denied, or if one fails and its failure stops
    /// the request.
    pub(super) async fn take_leased(&self, items: &mut [CheckItem<'_>], request: TakeRequest<'_>) {
        for index in 0..items.len() {
            if !matches!(items[index].decided_by, DecidedBy::Lease) {
                continue;
            }
            let may_go_on = match self.spend(&mut items[index], request.deadline).await {
                Ok(decision) => {
                    items[index].decision = Some(decision);
                    decision.is_allowed()
                }
                Err(failure) => {
                    items[index].failure = Some(self.report_failure(&items[index], failure));
                    request.may_fail(index)
                }
            };
            if !may_go_on {
                return self.roll_back(items, request.deadline).await;
            }
        }
    }

    /// Notifies the observer of a failure. Returns it as an error.
    fn report_failure(&self, item: &CheckItem<'_>, failure: RedisFailure) -> TrypemaError {
        with_strategy!(item.check.limit, |S, _limit| {
            self.limiter::<S>().redis().report_failure(&item.key, failure)
        })
    }

    /// Takes a check with leases, or in Redis if they cannot decide it.
    async fn spend(&self, item: &mut CheckItem<'_>, deadline: Deadline) -> Result<Decision, RedisFailure> {
        let (check, key) = (item.check, &item.key);
        let mut spent = Vec::new();
        let receipt;
        let decision = with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            let on_spent = |units: LeasedUnits| spent.push(units);
            let mut attempt = Attempt { count: CountCall::No, deadline: Some(deadline.before_rollback()) };
            let take = KeySpend::new(key, limit, check.cost);
            match limiter.shared.decide(take, &mut attempt, on_spent).await? {
                Some(found) => {
                    receipt = limiter.leased_receipt(key, limit, spent);
                    S::core(&found.decision(limit))
                }
                None => {
                    let deadline = attempt.deadline(limiter.redis());
                    let taken = limiter.redis().take_with_receipt_without_policy(deadline, take).await?;
                    receipt = taken.receipt.map(|receipt| limiter.redis_receipt(key, receipt));
                    S::core(&taken.decision)
                }
            }
        });
        item.receipt = receipt;
        Ok(decision)
    }

    /// Takes a check with leases. Returns whether it is allowed; `None` if that needs waiting.
    #[cfg(feature = "rules")]
    pub(super) fn try_spend(&self, item: &mut CheckItem<'_>) -> Option<bool> {
        let (check, key) = (item.check, &item.key);
        let mut spent = Vec::new();
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            let take = KeySpend::new(key, limit, check.cost);
            let found =
                limiter.shared.decide_now(take, CountCall::No, |units: LeasedUnits| spent.push(units))?;
            let decision = S::core(&found.decision(limit));
            item.decision = Some(decision);
            item.receipt = limiter.leased_receipt(key, limit, spent);
            Some(decision.is_allowed())
        })
    }

    /// Returns spent units to their leases. Receipts from Redis stay with their items.
    pub(super) fn restore(&self, items: &mut [CheckItem<'_>]) {
        for item in items {
            let Some(receipt) = item.receipt.take() else { continue };
            with_strategy!(item.check.limit, |S, limit| {
                match receipt.redeem::<S>(&item.key) {
                    Some(UnitsOrigin::Leased(spent)) => {
                        self.limiter::<S>().restore(&item.key, limit, spent);
                    }
                    Some(UnitsOrigin::Redis(receipt)) => item.receipt = Some(item.receipt_of(receipt)),
                    None => {}
                }
            });
        }
    }

    /// Refunds everything, because a check was denied or failed after others were spent.
    async fn roll_back(&self, items: &mut [CheckItem<'_>], deadline: Deadline) {
        self.restore(items);
        let receipts: Vec<(Check<'_>, HybridReceipt)> =
            items.iter_mut().filter_map(|item| Some((item.check, item.receipt.take()?))).collect();
        // Units that cannot be refunded stay spent, which is the stricter outcome.
        self.refund_by_receipts(receipts.iter().map(|(check, receipt)| (check, receipt)), deadline).await;
        if !items.iter().any(CheckItem::is_denied) {
            return;
        }
        // What is left without this request, of the checks that would have been admitted.
        let usage: Vec<Check<'_>> =
            items.iter().filter(|item| item.is_allowed()).map(|item| item.check.usage()).collect();
        let usage = self.peek_each(&usage, deadline).await;
        for (item, usage) in items.iter_mut().filter(|item| item.is_allowed()).zip(usage) {
            item.decision = usage.ok().filter(Decision::is_allowed).or(item.decision);
        }
    }

    /// Adds the checks of a denied request to the calls to report, for keys that this process decides.
    pub(super) fn report_denied(&self, items: &[CheckItem<'_>]) {
        for item in items {
            let is_counting = match item.decided_by {
                DecidedBy::Lease => !item.check.limit.counts_attempts(),
                DecidedBy::Denial(_) => true,
                DecidedBy::Redis => false,
            };
            if is_counting {
                with_strategy!(item.check.limit, |S, _limit| {
                    let table = &self.limiter::<S>().shared.table;
                    table.with(&item.key, |entry| entry.holding.report_denied(item.check.cost));
                });
            }
        }
    }
}

impl CheckItem<'_> {
    fn is_allowed(&self) -> bool {
        self.decision.as_ref().is_some_and(Decision::is_allowed)
    }

    fn is_denied(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| !decision.is_allowed())
    }

    fn receipt_of(&self, receipt: RedisReceipt) -> HybridReceipt {
        with_strategy!(self.check.limit, |S, _limit| HybridReceipt::new::<S>(
            &self.key,
            UnitsOrigin::Redis(receipt)
        ))
    }
}
