//! Settling and renewing reservations at their counters.

use std::borrow::Cow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::check::Check;
use crate::error::TrypemaError;
use crate::observer::ReservationChange;
use crate::reservation::{
    Ending, RenewRequest, RenewResult, RenewedCheck, SettleRequest, SettleResult, SettleStatus, SettledCheck,
};
use crate::rules::engine::Engine;
use crate::rules::request::{REQUESTS, Request};
use crate::rules::reservation::{
    CounterName, Outstanding, SettleCosts, SettledRule, SettledStatus, Settlement,
};
use crate::rules::set::{CompiledRule, RuleSet};
use crate::strategy::ConcurrencyLimit;
use crate::strategy::reservations::ReservationId;

impl Engine {
    /// Settles a reservation at each of its counters, and reports it to the observer.
    pub(in crate::rules) async fn settle_at(
        &self,
        outstanding: Outstanding,
        costs: SettleCosts<'_>,
    ) -> Settlement {
        let settled = self.settle_counters(&outstanding, costs, Report::Observer).await;
        outstanding.into_settlement(settled)
    }

    /// Settles a reservation at each of its counters. Returns a result for each, still without its name.
    pub(in crate::rules) async fn settle_counters(
        &self,
        outstanding: &Outstanding,
        costs: SettleCosts<'_>,
        report: Report,
    ) -> Vec<SettledRule> {
        let set = self.set.load_full();
        let mut settlements: Vec<SettleRequest<'_>> = Vec::with_capacity(outstanding.counters.len());
        let mut settled = Vec::with_capacity(outstanding.counters.len());
        for name in &outstanding.counters {
            settled.push(match ReservedCounter::named(name, &set) {
                Some(counter) => {
                    let is_remembered = name.kept_until.is_some();
                    let settlement = counter.settlement(outstanding.id, costs);
                    settlements.push(SettleRequest { is_remembered, ..settlement });
                    SettledRule::unnamed(counter.unit_name(), counter.is_shadow())
                }
                None => SettledRule::removed(name.is_shadow),
            });
        }
        let mut results = self.settle_everywhere(&settlements).await;
        let names = outstanding.counters.iter().filter(|name| set.rule_of_counter(&name.key).is_some());
        for (name, result) in names.zip(&mut results) {
            let is_unknown = result.as_ref().is_ok_and(|settled| settled.status == SettleStatus::Unknown);
            if is_unknown && self.is_kept_elsewhere(name) {
                *result = Err(TrypemaError::ReservationNotYetKnown);
            }
        }
        for (settlement, result) in settlements.iter().zip(&results) {
            if result.as_ref().is_ok_and(|settled| settled.refunded > 0) {
                self.waitlist.release(settlement.check.key);
            }
            if let (Report::Observer, Ok(settled)) = (report, result) {
                self.report_reservation(settlement.check.key, change_of(settled, costs));
            }
        }
        let has_rule = |settled: &&mut SettledRule| !matches!(settled.status, SettledStatus::RuleRemoved);
        for (settled, result) in settled.iter_mut().filter(has_rule).zip(results) {
            settled.status = status_of(result);
        }
        settled
    }

