//! The engine: asks all rules that apply to a request, all or nothing.

mod counters;
#[cfg(feature = "_redis")]
mod hybrid;
#[cfg(feature = "_redis")]
mod redis;
mod report;
mod shadow;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use counters::Refunded;

use super::explain::Explanation;
use super::plan::{Checks, Plan};
use super::request::Request;
use super::set::RuleSet;
use super::verdict::Verdict;
use crate::check::Check;
use crate::decision::Decision;
use crate::error::TrypemaError;
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
    provider: Provider,
    set: ArcSwap<RuleSet>,
}

/// Where counters live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    Local,
    #[cfg(feature = "_redis")]
    Redis,
    #[cfg(feature = "_redis")]
    Hybrid,
}

/// A verdict whose units can be given back by [`Engine::refund`].
#[derive(Debug)]
pub struct Reservation {
    plan: Plan,
    receipts: Receipts,
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

#[derive(Debug)]
enum Receipts {
    Local(Vec<Option<crate::local::Receipt>>),
    #[cfg(feature = "_redis")]
    Redis(Vec<Option<crate::redis::Receipt>>),
    #[cfg(feature = "_redis")]
    Hybrid(Vec<Option<crate::hybrid::Receipt>>),
}

/// What is done to counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Take,
    Reserve,
    Look,
    /// Each rule on its own: what has happened is counted whatever the others say.
    Record,
}

/// What became of a plan's checks.
#[derive(Debug)]
struct Decided {
    answers: Vec<usize>,
    decisions: Vec<Decision>,
    receipts: Receipts,
}

/// A plan that was decided, or one that the caller has to wait for.
#[derive(Debug)]
enum Here {
    Decided(Result<Reservation, TrypemaError>),
    #[cfg(feature = "_redis")]
    Elsewhere(Plan),
}

