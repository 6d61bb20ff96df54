//! The engine: checks a request against all rules that apply to it, all or nothing.
//!
//! A request is planned and decided by one version of the rules: `index` finds the rules that apply, `plan` their checks,
//! the failure policy passes these to the provider, and `verdict` combines the results.

mod candidates;
mod counters;
#[cfg(feature = "tower")]
mod receipts;
mod report;
mod reservations;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use reservations::BacklogCounts;
use reservations::{Backlog, RunningSettlements, Waitlist};
pub(super) use reservations::{EndedReservation, Report, Spawner};

use super::definition::OnStoreFailure;
use super::explain::{Explanation, PreparedExplanation};
use super::plan::{Checks, Plan};
use super::request::Request;
use super::set::RuleSet;
use super::verdict::Verdict;
use crate::check::{CheckResult, Deadline, DecideRequest, Receipts, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::observer::Observer;
use crate::provider::{AnyReceipt, Provider, failure_policy};
use crate::rate_limiter::RateLimiter;
use crate::strategy::{Effect, Payment};

/// The rules in force. Checks a request against all rules that apply, and spends its cost on all of them or
/// on none.
///
/// ```
/// use std::sync::Arc;
/// use trypema::RateLimiter;
/// use trypema::rules::{Engine, Request, RuleSet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = RuleSet::from_yaml(
///     "
///     rules:
///       - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
///       - {id: all, scope: global, strategy: {fixed_window: {limit: 3, window: 1h}}}
///     ",
///     "rules.yaml",
/// )?;
/// let engine = Engine::local(Arc::new(RateLimiter::builder().build()?), rules);
///
/// let ann = [("user", "ann")];
/// let verdict = engine.try_check(&Request::new(&ann).costing(2)).expect("local rules answer at once")?;
/// assert!(verdict.is_allowed());
///
/// let denied = engine.try_check(&Request::new(&ann)).expect("local rules answer at once")?;
/// assert_eq!(denied.decided_by().map(|rule| rule.rule.id.as_str()), Some("per-user"));
/// let left: Vec<u64> = denied.rules().map(|rule| rule.decision.remaining()).collect();
/// assert_eq!(left, [1, 0]); // `all` still has the one that it had
/// # Ok(())
/// # }
/// ```
///
/// The rules can be [replaced](Engine::replace) at any time. Each request is decided by one version of the
/// rules. A rule that keeps its id keeps its counts, even if its limit changes; the counts of a removed rule
/// expire.
#[derive(Debug)]
pub struct Engine {
    limiter: Arc<RateLimiter>,
    select: SelectProvider,
    set: ArcSwap<RuleSet>,
    /// Callers that wait for a reservation.
    waitlist: Waitlist,
    /// The settlements that run in the background.
    settlements: RunningSettlements,
    /// Work that waits for the store.
    backlog: Arc<Backlog>,
    /// The observer of rules and reservations; `None` for that of the limiter.
    observer: Option<Arc<dyn Observer>>,
}

/// Selects the provider that holds the counters.
pub(crate) type SelectProvider = fn(&RateLimiter) -> Provider<'_>;

/// The decisions on the checks of a plan.
#[derive(Debug, Default)]
struct PlanDecisions {
    /// For each decision, the index of its outcome in the plan.
    outcomes: Vec<usize>,
    /// `None` if the store failed and the rule is a shadow rule.
    decisions: Vec<Option<Decision>>,
    #[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "only the middleware refunds by receipt"))]
    receipts: Vec<Option<AnyReceipt>>,
}

impl Engine {
    /// Creates an engine whose counters are in this process.
    pub fn local(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self {
            limiter,
            select: |limiter| Provider::Local(limiter.local()),
            set: ArcSwap::new(rules.into()),
            waitlist: Waitlist::default(),
            settlements: RunningSettlements::default(),
            backlog: Arc::default(),
            observer: None,
        }
    }

    /// Creates an engine whose counters are shared through Redis. A check is one script call. On a Redis
    /// Cluster, where the counters may be on several servers, see
    /// [`take_all`](crate::redis::RedisRateLimiterProvider::take_all).
    ///
    /// While Redis is unreachable, each rule's `on_store_failure` decides, or the limiter's failure policy
    /// for rules without one. This holds for every method of the engine.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn redis(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self {
            limiter,
            select: |limiter| Provider::Redis(limiter.redis()),
            set: ArcSwap::new(rules.into()),
            waitlist: Waitlist::default(),
            settlements: RunningSettlements::default(),
            backlog: Arc::default(),
            observer: None,
        }
    }

    /// Creates an engine whose counters are shared through Redis and leased. The engine first takes the
    /// checks without a lease from Redis, in one call, and then spends leased units in this process. No call
    /// to Redis is needed if leased units cover all checks, or if one check is certain to be denied.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn hybrid(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self {
            limiter,
            select: |limiter| Provider::Hybrid(limiter.hybrid()),
            set: ArcSwap::new(rules.into()),
            waitlist: Waitlist::default(),
            settlements: RunningSettlements::default(),
            backlog: Arc::default(),
            observer: None,
        }
    }

    /// Returns the same engine, which reports reservations and the denials of log-only rules to this observer.
    /// Otherwise the observer of the limiter is used, which is also called for every take.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Puts other rules into force, for all requests from now on. Returns the previous rules.
    pub fn replace(&self, rules: impl Into<Arc<RuleSet>>) -> Arc<RuleSet> {
        self.set.swap(rules.into())
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.set.load_full()
    }

    /// Checks a request against all rules that apply, and spends its cost on all of them if none denies it.
    ///
    /// Log-only rules are counted independently of the others. Each candidate is evaluated as if it replaced
    /// its live rule.
    ///
    /// # Errors
    ///
    /// The store failed and the failure policy is to fail, or the request is invalid.
    pub async fn check(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let plan = self.plan(request)?;
        let decisions = self.take(&plan, Receipts::Unwanted).await?;
        Ok(self.reported(plan.into_verdict(&decisions)))
    }

    /// The same as [`Engine::check`], if no waiting is needed; otherwise `None`. Counters in this process
    /// never need waiting, and neither does a request that no rule applies to.
    pub fn try_check(&self, request: &Request<'_>) -> Option<Result<Verdict, TrypemaError>> {
        let plan = match self.plan(request) {
            Ok(plan) => plan,
            Err(error) => return Some(Err(error)),
        };
        let decisions = self.try_take(&plan)?;
        Some(decisions.map(|decisions| self.reported(plan.into_verdict(&decisions))))
    }

    /// Returns the verdict that [`Engine::check`] would give: what an allowed request would leave of each rule, or,
    /// if a rule denies it, what is left of the others. Spends nothing. Abuse rules are only checked
    /// for a block: to count failures only, call this before the attempt and [`record`](Engine::record) after
    /// it has failed.
    pub async fn peek(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let plan = self.plan(request)?;
        let checks = plan.checks_to_peek().for_peek();
        let deadline = self.provider().deadline();
        let mut decisions = self.peek_checks(&plan, checks, deadline).await?;
        let uncharged = plan.uncharged_by(&decisions);
        self.report_usage(&plan, &uncharged, &mut decisions, deadline).await;
        Ok(plan.into_verdict(&decisions))
    }

    /// Counts an event that has already happened, such as a failed login. Every rule that applies counts it
    /// on its own, even if another rule denies it. A postpaid rule counts it even if nothing is left.
    ///
    /// If the store fails for a rule, its failure policy applies. After an `Err`, some rules may not have
    /// counted the event. A decision that [is uncounted](Decision::is_uncounted) means that this rule has not
    /// counted it.
    pub async fn record(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let plan = self.plan(request)?;
        let decisions = self.record_each(&plan).await?;
        Ok(self.reported(plan.into_verdict(&decisions)))
    }

    /// Returns, for every rule, whether it applies, the reason if it does not, its key and its remaining
    /// units. Spends nothing. The time grows with the number of rules, so this is not for every request.
    ///
    /// With thousands of rules, this occupies its thread for milliseconds. An async server uses
    /// [`prepare_explanation`](Self::prepare_explanation), so that requests need not wait.
    pub async fn explain(&self, request: &Request<'_>) -> Result<Explanation, TrypemaError> {
        self.prepare_explanation(request).await?.finish(request)
    }

    /// The first part of [`explain`](Self::explain), which decides the rules that apply, and takes as long as two
    /// checks. The second part, [`PreparedExplanation::finish`], visits every rule. It needs no runtime, so it can
    /// run on a thread for long work.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use trypema::RateLimiter;
    /// # use trypema::rules::{Engine, Request, RuleSet};
    /// # let limit = "{fixed_window: {limit: 2, window: 1h}}";
    /// # let rules = format!("rules: [{{id: per-user, scope: user, strategy: {limit}}}, {{id: per-ip, scope: ip, strategy: {limit}}}]");
    /// # let rules = RuleSet::from_yaml(&rules, "rules.yaml").unwrap();
    /// # let engine = Engine::local(Arc::new(RateLimiter::builder().build().unwrap()), rules);
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let attributes = [("user", "ann")];
    /// let prepared = engine.prepare_explanation(&Request::new(&attributes)).await?;
    /// let explanation =
    ///     tokio::task::spawn_blocking(move || prepared.finish(&Request::new(&attributes))).await.unwrap()?;
    /// assert_eq!((explanation.applying().count(), explanation.not_applying().count()), (1, 1));
    /// # Ok::<(), trypema::TrypemaError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// The same as those of [`explain`](Self::explain).
    pub async fn prepare_explanation(
        &self,
        request: &Request<'_>,
    ) -> Result<PreparedExplanation, TrypemaError> {
        let mut plan = Plan::for_explanation(self.set.load_full(), request)?;
        let deadline = self.provider().deadline();
        let decisions = self.peek_checks(&plan, plan.all_checks(), deadline).await?;
        let left = self.peek_checks(&plan, plan.all_checks().costing(0), deadline).await?;
        plan.decide(&decisions.outcomes, &decisions.decisions);
        let uncharged = plan.uncharged_by(&decisions);
        let usage = left.of(&uncharged);
        plan.decide(&usage.outcomes, &usage.decisions);
        let left = left.outcomes.into_iter().zip(left.decisions);
        let left = left.filter_map(|(outcome, decision)| Some((outcome, decision?.remaining()))).collect();
        Ok(PreparedExplanation { verdict: plan.verdict, left })
    }

    fn provider(&self) -> Provider<'_> {
        (self.select)(&self.limiter)
    }

    fn plan(&self, request: &Request<'_>) -> Result<Plan, TrypemaError> {
        Plan::new(self.set.load_full(), request)
    }

    /// Takes the checks of a plan: those of enforced rules all or nothing, those of log-only rules each on
    /// its own, and afterwards those of the candidates.
    async fn take(&self, plan: &Plan, receipts: Receipts) -> Result<PlanDecisions, TrypemaError> {
        let (provider, enforced, log_only) =
            (self.provider(), plan.enforced_checks(), plan.log_only_checks());
        let deadline = provider.deadline();
        let response = {
            let policy_of = plan.policy_of(&enforced.outcomes);
            let may_fail = failure_policy::may_fail(provider, &enforced.checks, &policy_of);
            let request = TakeRequest {
                independent: &log_only.checks,
                may_fail: &may_fail,
                receipts,
                ..TakeRequest::new(&enforced.checks, deadline)
            };
            let response = provider.all_or_nothing(request).wait().await?;
            failure_policy::after_take(provider, request, response, &policy_of).await?
        };
        let mut decisions = PlanDecisions::from_take(enforced, log_only, response);
        let candidates = plan.candidate_requests(&decisions);
        if !candidates.requests.is_empty() {
            let asked = provider.each(&candidates.requests, deadline).wait().await;
            decisions.add(candidates.outcomes, asked);
        }
        Ok(decisions)
    }

    /// The same as [`Engine::take`], if no waiting is needed; otherwise `None`.
    fn try_take(&self, plan: &Plan) -> Option<Result<PlanDecisions, TrypemaError>> {
        let (provider, enforced, log_only) =
            (self.provider(), plan.enforced_checks(), plan.log_only_checks());
        if plan.has_candidates() && !provider.is_immediate() {
            return None;
        }
        let request = TakeRequest {
            independent: &log_only.checks,
            ..TakeRequest::new(&enforced.checks, Deadline::NEVER)
        };
        let response = match provider.all_or_nothing(request).ready()? {
            Ok(response) => response,
            Err(error) => return Some(Err(error)),
        };
        let mut decisions = PlanDecisions::from_take(enforced, log_only, response);
        let candidates = plan.candidate_requests(&decisions);
        if !candidates.requests.is_empty() {
            let asked = provider.each(&candidates.requests, Deadline::NEVER).ready();
            decisions.add(candidates.outcomes, asked.unwrap_or_default());
        }
        Some(Ok(decisions))
    }

    /// Records every check of a plan on its own.
    async fn record_each(&self, plan: &Plan) -> Result<PlanDecisions, TrypemaError> {
        let (provider, all) = (self.provider(), plan.all_checks());
        // The cost of a postpaid rule is a fact by now, so it counts even if nothing is left.
        let mut records = DecideRequest::all(Effect::Take, &all.checks);
        let postpaid = records.iter_mut().filter(|record| record.check.is_postpaid);
        postpaid.for_each(|record| record.payment = Payment::Debit);
        let policy_of = plan.policy_of(&all.outcomes);
        let results = failure_policy::decide_each(provider, &records, provider.deadline(), &policy_of).await;
        PlanDecisions::from_each(plan, &all.outcomes, results)
    }

    /// Peeks at checks of a plan. A store failure of a shadow rule does not fail the request.
    async fn peek_checks(
        &self,
        plan: &Plan,
        checks: Checks<'_>,
        deadline: Deadline,
    ) -> Result<PlanDecisions, TrypemaError> {
        let policy_of = plan.policy_of(&checks.outcomes);
        let peeks = DecideRequest::all(Effect::Peek, &checks.checks);
        let results = failure_policy::decide_each(self.provider(), &peeks, deadline, &policy_of).await;
        PlanDecisions::from_each(plan, &checks.outcomes, results)
    }

    /// Replaces the decisions of rules that allow a request and are not charged for it: they say what is left. If the
    /// store fails meanwhile, they stay as they are, and report less.
    async fn report_usage(
        &self,
        plan: &Plan,
        outcomes: &[usize],
        decisions: &mut PlanDecisions,
        deadline: Deadline,
    ) {
        if outcomes.is_empty() {
            return;
        }
        let checks = plan.all_checks().usage_of(outcomes);
        if let Ok(usage) = self.peek_checks(plan, checks, deadline).await {
            let usage = usage.of(outcomes);
            decisions.outcomes.extend(usage.outcomes);
            decisions.decisions.extend(usage.decisions);
        }
    }
}

