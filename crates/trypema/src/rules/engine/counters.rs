//! Operations on single counters, by the names that verdicts contain: inspect and reset.

use super::Engine;
use crate::check::DecideRequest;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::provider::ResetRequest;
use crate::rules::plan::Plan;
use crate::rules::verdict::Verdict;
use crate::strategy::Effect;

impl Engine {
    /// Returns the state of a counter, as the verdict on a request of this cost that only this counter
    /// decides; `None` if the name belongs to no rule. Spends nothing. No failure policy applies: a failure
    /// of the store is an `Err`.
    ///
    /// With a cost of 0, the verdict has the units that are left; with a cost of 1, the wait for the next
    /// one.
    pub async fn inspect(&self, key: &str, cost: u64) -> Result<Option<Verdict>, TrypemaError> {
        let Some(mut plan) = Plan::of_key(self.set.load_full(), key, cost) else { return Ok(None) };
        let (provider, all) = (self.provider(), plan.all_checks());
        let peeks = DecideRequest::all(Effect::Peek, &all.checks);
        let peeked = provider.each(&peeks, provider.deadline()).wait().await;
        let decisions: Vec<Option<Decision>> =
            peeked.into_iter().map(|decision| decision.map(Some)).collect::<Result<_, _>>()?;
        let outcomes = all.outcomes;
        plan.decide(&outcomes, &decisions);
        Ok(Some(plan.verdict))
    }

    /// Resets a counter. Returns whether it had any counts; `None` if the name belongs to no rule.
    pub async fn reset(&self, key: &str) -> Result<Option<bool>, TrypemaError> {
        let Some(plan) = Plan::of_key(self.set.load_full(), key, 0) else { return Ok(None) };
        match plan.all_checks().checks.first() {
            Some(check) => {
                let provider = self.provider();
                provider.one(ResetRequest { check: *check }, provider.deadline()).await.map(Some)
            }
            // An override blocks or exempts the key, so it has no counter.
            None => Ok(Some(false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::clock::ManualClock;
    use crate::decision::BlockScope;
    use crate::rate_limiter::RateLimiter;
    use crate::rules::{Request, RuleSet};

    const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {id: all, scope: global, action: log_only, strategy: {token_bucket: {limit: 9, window: 1h}}}
  - id: logins
    scope: user
    key_pattern: '{login}'
    strategy: {abuse: {temp: {window: 60s, threshold: 2, block: 10m}, long: {window: 1h, threshold: 3, block: 1d}}}
overrides:
  - {rule: per-user, key: {user: root}, strategy: {fixed_window: {limit: 50, window: 1h}}}
  - {rule: per-user, key: {user: mallory}, verdict: block}
";

    fn engine() -> Engine {
        let limiter = RateLimiter::builder().clock(Arc::new(ManualClock::default())).build().unwrap();
        Engine::local(Arc::new(limiter), RuleSet::from_yaml(RULES, "rules").unwrap())
    }

    /// Polls a future that is ready at once, as with counters in this process.
    fn now<T>(future: impl Future<Output = Result<T, TrypemaError>>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome.unwrap(),
            Poll::Pending => panic!("it waits"),
        }
    }

    fn left(engine: &Engine, key: &str) -> Option<u64> {
        now(engine.inspect(key, 0))?.rules().next().map(|rule| rule.decision.remaining())
    }

    #[test]
    fn counters_are_found_by_their_names() {
        let engine = engine();
        now(engine.check(&Request::new(&[("user", "root")]).costing(7)));
        assert_eq!(left(&engine, "per-user|user=root"), Some(43), "by the limit of that key");
        assert_eq!(left(&engine, "per-user|user=nobody"), Some(5));
        for unknown in [
            "",
            "other|user=ann",
            "per-user",
            "per-user|",
            "per-user|login=ann",
            "per-user|user=a|user=b",
            "all|x=y",
        ] {
            assert_eq!(left(&engine, unknown), None, "{unknown}");
        }
        let long = "x".repeat(1_000);
        let long = now(engine.check(&Request::new(&[("user", &long)])));
        let key = long.rules().find(|rule| rule.rule.id == "per-user").map(|rule| rule.key).unwrap();
        assert_eq!(left(&engine, key), Some(4), "{key}");
        let blocked = now(engine.inspect("per-user|user=mallory", 0)).unwrap();
        assert!(blocked.rules().all(|rule| rule.decision.is_never()));

        assert_eq!(now(engine.reset("per-user|user=root")), Some(true));
        assert_eq!(now(engine.reset("per-user|user=root")), Some(false));
        assert_eq!(left(&engine, "per-user|user=root"), Some(50));
        assert_eq!(now(engine.reset("per-user|user=mallory")), Some(false));
        assert_eq!(now(engine.reset("other|user=ann")), None);
    }

    #[test]
    fn a_block_tells_its_window() {
        let engine = engine();
        let attempt = || now(engine.check(&Request::new(&[("login", "ann")])));
        let scope = |verdict: Verdict| {
            verdict.rules().find(|rule| rule.rule.id == "logins").and_then(|rule| rule.block_scope())
        };
        assert_eq!(scope(attempt()), None);
        assert_eq!(scope(attempt()), Some(BlockScope::Temp));
        assert_eq!(scope(attempt()), Some(BlockScope::Long));
        assert_eq!(now(engine.reset("logins|login=ann")), Some(true));
        assert_eq!(scope(attempt()), None);
        let other = now(engine.check(&Request::new(&[("user", "ann")]).costing(6)));
        assert!(other.rules().all(|rule| rule.block_scope().is_none()), "only abuse rules block");
    }
}
