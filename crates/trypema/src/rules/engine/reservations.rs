//! Reserving, settling, releasing and renewing.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{Engine, PlanDecisions};
use crate::check::{Check, Deadline, Receipts, TakeRequest};
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::observer::ReservationChange;
use crate::provider::{AnyReceipt, RecordMode, failure_policy};
use crate::reservation::{
    Ending, HeldReservation, RenewRequest, RenewedCheck, ReservationName, ReserveRequest, ReservedCheck,
    SettleRequest, SettleResult, SettleStatus, SettledCheck,
};
use crate::rules::plan::Plan;
use crate::rules::request::{REQUESTS, Request};
use crate::rules::reservation::{
    FinalCosts, Holder, NewReservation, Outstanding, Reservation, ReserveOptions, SettleCosts, SettledRule,
    SettledStatus, Settlement, valid_ttl,
};
use crate::rules::set::{CompiledRule, RuleSet};
use crate::rules::verdict::Verdict;
use crate::strategy::Limit;
use crate::strategy::reservations::ReservationId;
use crate::waiting::{Sleep, with_timeout};

/// The jitter of a waiter between two tries in a store that other processes share.
const POLL_JITTER: Duration = Duration::from_millis(250);

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
    /// let reservation = engine.reserve(&Request::new(&ann).with_costs(&[("tokens", 800)]), &options).await?;
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
            true => self.reserve_once(request, options.ttl, name).await?,
            false => self.reserve_patiently(request, options, name).await?,
        };
        Ok(Reservation::new(Arc::clone(self), new, options.on_drop, self.spawner()))
    }

    /// Settles a reservation by its text, as [`Reservation::settle`] does. Settling again changes nothing.
    pub async fn settle(&self, reservation: &str, costs: &[(&str, u64)]) -> Result<Settlement, TrypemaError> {
        self.validate_costs(costs)?;
        self.settle_at(Outstanding::read(reservation)?, SettleCosts::Units(costs)).await
    }

    /// Releases a reservation by its text, as [`Reservation::release`] does. Releasing again changes nothing.
    pub async fn release(&self, reservation: &str) -> Result<Settlement, TrypemaError> {
        self.settle_at(Outstanding::read(reservation)?, SettleCosts::Nothing).await
    }

    /// Lets a reservation last for `ttl` from now on. Returns the time after which it expires: `ttl`, or the
    /// `hold` of one of its concurrency rules if that is shorter. `None` if it is no longer outstanding.
    pub async fn renew(&self, reservation: &str, ttl: Duration) -> Result<Option<Duration>, TrypemaError> {
        valid_ttl(ttl)?;
        self.renew_at(&Outstanding::read(reservation)?, ttl).await
    }

    /// Returns the reservations that a counter holds, in the order in which they were made; `None` if the
    /// name belongs to no rule. No failure policy applies: a failure of the store is an `Err`.
    pub async fn holders(&self, key: &str) -> Result<Option<Vec<Holder>>, TrypemaError> {
        let set = self.set.load_full();
        let Some(rule) = set.rule_of_counter(key) else { return Ok(None) };
        let provider = self.provider();
        let check = Check::new(key, rule.limit_of(key), 0);
        let held = provider.holders(check, provider.deadline()).wait().await?;
        Ok(Some(held.iter().map(holder).collect()))
    }

    /// Gives back the units of one reservation at one counter, for an administrator. The reservation stays as
    /// it is at its other counters. `None` if the name belongs to no rule.
    pub async fn release_holder(&self, key: &str, id: &str) -> Result<Option<bool>, TrypemaError> {
        if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(TrypemaError::InvalidReservation { reason: "an id has 32 hexadecimal digits" });
        }
        let set = self.set.load_full();
        let Some(rule) = set.rule_of_counter(key) else { return Ok(None) };
        let provider = self.provider();
        let check = Check::new(key, rule.limit_of(key), 0);
        let held = provider.holders(check, provider.deadline()).wait().await?;
        let is_named = |held: &&HeldReservation| shown_id(held.id).eq_ignore_ascii_case(id);
        let Some(HeldReservation { id, .. }) = held.iter().find(is_named).copied() else {
            return Ok(Some(false));
        };
        let one = Outstanding { id, keys: vec![key.to_owned()] };
        let settlement = self.settle_at(one, SettleCosts::Nothing).await?;
        match settlement.rules.into_iter().next().map(|rule| rule.status) {
            Some(SettledStatus::Failed(error)) => Err(error),
            status => Ok(Some(matches!(status, Some(SettledStatus::Settled { .. })))),
        }
    }

    async fn reserve_once(
        self: &Arc<Self>,
        request: &Request<'_>,
        ttl: Duration,
        name: ReservationName,
    ) -> Result<NewReservation, TrypemaError> {
        let mut plan = Plan::for_reservation(self.set.load_full(), request)?;
        let ttl = plan.shortest_hold().map_or(ttl, |hold| hold.min(ttl));
        let if_cancelled = ReleaseIfCancelled::new(self, &plan, name);
        let reserved = self.reserve_plan(&plan, ttl, name).await;
        if_cancelled.disarm();
        let (decisions, parts) = reserved?;
        plan.decide(&decisions.outcomes, &decisions.decisions);
        self.report(&plan.verdict);
        let keys: Vec<String> =
            parts.parts.iter().map(|part| plan.verdict.key(part.outcome).to_owned()).collect();
        let outstanding = Outstanding { id: name.id, keys };
        let outstanding = if plan.verdict.is_allowed() {
            for part in parts.parts.iter().filter(|part| !part.is_known) {
                let expires_in = part.expires_in;
                self.report_reservation(
                    plan.verdict.key(part.outcome),
                    ReservationChange::Reserved { expires_in },
                );
            }
            Some(outstanding)
        } else {
            // Log-only rules and candidates reserve for themselves, and nobody will settle it. They count the
            // request, as those of a check do; slots are released.
            if !outstanding.keys.is_empty() {
                self.settle_counters(outstanding, SettleCosts::Estimate, Report::Never).await?;
            }
            None
        };
        Ok(NewReservation {
            verdict: plan.verdict,
            outstanding,
            expires_in: parts.enforced().iter().map(|part| part.expires_in).min().unwrap_or(ttl),
            is_repeated: parts.is_repeated(),
        })
    }

    /// Reserves the checks of a plan: those of enforced rules all or nothing, all others each on its own.
    async fn reserve_plan(
        &self,
        plan: &Plan,
        ttl: Duration,
        name: ReservationName,
    ) -> Result<(PlanDecisions, ReservedParts), TrypemaError> {
        let (provider, enforced, log_only) =
            (self.provider(), plan.enforced_checks(), plan.log_only_checks());
        let deadline = provider.deadline();
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
        let response = provider.reserve(request).wait().await?;
        let response = failure_policy::after_reserve(provider, request, response, &policy_of).await?;
        drop(policy_of);
        let mut parts = ReservedParts::default();
        parts.add(&enforced.outcomes, &response.receipts);
        parts.enforced = parts.parts.len();
        parts.add(&log_only.outcomes, &response.independent_receipts);
        let response = response.without_receipts::<AnyReceipt>();
        let mut decisions = PlanDecisions::from_take(enforced, log_only, response);
        let named = CandidateRequest { name, ttl, deadline };
        self.reserve_candidates(plan, named, &mut decisions, &mut parts).await;
        Ok((decisions, parts))
    }

    /// Reserves the candidates, each as if it replaced its live rule.
    async fn reserve_candidates(
        &self,
        plan: &Plan,
        request: CandidateRequest,
        decisions: &mut PlanDecisions,
        parts: &mut ReservedParts,
    ) {
        let candidates = plan.candidate_records(decisions);
        let (provider, CandidateRequest { name, ttl, deadline }) = (self.provider(), request);
        for (record, outcome) in candidates.records.iter().zip(&candidates.outcomes) {
            let outcome = vec![*outcome];
            if record.mode == RecordMode::Take {
                let independent = std::slice::from_ref(&record.check);
                let (checks, if_unreachable, receipts) = (&[], &[], Receipts::Unwanted);
                let take = TakeRequest { checks, independent, if_unreachable, receipts, deadline };
                let reserved = provider.reserve(ReserveRequest { take, name, ttl }).wait().await;
                let Ok(response) = reserved else { continue };
                parts.add(&outcome, &response.independent_receipts);
                decisions.add(outcome, response.independent);
            } else if !matches!(record.check.limit, Limit::Concurrency(_)) {
                let records = std::slice::from_ref(record);
                decisions.add(outcome, provider.record_all(records, deadline).wait().await);
            }
        }
    }

    /// Reserves, and waits while the request is denied and may be allowed soon.
    async fn reserve_patiently(
        self: &Arc<Self>,
        request: &Request<'_>,
        options: &ReserveOptions,
        name: ReservationName,
    ) -> Result<NewReservation, TrypemaError> {
        let clock = self.limiter.local().clock();
        let deadline = clock.now() + options.patience;
        let first_key = Plan::for_reservation(self.set.load_full(), request)?.first_slot_key();
        let is_crowded = first_key.as_deref().is_some_and(|key| self.waiters.is_waiting(key.as_bytes()));
        let mut denied = None;
        if !is_crowded {
            let new = self.reserve_once(request, options.ttl, name).await?;
            if !is_worth_waiting(&new.verdict, clock.now(), deadline) {
                return Ok(new);
            }
            denied = Some(new);
        }
        let key = denied.as_ref().and_then(|new| denying_key(&new.verdict)).or(first_key).unwrap_or_default();
        let Ok(position) = self.waiters.join(key.as_bytes()) else {
            // Too many callers wait already.
            return match denied {
                Some(denied) => Ok(denied),
                None => self.reserve_once(request, options.ttl, name).await,
            };
        };
        let turn = poll_fn(|context| position.poll_turn(context));
        if with_timeout(turn, Sleep::until(clock, deadline)).await.is_none() {
            return match denied {
                Some(denied) => Ok(denied),
                None => self.reserve_once(request, options.ttl, name).await,
            };
        }
        // The first try is at once: units may have been released before this caller was the first, and a
        // release wakes only the first.
        loop {
            let new = self.reserve_once(request, options.ttl, name).await?;
            if !is_worth_waiting(&new.verdict, clock.now(), deadline) {
                return Ok(new);
            }
            let retry_at = self.retry_at(&new.verdict, clock.now()).min(deadline);
            let woken = poll_fn(|context| position.poll_woken(context));
            with_timeout(woken, Sleep::until(clock, retry_at)).await;
        }
    }

    /// Returns the time of the next try after a denial.
    fn retry_at(&self, verdict: &Verdict, now: Timestamp) -> Timestamp {
        let wait = verdict.retry_after().unwrap_or_default();
        match self.provider().is_immediate() {
            true => now + wait,
            false => now + wait + crate::jitter::below(POLL_JITTER.min(wait)),
        }
    }

    /// Returns the clock by which callers wait.
    #[cfg(feature = "tower")]
    pub(in crate::rules) fn clock(&self) -> &crate::clock::ClockSource {
        self.limiter.local().clock()
    }

    /// Returns the means to settle a reservation when it is dropped.
    fn spawner(&self) -> Spawner {
        #[cfg(feature = "_redis")]
        if !self.provider().is_immediate() {
            return Spawner::Runtime(crate::redis::Runtime::current());
        }
        Spawner::Caller
    }

    /// Settles a reservation at each of its counters, and reports it to the observer.
    pub(in crate::rules) async fn settle_at(
        &self,
        outstanding: Outstanding,
        costs: SettleCosts<'_>,
    ) -> Result<Settlement, TrypemaError> {
        self.settle_counters(outstanding, costs, Report::Observer).await
    }

    /// Settles a reservation at each of its counters.
    async fn settle_counters(
        &self,
        outstanding: Outstanding,
        costs: SettleCosts<'_>,
        report: Report,
    ) -> Result<Settlement, TrypemaError> {
        let set = self.set.load_full();
        let counters = outstanding.counters(&set);
        let settlements: Vec<SettleRequest<'_>> =
            counters.iter().flatten().map(|counter| counter.settlement(outstanding.id, costs)).collect();
        let provider = self.provider();
        let results = provider.settle_all(&settlements, provider.deadline()).wait().await;
        for (settlement, result) in settlements.iter().zip(&results) {
            if result.as_ref().is_ok_and(|settled| settled.refunded > 0) {
                self.waiters.wake_first(settlement.check.key.as_bytes());
            }
            if let (Report::Observer, Ok(settled)) = (report, result) {
                self.report_reservation(settlement.check.key, change_of(settled, costs));
            }
        }
        let mut results = results.into_iter();
        let mut settled = |counter: Option<ReservedCounter<'_>>| match counter {
            Some(counter) => (counter.unit_name(), status_of(results.next())),
            None => (Cow::Borrowed(""), SettledStatus::RuleRemoved),
        };
        let settled: Vec<(Cow<'static, str>, SettledStatus)> =
            counters.into_iter().map(&mut settled).collect();
        let rules = outstanding.keys.into_iter().zip(settled);
        Ok(Settlement {
            rules: rules.map(|(key, (unit, status))| SettledRule { key, unit, status }).collect(),
        })
    }

    /// Settles a reservation whose holder is gone: at once if the counters are in this process, otherwise in a
    /// task. Outside of an async runtime, the reservation stays outstanding until it expires.
    pub(in crate::rules) fn settle_in_background(
        self: &Arc<Self>,
        outstanding: Outstanding,
        costs: FinalCosts,
        spawner: &Spawner,
    ) {
        let engine = Arc::clone(self);
        let settle = async move {
            let units: Vec<(&str, u64)> = match &costs {
                FinalCosts::Units(units) => units.iter().map(|(unit, cost)| (&**unit, *cost)).collect(),
                FinalCosts::Estimate | FinalCosts::Nothing => Vec::new(),
            };
            let costs = match costs {
                FinalCosts::Estimate => SettleCosts::Estimate,
                FinalCosts::Nothing => SettleCosts::Nothing,
                FinalCosts::Units(_) => SettleCosts::Units(&units),
            };
            // The observer reports failures. What cannot be settled expires.
            let _ = engine.settle_at(outstanding, costs).await;
        };
        spawner.run(settle);
    }

    pub(in crate::rules) async fn renew_at(
        &self,
        outstanding: &Outstanding,
        ttl: Duration,
    ) -> Result<Option<Duration>, TrypemaError> {
        let set = self.set.load_full();
        let counters = outstanding.counters(&set);
        let holds = counters.iter().flatten().filter_map(|counter| counter.hold());
        let ttl = holds.min().map_or(ttl, |hold| hold.min(ttl));
        let renewals: Vec<RenewRequest<'_>> = counters
            .iter()
            .flatten()
            .map(|counter| RenewRequest { check: counter.check(0), id: outstanding.id, ttl })
            .collect();
        let provider = self.provider();
        let renewed = provider.renew_all(&renewals, provider.deadline()).wait().await;
        for (counter, renewed) in counters.iter().flatten().zip(&renewed) {
            let Ok(renewed) = renewed else { continue };
            let change = match *renewed {
                Some(RenewedCheck { was_left, expires_in }) => {
                    ReservationChange::Renewed { was_left, expires_in }
                }
                None => ReservationChange::NotOutstanding,
            };
            self.report_reservation(counter.key, change);
        }
        let renewed: Vec<Option<RenewedCheck>> = renewed.into_iter().collect::<Result<_, _>>()?;
        Ok(renewed.into_iter().flatten().map(|renewed| renewed.expires_in).min())
    }

    /// Fails if the rules do not declare one of the units.
    pub(crate) fn validate_costs(&self, costs: &[(&str, u64)]) -> Result<(), TrypemaError> {
        self.set.load().validate(&Request::new(&[]).with_costs(costs))
    }
}