impl PlanDecisions {
    /// Returns the decisions of these outcomes that allow the request.
    fn of(&self, outcomes: &[usize]) -> Self {
        let mut found = Self::default();
        for (outcome, decision) in self.outcomes.iter().zip(&self.decisions) {
            if outcomes.contains(outcome) && decision.is_some_and(|decision| decision.is_allowed()) {
                found.push(*outcome, *decision);
            }
        }
        found
    }

    /// Combines the decisions of a take: those of `enforced`, then those of `log_only`. A log-only rule has
    /// no decision if its store failed.
    fn from_take(enforced: Checks<'_>, log_only: Checks<'_>, response: TakeResponse<AnyReceipt>) -> Self {
        let TakeResponse { decisions, receipts, independent, .. } = response;
        let mut decisions = Self { outcomes: enforced.outcomes, decisions, receipts };
        decisions.add(log_only.outcomes, independent);
        decisions
    }

    /// Combines the results of independent checks. The failure of an enforced rule is an error; that of a
    /// shadow rule is skipped.
    fn from_each(plan: &Plan, outcomes: &[usize], results: Vec<CheckResult>) -> Result<Self, TrypemaError> {
        let mut decisions = Self::default();
        for (&outcome, result) in outcomes.iter().zip(results) {
            match result {
                Ok(decision) => decisions.push(outcome, Some(decision)),
                Err(_) if plan.is_shadow(outcome) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(decisions)
    }

    /// Adds the results of shadow rules. A failure becomes a missing decision.
    fn add(&mut self, outcomes: Vec<usize>, results: Vec<CheckResult>) {
        for (outcome, result) in outcomes.into_iter().zip(results) {
            self.push(outcome, result.ok());
        }
    }

    fn push(&mut self, outcome: usize, decision: Option<Decision>) {
        self.outcomes.push(outcome);
        self.decisions.push(decision);
    }
}

impl Plan {
    /// Adds the decisions to the plan and returns its verdict.
    fn into_verdict(mut self, decisions: &PlanDecisions) -> Verdict {
        self.decide(&decisions.outcomes, &decisions.decisions);
        self.verdict
    }

    /// Returns the failure policy for each of these outcomes. For shadow rules it is always `Error`, so that
    /// a failure leaves them out: they never decide a request.
    fn policy_of<'p>(
        &'p self,
        outcomes: &'p [usize],
    ) -> impl Fn(usize) -> Option<OnStoreFailure> + Sync + 'p {
        |index| match *outcomes.get(index)? {
            outcome if self.is_shadow(outcome) => Some(OnStoreFailure::Error),
            outcome => self.on_store_failure(outcome),
        }
    }
}
