//! The engine: asks all rules that apply to a request, all or nothing.

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
use crate::provider::{Counting, Provider, Receipt, Record, Refund, failure_policy};
use crate::rate_limiter::RateLimiter;

/// Rules in force: asks all that apply to a request, and spends on all or none of them.
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
/// The rules can be [replaced](Engine::replace) at any time. Each request is answered by one version of them; a rule
/// that keeps its id keeps what was spent, whatever its limit becomes, and what a removed rule counted expires.
#[derive(Debug)]
pub struct Engine {
    limiter: Arc<RateLimiter>,
    select: SelectProvider,
    set: ArcSwap<RuleSet>,
}

/// Chooses the provider that has the counters.
pub(crate) type SelectProvider = fn(&RateLimiter) -> &dyn Provider;

/// A verdict whose units can be given back by [`Engine::refund`].
#[derive(Debug)]
pub struct Reservation {
    plan: Plan,
    receipts: Vec<Option<Receipt>>,
}

impl Reservation {
    /// What was decided.
    pub fn verdict(&self) -> &Verdict {
        &self.plan.verdict
    }

    /// What was decided, keeping the units.
    pub fn into_verdict(self) -> Verdict {
        self.plan.verdict
    }
}

/// The decisions on the checks of a plan.
#[derive(Debug, Default)]
struct Decided {
    /// The answer of the plan that each decision is for.
    answers: Vec<usize>,
    /// `None` where a rule has none.
    decisions: Vec<Option<Decision>>,
    receipts: Vec<Option<Receipt>>,
}