impl Engine {
    /// Rules whose counters are in this process.
    pub fn local(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, provider: Provider::Local, set: ArcSwap::new(rules.into()) }
    }

    /// Rules whose counters are shared through Redis. A request is one script call; on a Cluster, where counters
    /// are on different servers, see [`take_all`](crate::redis::RedisRateLimiterProvider::take_all).
    #[cfg(feature = "_redis")]
    pub fn redis(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, provider: Provider::Redis, set: ArcSwap::new(rules.into()) }
    }

    /// Rules whose counters are shared through Redis and leased: of a request, what is not leased is asked of Redis first, and
    /// what is leased is then spent in this process. Where everything is leased, or something is sure to be denied, nobody is
    /// asked.
    #[cfg(feature = "_redis")]
    pub fn hybrid(limiter: Arc<RateLimiter>, rules: impl Into<Arc<RuleSet>>) -> Self {
        Self { limiter, provider: Provider::Hybrid, set: ArcSwap::new(rules.into()) }
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
        self.reported(self.run(request, Mode::Take).await, request).map(Reservation::into_verdict)
    }

    /// As [`Engine::check`], where it can be answered without waiting; `None` if it cannot. Counters in this process
    /// always answer at once, and so do requests that no rule applies to.
    pub fn try_check(&self, request: &Request<'_>) -> Option<Result<Verdict, TrypemaError>> {
        match self.plan(request).map(|plan| self.run_here(plan, Mode::Take)) {
            Ok(Here::Decided(reservation)) => {
                Some(self.reported(reservation, request).map(Reservation::into_verdict))
            }
            #[cfg(feature = "_redis")]
            Ok(Here::Elsewhere(_)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// As [`Engine::check`], keeping what it takes to give everything back.
    pub async fn reserve(&self, request: &Request<'_>) -> Result<Reservation, TrypemaError> {
        self.reported(self.run(request, Mode::Reserve).await, request)
    }

    /// Whether [`Engine::check`] would let the request pass, spending nothing. Abuse rules are only asked whether they
    /// block: to count failures only, look before the attempt and [record](Engine::record) it after it has failed.
    pub async fn look(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        Ok(self.run(request, Mode::Look).await?.into_verdict())
    }

    /// Counts what has happened already, such as a login that failed, on every rule that applies, each on its own: what
    /// one denies is still counted by the others.
    pub async fn record(&self, request: &Request<'_>) -> Result<Verdict, TrypemaError> {
        self.reported(self.run(request, Mode::Record).await, request).map(Reservation::into_verdict)
    }

    /// Gives back what a request has spent, except on rules that only log. Once: a reservation is used up by it. If the
    /// rules were replaced meanwhile it is given back under the limits in force now. Candidates are given it back by units, the
    /// oldest first.
    pub async fn refund(&self, reservation: Reservation) -> Result<(), TrypemaError> {
        let set = self.set.load_full();
        let together = reservation.plan.under(&set, reservation.plan.together());
        let refunded = match &reservation.receipts {
            Receipts::Local(receipts) => {
                self.limiter.local().refund_all(&together.checks, receipts);
                Ok(())
            }
            #[cfg(feature = "_redis")]
            Receipts::Redis(receipts) => self.limiter.redis().refund_all(&together.checks, receipts).await,
            #[cfg(feature = "_redis")]
            Receipts::Hybrid(receipts) => self.limiter.hybrid().refund_all(&together.checks, receipts).await,
        };
        self.give_back_candidates(&reservation.plan, &set).await;
        refunded
    }

    /// Says of every rule whether it applies and why not, under which key, and with what left; spends nothing. Looks at
    /// every rule, so it is not for every request.
    pub async fn explain(&self, request: &Request<'_>) -> Result<Explanation, TrypemaError> {
        let mut plan = Plan::explaining(self.set.load_full(), request)?;
        let everything = plan.everything();
        let decisions = self.peek(&everything.checks).await?;
        let left = self.peek(&everything.clone().costing(0).checks).await?;
        let answers = everything.answers;
        plan.decide(&answers, &decisions);
        let left = answers.into_iter().zip(left.iter().map(Decision::remaining)).collect();
        Explanation::new(plan.verdict, left, request)
    }

    fn plan(&self, request: &Request<'_>) -> Result<Plan, TrypemaError> {
        Plan::new(self.set.load_full(), request)
    }

    async fn run(&self, request: &Request<'_>, mode: Mode) -> Result<Reservation, TrypemaError> {
        match self.run_here(self.plan(request)?, mode) {
            Here::Decided(reservation) => reservation,
            #[cfg(feature = "_redis")]
            Here::Elsewhere(plan) => {
                // On the heap, so that who is answered here does not carry the way to Redis along.
                let decided = match self.provider {
                    Provider::Hybrid => Box::pin(self.decide_on_hybrid(&plan, mode)).await?,
                    Provider::Local | Provider::Redis => Box::pin(self.decide_on_redis(&plan, mode)).await?,
                };
                Ok(Reservation::new(plan, decided))
            }
        }
    }

    /// Decides a plan, if nobody has to be waited for.
    fn run_here(&self, plan: Plan, mode: Mode) -> Here {
        match self.provider {
            #[cfg(feature = "_redis")]
            Provider::Redis if !plan.verdict.answers.is_empty() => Here::Elsewhere(plan),
            #[cfg(feature = "_redis")]
            Provider::Hybrid if !plan.verdict.answers.is_empty() => match self.decide_leased(&plan, mode) {
                Some(decided) => Here::Decided(decided.map(|decided| Reservation::new(plan, decided))),
                None => Here::Elsewhere(plan),
            },
            _ => {
                let decided = self.decide_here(&plan, mode);
                Here::Decided(decided.map(|decided| Reservation::new(plan, decided)))
            }
        }
    }

    fn decide_here(&self, plan: &Plan, mode: Mode) -> Result<Decided, TrypemaError> {
        let (local, together) = (self.limiter.local(), plan.together_in(mode));
        let spent = match mode {
            Mode::Take | Mode::Record => local.take_all(&together.checks)?,
            Mode::Reserve => local.reserve_all(&together.checks)?,
            Mode::Look => local.peek_all(&together.clone().looking().checks)?,
        };
        let mut decided = Decided {
            answers: together.answers,
            decisions: spent.decisions,
            receipts: Receipts::Local(spent.receipts),
        };
        self.ask_alone_here(plan, mode, &mut decided)?;
        Ok(decided)
    }

    async fn peek(&self, checks: &[Check<'_>]) -> Result<Vec<Decision>, TrypemaError> {
        Ok(match self.provider {
            Provider::Local => self.limiter.local().peek_all(checks)?.decisions,
            #[cfg(feature = "_redis")]
            Provider::Redis => self.limiter.redis().peek_all(checks).await?.decisions,
            #[cfg(feature = "_redis")]
            Provider::Hybrid => self.limiter.hybrid().peek_all(checks).await?.decisions,
        })
    }
}

impl Plan {
    fn together_in(&self, mode: Mode) -> Checks<'_> {
        if mode == Mode::Record { Checks::default() } else { self.together() }
    }

    fn alone_in(&self, mode: Mode) -> Checks<'_> {
        match mode {
            Mode::Take | Mode::Reserve => self.alone(),
            Mode::Look => self.alone().looking(),
            Mode::Record => self.everything(),
        }
    }
}

impl Reservation {
    fn new(mut plan: Plan, decided: Decided) -> Self {
        plan.decide(&decided.answers, &decided.decisions);
        Self { plan, receipts: decided.receipts }
    }
}