    /// Settles the parts of a reservation: those that this process keeps, and the others in the store.
    async fn settle_everywhere(&self, settlements: &[SettleRequest<'_>]) -> Vec<SettleResult> {
        let provider = self.provider();
        if !self.backlog.is_keeping() {
            return provider.each(settlements, provider.deadline()).wait().await;
        }
        let kept: Vec<Option<SettleResult>> = settlements.iter().map(|one| self.settle_kept(one)).collect();
        let is_stored = |(_, kept): &(&SettleRequest<'_>, &Option<SettleResult>)| kept.is_none();
        let stored: Vec<SettleRequest<'_>> =
            settlements.iter().zip(&kept).filter(is_stored).map(|(one, _)| *one).collect();
        let mut results = provider.each(&stored, provider.deadline()).wait().await.into_iter();
        kept.into_iter().filter_map(|kept| kept.or_else(|| results.next())).collect()
    }

    /// Whether another process may keep the reservation at this counter until the store answers it.
    fn is_kept_elsewhere(&self, name: &CounterName) -> bool {
        name.kept_until.is_some_and(|until| self.clock().now() < until)
    }

    async fn renew_everywhere(&self, renewals: &[RenewRequest<'_>]) -> Vec<RenewResult> {
        let provider = self.provider();
        if !self.backlog.is_keeping() {
            return provider.each(renewals, provider.deadline()).wait().await;
        }
        let kept: Vec<Option<RenewResult>> = renewals.iter().map(|one| self.renew_kept(one)).collect();
        let is_stored = |(_, kept): &(&RenewRequest<'_>, &Option<RenewResult>)| kept.is_none();
        let stored: Vec<RenewRequest<'_>> =
            renewals.iter().zip(&kept).filter(is_stored).map(|(one, _)| *one).collect();
        let mut results = provider.each(&stored, provider.deadline()).wait().await.into_iter();
        kept.into_iter().filter_map(|kept| kept.or_else(|| results.next())).collect()
    }

    /// Renews a reservation at each of its counters. Returns the time after which it expires; `None` if one of
    /// its slots is lost, or if no counter that can deny requests knows it any more.
    pub(in crate::rules) async fn renew_at(
        &self,
        outstanding: &Outstanding,
        ttl: Duration,
    ) -> Result<Option<Duration>, TrypemaError> {
        let set = self.set.load_full();
        let counters = outstanding.counters.iter().filter_map(|name| ReservedCounter::named(name, &set));
        let counters: Vec<ReservedCounter<'_>> = counters.collect();
        let holds = counters.iter().filter(|counter| !counter.is_shadow()).filter_map(ReservedCounter::hold);
        let ttl = holds.min().map_or(ttl, |hold| hold.min(ttl));
        let renewals: Vec<RenewRequest<'_>> = counters
            .iter()
            .map(|counter| RenewRequest { check: counter.check(0), id: outstanding.id, ttl })
            .collect();
        let renewed = self.renew_everywhere(&renewals).await;
        for (counter, renewed) in counters.iter().zip(&renewed) {
            let Ok(renewed) = renewed else { continue };
            let change = match *renewed {
                Some(RenewedCheck { was_left, expires_in }) => {
                    ReservationChange::Renewed { was_left, expires_in }
                }
                None => ReservationChange::NotOutstanding,
            };
            self.report_reservation(counter.key, change);
        }
        let is_removed = |name: &CounterName| !name.is_shadow && set.rule_of_counter(&name.key).is_none();
        if counters.iter().all(ReservedCounter::is_shadow) && !outstanding.counters.iter().any(is_removed) {
            // No rule can deny the request, so it has nothing to lose.
            return Ok(Some(ttl));
        }
        let mut is_lost = true;
        let enforced = counters.iter().zip(renewed).filter(|(counter, _)| !counter.is_shadow());
        let mut expires_in = ttl;
        for (counter, renewed) in enforced {
            match renewed? {
                None if self.is_kept_elsewhere(counter.name) => {
                    return Err(TrypemaError::ReservationNotYetKnown);
                }
                Some(renewed) => (is_lost, expires_in) = (false, expires_in.min(renewed.expires_in)),
                // Another request may have the slot by now, whatever other counters know.
                None if counter.hold().is_some() => return Ok(None),
                None => {}
            }
        }
        Ok((!is_lost).then_some(expires_in))
    }

    /// Fails if the rules do not declare one of the units.
    pub(crate) fn validate_costs(&self, costs: &[(&str, u64)]) -> Result<(), TrypemaError> {
        self.set.load().validate(&Request::new(&[]).with_costs(costs))
    }
}

/// Whether the observer hears of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rules) enum Report {
    Observer,
    /// It has not heard of the reservation either.
    Never,
}

/// Returns the change that a counter made.
fn change_of(settled: &SettledCheck, costs: SettleCosts<'_>) -> ReservationChange {
    let was_left = settled.expires_in;
    match (settled.status, costs) {
        (SettleStatus::Settled, SettleCosts::Nothing) => ReservationChange::Released { was_left },
        (SettleStatus::Settled, _) => ReservationChange::Settled { was_left },
        (SettleStatus::SettledBefore | SettleStatus::Unknown | SettleStatus::NoRoom, _) => {
            ReservationChange::NotOutstanding
        }
    }
}

/// Runs the work that follows the drop of a reservation.
#[derive(Debug, Clone)]
pub(in crate::rules) enum Spawner {
    /// The counters are in this process: the work never waits.
    Caller,
    /// The runtime in which the reservation was made, for callers that drop it outside of one.
    #[cfg(feature = "_redis")]
    Runtime(crate::redis::Runtime),
}

impl Spawner {
    pub(in crate::rules) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Caller => {
                let mut context = Context::from_waker(Waker::noop());
                let is_done = pin!(task).poll(&mut context);
                debug_assert!(is_done == Poll::Ready(()), "counters in this process never wait");
            }
            #[cfg(feature = "_redis")]
            Self::Runtime(runtime) => runtime.spawn(task),
        }
    }
}

/// A counter of a reservation, with its rule.
struct ReservedCounter<'r> {
    rule: &'r CompiledRule,
    key: &'r str,
    name: &'r CounterName,
}

impl<'r> ReservedCounter<'r> {
    /// Returns the counter of this name; `None` if no rule has it.
    fn named(name: &'r CounterName, set: &'r RuleSet) -> Option<Self> {
        Some(Self { rule: set.rule_of_counter(&name.key)?, key: &name.key, name })
    }

    /// Whether the rule cannot deny requests.
    fn is_shadow(&self) -> bool {
        self.rule.rule.is_shadow()
    }

    fn check(&self, cost: u64) -> Check<'r> {
        Check::new(self.key, self.rule.limit_of(self.key), cost)
    }

    fn unit(&self) -> &'r str {
        self.rule.rule.unit.as_deref().unwrap_or(REQUESTS)
    }

    fn hold(&self) -> Option<Duration> {
        self.rule.limit_of(self.key).held().map(ConcurrencyLimit::hold)
    }

    fn settlement(&self, id: ReservationId, costs: SettleCosts<'_>) -> SettleRequest<'r> {
        let cost = costs.cost_of(self.unit());
        let ending = if cost.is_none() { Ending::Estimate } else { Ending::Cost };
        SettleRequest { check: self.check(cost.unwrap_or(0)), id, ending, is_remembered: false }
    }

    /// Returns the unit. The usual one needs no allocation.
    fn unit_name(&self) -> Cow<'static, str> {
        self.rule.rule.unit.clone().map_or(Cow::Borrowed(REQUESTS), Cow::Owned)
    }
}

fn status_of(result: SettleResult) -> SettledStatus {
    let SettledCheck { status, reserved, counted, refunded, .. } = match result {
        Ok(settled) => settled,
        Err(error) => return SettledStatus::Failed(error),
    };
    match status {
        SettleStatus::Settled => SettledStatus::Settled { reserved, counted, refunded },
        SettleStatus::SettledBefore => SettledStatus::SettledBefore,
        SettleStatus::Unknown | SettleStatus::NoRoom => SettledStatus::NotOutstanding,
    }
}
