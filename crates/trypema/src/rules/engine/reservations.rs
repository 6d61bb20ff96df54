//! Reserving, settling, releasing and renewing.

mod background;
mod ending;
mod holders;
mod running;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

pub(in crate::rules) use background::EndedReservation;
pub(in crate::rules) use ending::{Report, Spawner};
pub(in crate::rules) use running::RunningSettlements;
pub(in crate::rules) use waiting::Waitlist;

use super::{Engine, PlanDecisions};
use crate::check::{Deadline, Receipts, TakeRequest};
use crate::error::TrypemaError;
use crate::observer::ReservationChange;
use crate::provider::{AnyReceipt, RecordMode, RecordRequest, failure_policy};
use crate::reservation::{ReservationName, ReserveRequest, ReservedCheck};
use crate::rules::plan::{Checks, Plan};
use crate::rules::request::Request;
use crate::rules::reservation::{
    CounterName, NewReservation, Outstanding, Reservation, ReserveOptions, SettleCosts, Settlement, valid_ttl,
};
use crate::strategy::Limit;
use crate::strategy::reservations::ReservationId;

impl Engine {
    /// Takes the cost of a request as an estimate, and returns it as a reservation to settle at what the
    /// request really cost. Concurrency rules apply, too: the reservation holds their slots.
    ///
    /// The units are taken from the store and never from a lease, so any server can settle the reservation
    /// if the counters are in Redis. While the store is unreachable, the failure policy decides; units that it
    /// counts in this process cannot be settled.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use trypema::RateLimiter;
    /// use trypema::rules::{Engine, Request, ReserveOptions, RuleSet};
    ///
    /// # fn now<F: Future>(future: F) -> F::Output {
    /// #     match std::pin::pin!(future).poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
    /// #         std::task::Poll::Ready(output) => output,
    /// #         std::task::Poll::Pending => unreachable!("counters in this process never wait"),
    /// #     }
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = RuleSet::from_yaml(
    ///     "
    ///     units: [tokens]
    ///     rules:
    ///       - {id: tokens, scope: user, unit: tokens, strategy: {absolute: {limit: 1000, window: 1h}}}
    ///     ",
    ///     "rules.yaml",
    /// )?;
    /// let engine = Arc::new(Engine::local(Arc::new(RateLimiter::builder().build()?), rules));
    /// # now(async {
    /// let options = ReserveOptions::new(Duration::from_secs(120))?;
    /// let ann = [("user", "ann")];
    ///
    /// let mut reservation = engine.reserve(&Request::new(&ann).with_costs(&[("tokens", 800)]), &options).await?;
    /// assert!(reservation.is_allowed());
    /// let denied = engine.reserve(&Request::new(&ann).with_costs(&[("tokens", 800)]), &options).await?;
    /// assert!(!denied.is_allowed());
    ///
    /// reservation.settle(&[("tokens", 150)]).await?; // 650 tokens are free again
    /// let next = engine.reserve(&Request::new(&ann).with_costs(&[("tokens", 800)]), &options).await?;
    /// assert!(next.is_allowed());
    /// # Ok::<(), trypema::TrypemaError>(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(
        self: &Arc<Self>,
        request: &Request<'_>,
        options: &ReserveOptions,
    ) -> Result<Reservation, TrypemaError> {
        let name = options.name(request);
        let new = match options.patience.is_zero() {
            true => self.reserve_at_once(request, options, name).await?,
            false => self.reserve_patiently(request, options, name).await?,
        };
        Ok(Reservation::new(Arc::clone(self), new, options.on_drop, self.spawner()))
    }

    /// Settles a reservation by its text, as [`Reservation::settle`] does. Settling again changes nothing.
    pub async fn settle(&self, reservation: &str, costs: &[(&str, u64)]) -> Result<Settlement, TrypemaError> {
        self.validate_costs(costs)?;
        Ok(self.settle_at(Outstanding::read(reservation)?, SettleCosts::Units(costs)).await)
    }

