//! The engine: checks a request against all rules that apply to it, all or nothing.

mod candidates;
mod counters;
mod report;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use counters::Refunded;

use super::definition::OnStoreFailure;
use super::explain::Explanation;
use super::plan::{Checks, Plan};
use super::request::Request;
use super::set::RuleSet;
use super::verdict::Verdict;
use crate::check::{CheckResult, Deadline, Receipts, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::provider::{AnyReceipt, Provider, RecordMode, RecordRequest, RefundRequest, failure_policy};
use crate::rate_limiter::RateLimiter;

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
/// assert_eq!(left, [0, 0]); // `all` has one left, which this request would have taken
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
}

/// Selects the provider that holds the counters.
pub(crate) type SelectProvider = fn(&RateLimiter) -> &dyn Provider;

/// A verdict whose units can be returned with [`Engine::refund`].
#[derive(Debug)]
pub struct Reservation {
    plan: Plan,
    receipts: Vec<Option<AnyReceipt>>,
}

impl Reservation {
    /// Returns the verdict.
    pub fn verdict(&self) -> &Verdict {
        &self.plan.verdict
    }

    /// Returns the verdict and drops the receipts. The units stay spent.
    pub fn into_verdict(self) -> Verdict {
        self.plan.verdict
    }
}

/// The decisions on the checks of a plan.
#[derive(Debug, Default)]
struct Decided {
    /// For each decision, the index of its answer in the plan.
    answers: Vec<usize>,
    /// `None` if the store failed and the rule is a shadow rule.
    decisions: Vec<Option<Decision>>,
    receipts: Vec<Option<AnyReceipt>>,
}