impl Engine {
    /// Rules whose counters are in this process.
    pub fn local(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, select: |limiter| limiter.local(), set: ArcSwap::new(rules.into()) }
    }

    /// Rules whose counters are shared through Redis. A request is one script call; on a Cluster, where counters
    /// are on different servers, see [`take_all`](crate::redis::RedisRateLimiterProvider::take_all).
    ///
    /// Where Redis cannot be asked, a rule's `on_store_failure` decides, or else the policy that the limiter was
    /// built with: for every verb of this engine.
    #[cfg(feature = "_redis")]
    pub fn redis(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, select: |limiter| limiter.redis(), set: ArcSwap::new(rules.into()) }
    }

    /// Rules whose counters are shared through Redis and leased: of a request, what is not leased is asked of Redis first, and
    /// what is leased is then spent in this process. Where everything is leased, or something is sure to be denied, nobody is
    /// asked.
    #[cfg(feature = "_redis")]
    pub fn hybrid(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, select: |limiter| limiter.hybrid(), set: ArcSwap::new(rules.into()) }
    }

    /// Puts other rules in force, for every request from now on, and returns the old ones, which can be put back.
    pub fn replace(&self, rules: impl Into<Arc<RuleSet>>) -> Arc<RuleSet> {
        self.set.swap(rules.into())
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.set.load_full()
    }

    /// Asks all rules that apply and spends on all of them, if all let the request pass; rules that only log are asked
    /// and spent on their own, and candidates as if each stood in the place of its live rule. An `Err` means that the store
    /// could not be asked, or that the request is invalid.
    pub async fn check(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let plan = self.plan(request)?;
        let decided = self.take(&plan, Receipts::Unwanted).await?;
        Ok(self.reported(plan.decided(&decided), request))
    }

    /// As [`Engine::check`], where it can be answered without waiting; `None` if it cannot. Counters in this process
    /// always answer at once, and so do requests that no rule applies to.
    pub fn try_check(&self, request: &Request<'_>) -> Option<Result<Verdict, TrypemaError>> {
        let plan = match self.plan(request) {
            Ok(plan) => plan,
            Err(error) => return Some(Err(error)),
        };
        let decided = self.try_take(&plan)?;
        Some(decided.map(|decided| self.reported(plan.decided(&decided), request)))
    }

    /// As [`Engine::check`], keeping what it takes to give everything back.
    pub async fn reserve(&self, request: &Request<'_>) -> Result<Reservation, TrypemaError> {
        let mut plan = self.plan(request)?;
        let decided = self.take(&plan, Receipts::Wanted).await?;
        plan.decide(&decided.answers, &decided.decisions);
        self.report(&plan.verdict, request);
        Ok(Reservation { plan, receipts: decided.receipts })
    }

    /// Whether [`Engine::check`] would let the request pass, spending nothing. Abuse rules are only asked whether they
    /// block: to count failures only, look before the attempt and [record](Engine::record) it after it has failed.
    pub async fn look(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let plan = self.plan(request)?;
        let checks = plan.peeked().looking();
        let decided = self.peek(&plan, checks, self.provider().deadline()).await?;
        Ok(plan.decided(&decided))
    }

    /// Counts what has happened already, such as a login that failed, on every rule that applies, each on its own: what
    /// one denies is still counted by the others.
    ///
    /// Where the store fails for a rule, its failure policy holds: an `Err` says that some rules may not have counted it; a
    /// decision that [is not counted](Decision::is_uncounted) says that this rule has not.
    pub async fn record(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        let plan = self.plan(request)?;
        let decided = self.record_each(&plan).await?;
        Ok(self.reported(plan.decided(&decided), request))
    }

    /// Gives back what a request has spent, except on rules that only log. Once: a reservation is used up by it. If the
    /// rules were replaced meanwhile it is given back under the limits in force now. Candidates are given it back by units, the
    /// oldest first.
    pub async fn refund(&self, reservation: Reservation) -> Result<(), TrypemaError> {
        let (set, provider) = (self.set.load_full(), self.provider());
        let (plan, deadline) = (&reservation.plan, provider.deadline());
        let together = plan.under(&set, plan.together());
        let spent = together.checks.iter().zip(&together.answers).zip(&reservation.receipts);
        let (refunds, answers): (Vec<Refund<'_>>, Vec<usize>) = spent
            .filter_map(|((check, answer), receipt)| {
                Some((Refund { check: *check, receipt: Some(receipt.as_ref()?) }, *answer))
            })
            .unzip();
        let policy_of = plan.policy_of(&answers);
        let refunded = failure_policy::refund_all(provider, &refunds, deadline, &policy_of).await;
        self.refund_candidates(plan, &set, deadline).await;
        refunded.into_iter().try_for_each(|refunded| refunded.map(|_| ()))
    }

    /// Says of every rule whether it applies and why not, under which key, and with what left; spends nothing. Looks at
    /// every rule, so it is not for every request.
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

    /// Takes what a plan asks for: the rules that are enforced all or nothing, those that only log on their own, and then
    /// the candidates.
    async fn take(&self, plan: &Plan, receipts: Receipts) -> Result<Decided, TrypemaError> {
        let (provider, together, logging) = (self.provider(), plan.together(), plan.logging());
        let deadline = provider.deadline();
        let response = {
            let policy_of = plan.policy_of(&together.answers);
            let if_unreachable = failure_policy::if_unreachable(provider, &together.checks, &policy_of);
            let request = TakeRequest {
                together: &together.checks,
                alone: &logging.checks,
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

    /// The same, if nobody has to be waited for.
    fn try_take(&self, plan: &Plan) -> Option<Result<Decided, TrypemaError>> {
        let (provider, together, logging) = (self.provider(), plan.together(), plan.logging());
        if plan.has_candidates() && !provider.is_immediate() {
            return None;
        }
        let request = TakeRequest {
            together: &together.checks,
            alone: &logging.checks,
            if_unreachable: &[],
            receipts: Receipts::Unwanted,
            deadline: Deadline::NEVER,
        };
        let response = match provider.take_all(request).now()? {
            Ok(response) => response,
            Err(error) => return Some(Err(error)),
        };
        let mut decided = Decided::of_take(together, logging, response);
        let candidates = plan.candidates_after(&decided);
        if !candidates.records.is_empty() {
            let asked = provider.record_all(&candidates.records, Deadline::NEVER).now();
            decided.add(candidates.answers, asked.unwrap_or_default());
        }
        Some(Ok(decided))
    }

    /// Counts every check of a plan on its own.
    async fn record_each(&self, plan: &Plan) -> Result<Decided, TrypemaError> {
        let (provider, everything) = (self.provider(), plan.everything());
        let record = |check: &_| Record { check: *check, counting: Counting::Take };
        let records: Vec<Record<'_>> = everything.checks.iter().map(record).collect();
        let policy_of = plan.policy_of(&everything.answers);
        let results = failure_policy::record_all(provider, &records, provider.deadline(), &policy_of).await;
        Decided::of_each(plan, &everything.answers, results)
    }

    /// Peeks at checks of a plan. A rule that only logs, or is a candidate, never fails a request.
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
    /// The decisions of a take, in the order of its checks: those of `together`, then those of `logging`. A rule that only logs
    /// has none where its store failed.
    fn of_take(together: Checks<'_>, logging: Checks<'_>, response: TakeResponse<Receipt>) -> Self {
        let TakeResponse { decisions, receipts, alone, .. } = response;
        let mut decided = Self { answers: together.answers, decisions, receipts };
        decided.add(logging.answers, alone);
        decided
    }

    /// The results of checks that were asked each on its own. An enforced rule without a decision is an error.
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

    /// Adds the results of rules that never fail a request.
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
    /// The verdict, once everything is decided.
    fn decided(mut self, decided: &Decided) -> Verdict {
        self.decide(&decided.answers, &decided.decisions);
        self.verdict
    }

    /// The failure policy of each of these answers. Rules that only log and candidates are left out where their store fails,
    /// whatever their policy: they never decide a request.
    fn policy_of<'p>(&'p self, answers: &'p [usize]) -> impl Fn(usize) -> Option<OnStoreFailure> + Sync + 'p {
        |index| match *answers.get(index)? {
            answer if self.is_shadow(answer) => Some(OnStoreFailure::Error),
            answer => self.on_store_failure(answer),
        }
    }
}