    /// Releases a reservation by its text, as [`Reservation::release`] does. Releasing again changes nothing.
    pub async fn release(&self, reservation: &str) -> Result<Settlement, TrypemaError> {
        Ok(self.settle_at(Outstanding::read(reservation)?, SettleCosts::Nothing).await)
    }

    /// Lets a reservation last for `ttl` from now on. Returns the time after which it expires: `ttl`, or the
    /// `hold` of one of its concurrency rules if that is shorter. `None` if it is no longer outstanding, or if
    /// one of its slots is lost.
    pub async fn renew(&self, reservation: &str, ttl: Duration) -> Result<Option<Duration>, TrypemaError> {
        valid_ttl(ttl)?;
        self.renew_at(&Outstanding::read(reservation)?, ttl).await
    }

    /// Tries to reserve, and concludes whatever the enforced rules decide.
    async fn reserve_at_once(
        self: &Arc<Self>,
        request: &Request<'_>,
        options: &ReserveOptions,
        name: ReservationName,
    ) -> Result<NewReservation, TrypemaError> {
        let tried = self.try_reserve(request, options.ttl, name, LogOnlyRules::DecideNow).await?;
        Ok(self.conclude(tried).await)
    }

    /// Lets the enforced rules decide, all or nothing.
    async fn try_reserve(
        self: &Arc<Self>,
        request: &Request<'_>,
        ttl: Duration,
        name: ReservationName,
        log_only_rules: LogOnlyRules,
    ) -> Result<TriedReservation, TrypemaError> {
        let mut plan = Plan::for_reservation(self.set.load_full(), request)?;
        let ttl = plan.shortest_hold().map_or(ttl, |hold| hold.min(ttl));
        let provider = self.provider();
        let deadline = provider.deadline();
        let mut parts = ReservedParts::default();
        let decisions = {
            let if_cancelled = ReleaseIfCancelled::new(self, &plan, name);
            let enforced = plan.enforced_checks();
            let log_only = match log_only_rules {
                LogOnlyRules::DecideNow => plan.log_only_checks(),
                LogOnlyRules::DecideInTheEnd => Checks::default(),
            };
            let policy_of = plan.policy_of(&enforced.outcomes);
            let if_unreachable = failure_policy::if_unreachable(provider, &enforced.checks, &policy_of);
            let take = TakeRequest {
                checks: &enforced.checks,
                independent: &log_only.checks,
                if_unreachable: &if_unreachable,
                receipts: Receipts::Unwanted,
                deadline,
            };
            let request = ReserveRequest { take, name, ttl };
            let reserved = async {
                let response = provider.reserve(request).wait().await?;
                failure_policy::after_reserve(provider, request, response, &policy_of).await
            };
            let reserved = reserved.await;
            drop(policy_of);
            if_cancelled.disarm();
            let response = reserved?;
            parts.add(&enforced.outcomes, &response.receipts);
            parts.enforced = parts.parts.len();
            parts.add(&log_only.outcomes, &response.independent_receipts);
            PlanDecisions::from_take(enforced, log_only, response.without_receipts::<AnyReceipt>())
        };
        plan.decide(&decisions.outcomes, &decisions.decisions);
        Ok(TriedReservation { plan, decisions, parts, name, ttl, deadline, log_only_rules })
    }

