//! Reserving, settling, releasing and renewing.
//!
//! Reserving plans a request as a check does, with the concurrency rules that apply, and waits for slots if its caller
//! wants that. The provider changes each counter and the table of reservations beside it in one step. Settling (`ending`)
//! finds the entry by its id, refunds or debits the difference and removes the entry, again in one step per counter.
//!
//! A dropped reservation is settled by a task (`background`), which tries again until the reservation has expired. While
//! the store is unreachable, `kept` has the reservations that the failure policy admitted here, and `backlog` brings them
//! to the store later and undoes attempts whose answer was lost; `strategy/reservations/attempts.rs` says why undoing
//! never takes units from a request that was allowed. `running` counts these tasks, so that a process can wait for them.

mod background;
mod backlog;
mod ending;
mod holders;
mod kept;
mod running;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

pub(in crate::rules) use background::EndedReservation;
pub(in crate::rules) use backlog::Backlog;
pub use backlog::BacklogCounts;
use backlog::PendingUndo;
pub(in crate::rules) use ending::{Report, Spawner};
pub(in crate::rules) use running::RunningSettlements;
pub(in crate::rules) use waiting::Waitlist;

use super::{Engine, PlanDecisions};
use crate::check::{Check, Deadline, DecideRequest, TakeRequest};
use crate::error::TrypemaError;
use crate::observer::ReservationChange;
use crate::provider::AnyReceipt;
use crate::provider::failure_policy::{self, PolicyOf};
use crate::reservation::{ReservationName, ReserveRequest, ReserveResponse, ReservedCheck, SettleRequest};
use crate::rules::plan::{Checks, Plan};
use crate::rules::request::Request;
use crate::rules::reservation::{
    CounterName, NewReservation, Outstanding, Reservation, ReservationRef, ReserveOptions, SettleCosts,
    Settlement, valid_ttl,
};
use crate::strategy::Effect;
use crate::strategy::reservations::ReserveAttempt;