impl Engine {
    /// Creates an engine whose counters are in this process.
    pub fn local(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, select: |limiter| limiter.local(), set: ArcSwap::new(rules.into()) }
    }

    /// Creates an engine whose counters are shared through Redis. A check is one script call. On a Redis
    /// Cluster, where the counters may be on several servers, see
    /// [`take_all`](crate::redis::RedisRateLimiterProvider::take_all).
    ///
    /// While Redis is unreachable, each rule's `on_store_failure` decides, or the limiter's failure policy
    /// for rules without one. This holds for every method of the engine.
    #[cfg(feature = "_redis")]
    pub fn redis(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, select: |limiter| limiter.redis(), set: ArcSwap::new(rules.into()) }
    }

    /// Creates an engine whose counters are shared through Redis and leased. The engine first takes the
    /// checks without a lease from Redis, in one call, and then spends leased units in this process. No call
    /// to Redis is needed if leased units cover all checks, or if one check is certain to be denied.
    #[cfg(feature = "_redis")]
    pub fn hybrid(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, select: |limiter| limiter.hybrid(), set: ArcSwap::new(rules.into()) }
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
        let decided = self.take(&plan, Receipts::Unwanted).await?;
        Ok(self.reported(plan.decided(&decided), request))
    }

    /// The same as [`Engine::check`], if no waiting is needed; otherwise `None`. Counters in this process
    /// never need waiting, and neither does a request that no rule applies to.
    pub fn try_check(&self, request: &Request<'_>) -> Option<Result<Verdict, TrypemaError>> {
        let plan = match self.plan(request) {
            Ok(plan) => plan,
            Err(error) => return Some(Err(error)),
        };
        let decided = self.try_take(&plan)?;
        Some(decided.map(|decided| self.reported(plan.decided(&decided), request)))
    }

    /// The same as [`Engine::check`], but keeps receipts, so that the units can be refunded.
    pub async fn reserve(&self, request: &Request<'_>) -> Result<Reservation, TrypemaError> {
        let mut plan = self.plan(request)?;
        let decided = self.take(&plan, Receipts::Wanted).await?;
        plan.decide(&decided.answers, &decided.decisions);
        self.report(&plan.verdict, request);
        Ok(Reservation { plan, receipts: decided.receipts })
    }

    /// Returns the verdict that [`Engine::check`] would give. Spends nothing. Abuse rules are only checked
    /// for a block: to count failures only, call this before the attempt and [`record`](Engine::record) after
    /// it has failed.
    pub async fn look(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let plan = self.plan(request)?;
        let checks = plan.peeked().looking();
        let decided = self.peek(&plan, checks, self.provider().deadline()).await?;
        Ok(plan.decided(&decided))
    }

    /// Counts an event that has already happened, such as a failed login. Every rule that applies counts it
    /// on its own, even if another rule denies it.
    ///
    /// If the store fails for a rule, its failure policy applies. After an `Err`, some rules may not have
    /// counted the event. A decision that [is uncounted](Decision::is_uncounted) means that this rule has not
    /// counted it.
    pub async fn record(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let plan = self.plan(request)?;
        let decided = self.record_each(&plan).await?;
        Ok(self.reported(plan.decided(&decided), request))
    }

    /// Returns the units that a reservation spent, except those of log-only rules. Consumes the reservation,
    /// so that the units are returned only once.
    ///
    /// If the rules were replaced in the meantime, the limits now in force apply. Candidates have no
    /// receipts: they are refunded by number of units, the oldest units first.
    pub async fn refund(&self, reservation: Reservation) -> Result<(), TrypemaError> {
        let (set, provider) = (self.set.load_full(), self.provider());
        let (plan, deadline) = (&reservation.plan, provider.deadline());
        let together = plan.under(&set, plan.together());
        let spent = together.checks.iter().zip(&together.answers).zip(&reservation.receipts);
        let (refunds, answers): (Vec<RefundRequest<'_>>, Vec<usize>) = spent
            .filter_map(|((check, answer), receipt)| {
                Some((RefundRequest { check: *check, receipt: Some(receipt.as_ref()?) }, *answer))
            })
            .unzip();
        let policy_of = plan.policy_of(&answers);
        let refunded = failure_policy::refund_all(provider, &refunds, deadline, &policy_of).await;
        self.refund_candidates(plan, &set, deadline).await;
        refunded.into_iter().try_for_each(|refunded| refunded.map(|_| ()))
    }

    /// Explains for every rule whether it applies, and if not, why; under which key; and how much is left.
    /// Spends nothing. The time grows with the number of rules, so this is not for every request.
    pub async fn explain(&self, request: &Request<'_>) -> Result<Explanation, TrypemaError> {
        let mut plan = Plan::explaining(self.set.load_full(), request)?;
        let deadline = self.provider().deadline();
        let decided = self.peek(&plan, plan.everything(), deadline).await?;
        let left = self.peek(&plan, plan.everything().costing(0), deadline).await?;
        plan.decide(&decided.answers, &decided.decisions);
        let left = left.answers.into_iter().zip(left.decisions);
        let left = left.filter_map(|(answer, decision)| Some((answer, decision?.remaining()))).collect();
        Explanation::new(plan.verdict, left, request)
    }

    fn provider(&self) -> &dyn Provider {
        (self.select)(&self.limiter)
    }

    fn plan(&self, request: &Request<'_>) -> Result<Plan, TrypemaError> {
        Plan::new(self.set.load_full(), request)
    }

    /// Takes the checks of a plan: those of enforced rules all or nothing, those of log-only rules each on
    /// its own, and afterwards those of the candidates.
    async fn take(&self, plan: &Plan, receipts: Receipts) -> Result<Decided, TrypemaError> {
        let (provider, together, logging) = (self.provider(), plan.together(), plan.logging());
        let deadline = provider.deadline();
        let response = {
            let policy_of = plan.policy_of(&together.answers);
            let if_unreachable = failure_policy::if_unreachable(provider, &together.checks, &policy_of);
            let request = TakeRequest {
                checks: &together.checks,
                independent: &logging.checks,
                if_unreachable: &if_unreachable,
                receipts,
                deadline,
            };
            let response = provider.take_all(request).wait().await?;
            failure_policy::after_take(provider, request, response, &policy_of).await?
        };
        let mut decided = Decided::of_take(together, logging, response);
        let candidates = plan.candidates_after(&decided);
        if !candidates.records.is_empty() {
            let asked = provider.record_all(&candidates.records, deadline).wait().await;
            decided.add(candidates.answers, asked);
        }
        Ok(decided)
    }

    /// The same as [`Engine::take`], if no waiting is needed; otherwise `None`.
    fn try_take(&self, plan: &Plan) -> Option<Result<Decided, TrypemaError>> {
        let (provider, together, logging) = (self.provider(), plan.together(), plan.logging());
        if plan.has_candidates() && !provider.is_immediate() {
            return None;
        }
        let request = TakeRequest {
            checks: &together.checks,
            independent: &logging.checks,
            if_unreachable: &[],
            receipts: Receipts::Unwanted,
            deadline: Deadline::NEVER,
        };
        let response = match provider.take_all(request).ready()? {
            Ok(response) => response,
            Err(error) => return Some(Err(error)),
        };
        let mut decided = Decided::of_take(together, logging, response);
        let candidates = plan.candidates_after(&decided);
        if !candidates.records.is_empty() {
            let asked = provider.record_all(&candidates.records, Deadline::NEVER).ready();
            decided.add(candidates.answers, asked.unwrap_or_default());
        }
        Some(Ok(decided))
    }

    /// Records every check of a plan on its own.
    async fn record_each(&self, plan: &Plan) -> Result<Decided, TrypemaError> {
        let (provider, everything) = (self.provider(), plan.everything());
        let record = |check: &_| RecordRequest { check: *check, mode: RecordMode::Take };
        let records: Vec<RecordRequest<'_>> = everything.checks.iter().map(record).collect();
        let policy_of = plan.policy_of(&everything.answers);
        let results = failure_policy::record_all(provider, &records, provider.deadline(), &policy_of).await;
        Decided::of_each(plan, &everything.answers, results)
    }

    /// Peeks at checks of a plan. A store failure of a shadow rule does not fail the request.
    async fn peek(
        &self,
        plan: &Plan,
        checks: Checks<'_>,
        deadline: Deadline,
    ) -> Result<Decided, TrypemaError> {
        let policy_of = plan.policy_of(&checks.answers);
        let results = failure_policy::peek_all(self.provider(), &checks.checks, deadline, &policy_of).await;
        Decided::of_each(plan, &checks.answers, results)
    }
}