    /// Lets the rules decide that decide for themselves: log-only rules, if they have not yet, and candidates.
    /// Then reports the verdict.
    async fn conclude(self: &Arc<Self>, tried: TriedReservation) -> NewReservation {
        let TriedReservation { mut plan, mut decisions, mut parts, name, ttl, deadline, log_only_rules } =
            tried;
        let is_allowed = plan.verdict.is_allowed();
        let if_cancelled = ReleaseIfCancelled::new(self, &plan, name);
        if log_only_rules == LogOnlyRules::DecideInTheEnd {
            let shadow = ShadowRequest { name, ttl, deadline: self.provider().deadline() };
            self.reserve_each(plan.log_only_checks(), shadow, &mut decisions, &mut parts).await;
            self.reserve_candidates(&plan, shadow, &mut decisions, &mut parts).await;
        } else {
            let shadow = ShadowRequest { name, ttl, deadline };
            self.reserve_candidates(&plan, shadow, &mut decisions, &mut parts).await;
        }
        let name_of = |(index, part): (usize, &ReservedPart)| CounterName {
            key: plan.verdict.key(part.outcome).to_owned(),
            is_shadow: index >= parts.enforced,
        };
        let outstanding =
            Outstanding { id: name.id, counters: parts.parts.iter().enumerate().map(name_of).collect() };
        if !is_allowed && !outstanding.counters.is_empty() {
            // Nobody will settle what log-only rules and candidates reserved. They count the request, as those
            // of a check do; slots are released.
            self.settle_counters(&outstanding, SettleCosts::Estimate, Report::Never).await;
            let slots: Vec<usize> = parts.parts.iter().map(|part| part.outcome).collect();
            let slots = plan.slots_of(&slots);
            self.report_usage(&plan, &slots, &mut decisions, self.provider().deadline()).await;
        }
        if_cancelled.disarm();
        plan.decide(&decisions.outcomes, &decisions.decisions);
        self.report(&plan.verdict);
        if is_allowed {
            let counters = parts.parts.iter().zip(&outstanding.counters);
            for (part, counter) in counters.filter(|(part, _)| !part.is_known) {
                let expires_in = part.expires_in;
                self.report_reservation(&counter.key, ReservationChange::Reserved { expires_in });
            }
        }
        NewReservation {
            verdict: plan.verdict,
            outstanding: is_allowed.then_some(outstanding),
            expires_in: parts.enforced().iter().map(|part| part.expires_in).min().unwrap_or(ttl),
            is_repeated: parts.is_repeated(),
            is_ended: parts.is_ended(),
        }
    }

    /// Reserves the candidates, each as if it replaced its live rule.
    async fn reserve_candidates(
        &self,
        plan: &Plan,
        request: ShadowRequest,
        decisions: &mut PlanDecisions,
        parts: &mut ReservedParts,
    ) {
        let candidates = plan.candidate_records(decisions);
        if candidates.records.is_empty() {
            return;
        }
        let (mut reserved, mut recorded) = (Checks::default(), Checks::default());
        for (record, outcome) in candidates.records.iter().zip(candidates.outcomes) {
            let checks = match record.mode {
                RecordMode::Take => &mut reserved,
                // A denied request holds no slot of a candidate either.
                _ if matches!(record.check.limit, Limit::Concurrency(_)) => continue,
                _ => &mut recorded,
            };
            checks.checks.push(record.check);
            checks.outcomes.push(outcome);
        }
        self.reserve_each(reserved, request, decisions, parts).await;
        if !recorded.checks.is_empty() {
            let mode = RecordMode::DeniedElsewhere;
            let records = recorded.checks.iter().map(|check| RecordRequest { check: *check, mode });
            let records: Vec<RecordRequest<'_>> = records.collect();
            let results = self.provider().record_all(&records, request.deadline).wait().await;
            decisions.add(recorded.outcomes, results);
        }
    }

    /// Reserves checks that do not decide the request, each on its own. A failure of the store leaves them out.
    async fn reserve_each(
        &self,
        shadow: Checks<'_>,
        ShadowRequest { name, ttl, deadline }: ShadowRequest,
        decisions: &mut PlanDecisions,
        parts: &mut ReservedParts,
    ) {
        if shadow.checks.is_empty() {
            return;
        }
        let (checks, if_unreachable, receipts) = (&[], &[], Receipts::Unwanted);
        let take = TakeRequest { checks, independent: &shadow.checks, if_unreachable, receipts, deadline };
        if let Ok(response) = self.provider().reserve(ReserveRequest { take, name, ttl }).wait().await {
            parts.add(&shadow.outcomes, &response.independent_receipts);
            decisions.add(shadow.outcomes, response.independent);
        }
    }

    /// Returns the means to settle a reservation when it is dropped.
    fn spawner(&self) -> Spawner {
        #[cfg(feature = "_redis")]
        if !self.provider().is_immediate() {
            return Spawner::Runtime(crate::redis::Runtime::current());
        }
        Spawner::Caller
    }
}