impl Engine {
    /// Takes the cost of a request as an estimate, and returns it as a reservation to settle at what the
    /// request really cost. Concurrency rules apply, too: the reservation holds their slots.
    ///
    /// The units are taken from the store and never from a lease, so any server can settle the reservation
    /// if the counters are in Redis. While the store is unreachable, the failure policy decides. What it counts in
    /// this process is settled by this engine until the store is back, and then by any. What a call that failed
    /// may have reserved is undone when the store answers again.
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
            false => self.reserve_with_patience(request, options, name).await?,
        };
        Ok(Reservation::new(Arc::clone(self), new, options.on_drop, self.spawner()))
    }

    /// Settles a reservation by its text or its id, as [`Reservation::settle`] does. Settling again changes nothing.
    pub async fn settle(
        &self,
        reservation: impl Into<ReservationRef<'_>>,
        costs: &[(&str, u64)],
    ) -> Result<Settlement, TrypemaError> {
        self.validate_costs(costs)?;
        let outstanding = reservation.into().outstanding(self.set.load_full())?;
        Ok(self.settle_at(outstanding, SettleCosts::Units(costs)).await)
    }

    /// Releases a reservation by its text or its id, as [`Reservation::release`] does. Releasing again changes nothing.
    pub async fn release(
        &self,
        reservation: impl Into<ReservationRef<'_>>,
    ) -> Result<Settlement, TrypemaError> {
        let outstanding = reservation.into().outstanding(self.set.load_full())?;
        Ok(self.settle_at(outstanding, SettleCosts::Nothing).await)
    }

    /// Lets a reservation last for `ttl` from now on. Returns the time after which it expires: `ttl`, or the
    /// `hold` of one of its concurrency rules if that is shorter. `None` if it is no longer outstanding, or if
    /// one of its slots is lost.
    pub async fn renew(
        &self,
        reservation: impl Into<ReservationRef<'_>>,
        ttl: Duration,
    ) -> Result<Option<Duration>, TrypemaError> {
        valid_ttl(ttl)?;
        let outstanding = reservation.into().outstanding(self.set.load_full())?;
        self.renew_at(&outstanding, ttl).await
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
        let attempt = self.backlog.new_attempt(name.id);
        let mut parts = ReservedParts::default();
        let decisions = {
            let if_cancelled = UndoIfCancelled::new(self, &plan, attempt, ttl);
            let enforced = plan.enforced_checks();
            let log_only = match log_only_rules {
                LogOnlyRules::DecideNow => plan.log_only_checks(),
                LogOnlyRules::DecideInTheEnd => Checks::default(),
            };
            let policy_of = plan.policy_of(&enforced.outcomes);
            let may_fail = failure_policy::may_fail(provider, &enforced.checks, &policy_of);
            let take = TakeRequest {
                independent: &log_only.checks,
                may_fail: &may_fail,
                ..TakeRequest::new(&enforced.checks, deadline)
            };
            let request = ReserveRequest { take, name, attempt: attempt.number, ttl, is_debit: false };
            let reserved = match provider.all_or_nothing(request).wait().await {
                Ok(response) => self.apply_policy(request, response, &policy_of).await,
                Err(error) => Err(error),
            };
            drop(policy_of);
            if_cancelled.disarm();
            let response = reserved?;
            parts.add(&enforced.outcomes, &response.receipts);
            parts.enforced = parts.parts.len();
            parts.add(&log_only.outcomes, &response.independent_receipts);
            PlanDecisions::from_take(enforced, log_only, response.without_receipts::<AnyReceipt>())
        };
        plan.decide(&decisions.outcomes, &decisions.decisions);
        Ok(TriedReservation { plan, decisions, parts, name, attempt, ttl, deadline, log_only_rules })
    }

    /// Lets the failure policy decide the checks whose store failed. Undoes what the attempt has reserved, or may have
    /// reserved, where the caller gets no reservation.
    async fn apply_policy(
        self: &Arc<Self>,
        request: ReserveRequest<'_>,
        response: ReserveResponse,
        policy_of: &PolicyOf<'_>,
    ) -> Result<ReserveResponse, TrypemaError> {
        let TakeRequest { checks, independent, deadline, .. } = request.take;
        let mut lost = PendingUndo::of_lost(request, &response);
        if response.failures.is_empty() || !response.is_allowed() {
            self.undo_later(lost);
            return Ok(response);
        }
        let receipts = (response.receipts.clone(), response.independent_receipts.clone());
        let kept = self.backlog.receipts_for(response.failures.len());
        let decided = failure_policy::after_reserve(self.provider(), request, response, kept, policy_of);
        if let Some(allowed) = decided.as_ref().ok().filter(|decided| decided.is_allowed()) {
            self.keep_here(request, allowed, policy_of, &mut lost);
            self.undo_later(lost);
            return decided;
        }
        self.undo_later(lost);
        let is_open = |reserved: &Option<ReservedCheck>| reserved.is_some_and(|reserved| !reserved.is_ended);
        let reserved = checks.iter().zip(&receipts.0).filter(|(_, reserved)| is_open(reserved));
        self.undo(reserved.map(|(check, _)| PendingUndo::answered(check, request)).collect()).await;
        if decided.is_err() {
            // The caller gets no reservation to settle. Checks that decide for themselves count it, as they count a
            // request that is denied.
            let is_made = |reserved: &Option<ReservedCheck>| reserved.is_some_and(|one| !one.is_known);
            let made = independent.iter().zip(&receipts.1).filter(|(_, reserved)| is_made(reserved));
            let ended: Vec<SettleRequest<'_>> =
                made.map(|(check, _)| SettleRequest::at_estimate(*check, request.name.id)).collect();
            self.provider().each(&ended, deadline).wait().await;
        }
        let mut denied = decided?;
        failure_policy::report_usage(self.provider(), request.take, &mut denied.decisions).await;
        Ok(denied.without_unspent_receipts())
    }

    /// Lets the rules decide that decide for themselves: log-only rules, if they have not yet, and candidates.
    /// Then reports the verdict.
    async fn conclude(self: &Arc<Self>, tried: TriedReservation) -> NewReservation {
        let TriedReservation {
            mut plan,
            mut decisions,
            mut parts,
            name,
            attempt,
            ttl,
            deadline,
            log_only_rules,
        } = tried;
        let is_allowed = plan.verdict.is_allowed();
        let if_cancelled = UndoIfCancelled::new(self, &plan, attempt, ttl);
        if log_only_rules == LogOnlyRules::DecideInTheEnd {
            let shadow = ShadowRequest { name, attempt, ttl, deadline: self.provider().deadline() };
            self.reserve_each(plan.log_only_checks(), shadow, &mut decisions, &mut parts).await;
            self.reserve_candidates(&plan, shadow, &mut decisions, &mut parts).await;
        } else {
            let shadow = ShadowRequest { name, attempt, ttl, deadline };
            self.reserve_candidates(&plan, shadow, &mut decisions, &mut parts).await;
        }
        let name_of = |(index, part): (usize, &ReservedPart)| CounterName {
            key: plan.verdict.key(part.outcome).to_owned(),
            is_shadow: index >= parts.enforced,
            kept_until: part.is_kept_here.then(|| self.clock().now() + part.expires_in),
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
        self: &Arc<Self>,
        plan: &Plan,
        request: ShadowRequest,
        decisions: &mut PlanDecisions,
        parts: &mut ReservedParts,
    ) {
        let candidates = plan.candidate_requests(decisions);
        if candidates.requests.is_empty() {
            return;
        }
        let mut reserved = Checks::default();
        let (mut recorded, mut outcomes): (Vec<DecideRequest<'_>>, _) = (Vec::new(), Vec::new());
        for (candidate, outcome) in candidates.requests.into_iter().zip(candidates.outcomes) {
            match candidate.effect {
                Effect::Take => {
                    reserved.checks.push(candidate.check);
                    reserved.outcomes.push(outcome);
                }
                // A denied request holds no slot of a candidate either.
                _ if candidate.check.limit.is_held() => {}
                _ => {
                    recorded.push(candidate);
                    outcomes.push(outcome);
                }
            }
        }
        self.reserve_each(reserved, request, decisions, parts).await;
        if !recorded.is_empty() {
            let results = self.provider().each(&recorded, request.deadline).wait().await;
            decisions.add(outcomes, results);
        }
    }

    /// Reserves checks that do not decide the request, each on its own. A failure of the store leaves them out.
    async fn reserve_each(
        self: &Arc<Self>,
        shadow: Checks<'_>,
        ShadowRequest { name, attempt, ttl, deadline }: ShadowRequest,
        decisions: &mut PlanDecisions,
        parts: &mut ReservedParts,
    ) {
        if shadow.checks.is_empty() {
            return;
        }
        let take = TakeRequest { independent: &shadow.checks, ..TakeRequest::new(&[], deadline) };
        let request = ReserveRequest { take, name, attempt: attempt.number, ttl, is_debit: false };
        if let Ok(response) = self.provider().all_or_nothing(request).wait().await {
            self.undo_later(PendingUndo::of_lost(request, &response));
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
    attempt: ReserveAttempt,
    ttl: Duration,
    deadline: Deadline,
    log_only_rules: LogOnlyRules,
}

/// Undoes an attempt whose caller stops waiting for the store: the store may reserve nevertheless, and nobody would
/// settle it.
struct UndoIfCancelled<'e> {
    engine: &'e Arc<Engine>,
    plan: &'e Plan,
    attempt: ReserveAttempt,
    ttl: Duration,
    is_armed: bool,
}

impl<'e> UndoIfCancelled<'e> {
    fn new(engine: &'e Arc<Engine>, plan: &'e Plan, attempt: ReserveAttempt, ttl: Duration) -> Self {
        // Counters in this process never wait.
        let is_armed = !engine.provider().is_immediate();
        Self { engine, plan, attempt, ttl, is_armed }
    }

    fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for UndoIfCancelled<'_> {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let Self { engine, plan, attempt, ttl, .. } = *self;
        let undo =
            |check: &Check<'_>| PendingUndo { key: check.key.into(), attempt, ttl, is_answered: false };
        engine.undo_later(plan.all_checks().checks.iter().map(undo).collect());
    }
}

/// The part of a request that a shadow rule needs.
#[derive(Debug, Clone, Copy)]
struct ShadowRequest {
    name: ReservationName,
    attempt: ReserveAttempt,
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
    /// Whether this process keeps it, because the store was unreachable.
    is_kept_here: bool,
}

impl ReservedParts {
    fn add(&mut self, outcomes: &[usize], reserved: &[Option<ReservedCheck>]) {
        let part = |(outcome, part): (&usize, &Option<ReservedCheck>)| {
            let ReservedCheck { expires_in, is_known, is_ended, kept_here } = (*part)?;
            let is_kept_here = kept_here.is_some();
            Some(ReservedPart { outcome: *outcome, expires_in, is_known, is_ended, is_kept_here })
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