/// Whether the observer hears of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
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
        (SettleStatus::SettledBefore | SettleStatus::Unknown, _) => ReservationChange::NotOutstanding,
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
            let keys = plan.all_checks().checks.iter().map(|check| check.key.to_owned()).collect();
            let (engine, outstanding) = (Arc::clone(self.engine), Outstanding { id, keys });
            spawner.run(async move {
                // The observer has not heard of the reservation. What cannot be released expires.
                let _ = engine.settle_counters(outstanding, SettleCosts::Nothing, Report::Never).await;
            });
        }
    }
}

/// The part of a request that each candidate needs.
#[derive(Debug, Clone, Copy)]
struct CandidateRequest {
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
}

impl ReservedParts {
    fn add(&mut self, outcomes: &[usize], reserved: &[Option<ReservedCheck>]) {
        let part = |(outcome, part): (&usize, &Option<ReservedCheck>)| {
            let ReservedCheck { expires_in, is_known } = (*part)?;
            Some(ReservedPart { outcome: *outcome, expires_in, is_known })
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
}

/// A counter of a reservation, with its rule.
struct ReservedCounter<'r> {
    rule: &'r CompiledRule,
    key: &'r str,
}

impl<'r> ReservedCounter<'r> {
    fn check(&self, cost: u64) -> Check<'r> {
        Check::new(self.key, self.rule.limit_of(self.key), cost)
    }