/// When log-only rules decide a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogOnlyRules {
    /// Together with the enforced rules.
    DecideNow,
    /// When the request has been decided. A caller that waits may try many times, and they count it once.
    DecideInTheEnd,
}

/// A request that the enforced rules have decided.
struct TriedReservation {
    plan: Plan,
    decisions: PlanDecisions,
    parts: ReservedParts,
    name: ReservationName,
    ttl: Duration,
    deadline: Deadline,
    log_only_rules: LogOnlyRules,
}

/// Releases a reservation whose caller stops waiting for the store: the store may make it nevertheless, and
/// nobody would settle it. The store gets the release after the call that it follows.
struct ReleaseIfCancelled<'e> {
    engine: &'e Arc<Engine>,
    /// `None` if there is nothing to release.
    pending: Option<PendingRelease<'e>>,
}

struct PendingRelease<'e> {
    id: ReservationId,
    plan: &'e Plan,
    spawner: Spawner,
}

impl<'e> ReleaseIfCancelled<'e> {
    fn new(engine: &'e Arc<Engine>, plan: &'e Plan, name: ReservationName) -> Self {
        // Counters in this process never wait. With an id that the caller chose, it can ask again.
        let is_needed = !engine.provider().is_immediate() && !name.id.is_chosen();
        let pending = is_needed.then(|| PendingRelease { id: name.id, plan, spawner: engine.spawner() });
        Self { engine, pending }
    }

    fn disarm(mut self) {
        self.pending = None;
    }
}

impl Drop for ReleaseIfCancelled<'_> {
    fn drop(&mut self) {
        if let Some(PendingRelease { id, plan, spawner }) = self.pending.take() {
            let checks = plan.all_checks().checks;
            let names =
                checks.iter().map(|check| CounterName { key: check.key.to_owned(), is_shadow: false });
            let (engine, outstanding) =
                (Arc::clone(self.engine), Outstanding { id, counters: names.collect() });
            self.engine.run_counted(&spawner, async move { engine.release_cancelled(outstanding).await });
        }
    }
}

/// The part of a request that a shadow rule needs.
#[derive(Debug, Clone, Copy)]
struct ShadowRequest {
    name: ReservationName,
    ttl: Duration,
    deadline: Deadline,
}

/// The parts of a plan that were reserved.
#[derive(Debug, Default)]
struct ReservedParts {
    /// Those of enforced rules, then the others.
    parts: Vec<ReservedPart>,
    /// The number of those of enforced rules.
    enforced: usize,
}

/// The part of a reservation at one counter.
#[derive(Debug, Clone, Copy)]
struct ReservedPart {
    /// The index of its outcome.
    outcome: usize,
    expires_in: Duration,
    /// Whether an earlier request made it.
    is_known: bool,
    /// Whether it has been settled or released since.
    is_ended: bool,
}

impl ReservedParts {
    fn add(&mut self, outcomes: &[usize], reserved: &[Option<ReservedCheck>]) {
        let part = |(outcome, part): (&usize, &Option<ReservedCheck>)| {
            let ReservedCheck { expires_in, is_known, is_ended } = (*part)?;
            Some(ReservedPart { outcome: *outcome, expires_in, is_known, is_ended })
        };
        self.parts.extend(outcomes.iter().zip(reserved).filter_map(part));
    }

    /// Returns the parts of the rules that can deny the request. They alone tell whether it is repeated, and when
    /// it expires: a log-only rule may have denied the first request and not the second.
    fn enforced(&self) -> &[ReservedPart] {
        self.parts.get(..self.enforced).unwrap_or_default()
    }

    /// Whether an earlier request made the reservation.
    fn is_repeated(&self) -> bool {
        !self.enforced().is_empty() && self.enforced().iter().all(|part| part.is_known)
    }

    /// Whether the reservation, or a part of it, has been settled or released since.
    fn is_ended(&self) -> bool {
        self.enforced().iter().any(|part| part.is_ended)
    }
}