impl Decided {
    /// Combines the decisions of a take: those of `together`, then those of `logging`. A log-only rule has no
    /// decision if its store failed.
    fn of_take(together: Checks<'_>, logging: Checks<'_>, response: TakeResponse<AnyReceipt>) -> Self {
        let TakeResponse { decisions, receipts, independent, .. } = response;
        let mut decided = Self { answers: together.answers, decisions, receipts };
        decided.add(logging.answers, independent);
        decided
    }

    /// Combines the results of independent checks. The failure of an enforced rule is an error; that of a
    /// shadow rule is skipped.
    fn of_each(plan: &Plan, answers: &[usize], results: Vec<CheckResult>) -> Result<Self, TrypemaError> {
        let mut decided = Self::default();
        for (&answer, result) in answers.iter().zip(results) {
            match result {
                Ok(decision) => decided.push(answer, Some(decision)),
                Err(_) if plan.is_shadow(answer) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(decided)
    }

    /// Adds the results of shadow rules. A failure becomes a missing decision.
    fn add(&mut self, answers: Vec<usize>, results: Vec<CheckResult>) {
        for (answer, result) in answers.into_iter().zip(results) {
            self.push(answer, result.ok());
        }
    }

    fn push(&mut self, answer: usize, decision: Option<Decision>) {
        self.answers.push(answer);
        self.decisions.push(decision);
    }
}

impl Plan {
    /// Adds the decisions to the plan and returns its verdict.
    fn decided(mut self, decided: &Decided) -> Verdict {
        self.decide(&decided.answers, &decided.decisions);
        self.verdict
    }

    /// Returns the failure policy for each of these answers. For shadow rules it is always `Error`, so that a
    /// failure leaves them out: they never decide a request.
    fn policy_of<'p>(&'p self, answers: &'p [usize]) -> impl Fn(usize) -> Option<OnStoreFailure> + Sync + 'p {
        |index| match *answers.get(index)? {
            answer if self.is_shadow(answer) => Some(OnStoreFailure::Error),
            answer => self.on_store_failure(answer),
        }
    }
}