    fn unit(&self) -> &'r str {
        self.rule.rule.unit.as_deref().unwrap_or(REQUESTS)
    }

    fn hold(&self) -> Option<Duration> {
        match self.rule.limit_of(self.key) {
            Limit::Concurrency(limit) => Some(limit.hold()),
            _ => None,
        }
    }

    fn settlement(&self, id: ReservationId, costs: SettleCosts<'_>) -> SettleRequest<'r> {
        let cost = costs.cost_of(self.unit());
        let ending = if cost.is_none() { Ending::Estimate } else { Ending::Cost };
        SettleRequest { check: self.check(cost.unwrap_or(0)), id, ending }
    }

    /// Returns the unit. The usual one needs no allocation.
    fn unit_name(&self) -> Cow<'static, str> {
        self.rule.rule.unit.clone().map_or(Cow::Borrowed(REQUESTS), Cow::Owned)
    }
}

fn status_of(result: Option<SettleResult>) -> SettledStatus {
    let settled = match result.unwrap_or_else(|| Ok(SettledCheck::default())) {
        Ok(settled) => settled,
        Err(error) => return SettledStatus::Failed(error),
    };
    let SettledCheck { status, reserved, counted, refunded, .. } = settled;
    match status {
        SettleStatus::Settled => SettledStatus::Settled { reserved, counted, refunded },
        SettleStatus::SettledBefore => SettledStatus::SettledBefore,
        SettleStatus::Unknown => SettledStatus::NotOutstanding,
    }
}

impl Outstanding {
    /// Returns the counters, in the order of their names; `None` where no rule has the counter.
    fn counters<'r>(&'r self, set: &'r RuleSet) -> Vec<Option<ReservedCounter<'r>>> {
        let counter = |key: &'r String| Some(ReservedCounter { rule: set.rule_of_counter(key)?, key });
        self.keys.iter().map(counter).collect()
    }
}

/// Whether a denial may be over before the deadline. A slot may be released at any time, so its denial always
/// may.
fn is_worth_waiting(verdict: &Verdict, now: Timestamp, deadline: Timestamp) -> bool {
    if verdict.is_allowed() || verdict.is_blocked() || now >= deadline {
        return false;
    }
    let is_slot = |limit: &Limit| matches!(limit, Limit::Concurrency(_));
    let mut denying = verdict.rules().filter(|rule| rule.is_denying()).peekable();
    denying.peek().is_some()
        && denying.all(|rule| match rule.decision.retry_after() {
            None => false,
            Some(wait) => is_slot(rule.limit) || now + wait <= deadline,
        })
}

fn denying_key(verdict: &Verdict) -> Option<String> {
    verdict.decided_by().map(|rule| rule.key.to_owned())
}

fn holder(held: &HeldReservation) -> Holder {
    Holder { id: shown_id(held.id), units: held.units, age: held.age, expires_in: held.expires_in }
}

/// Returns the id by which administrators see a reservation: a digest, because whoever knows the id itself can
/// settle the reservation.
fn shown_id(id: ReservationId) -> String {
    let digest = Sha256::new_with_prefix("trypema holder\0").chain_update(id.0).finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
