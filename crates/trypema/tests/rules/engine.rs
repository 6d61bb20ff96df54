//! The rule engine: which rules apply, their combined decision, and reloads.
#![cfg(all(feature = "rules", feature = "redis-tokio"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod candidates;
mod endpoints;
mod explaining;
mod failure_policy;
mod five_rules;
mod hostile;
mod in_flight;
#[cfg(feature = "tracing")]
mod logging;
mod matching;
mod missing;
mod outage;
mod paths;
mod recipes;
mod reloading;
mod verdicts;
mod watching;

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, Request, ReserveOptions, RuleSet, Verdict};

/// An engine on the local provider, and its clock.
struct Local {
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
}

impl Local {
    fn new(yaml: &str) -> Self {
        let clock = Arc::new(ManualClock::default());
        let rl = RateLimiter::builder().clock(clock.clone()).build().unwrap();
        Self { engine: Arc::new(Engine::local(Arc::new(rl), rules(yaml))), clock }
    }

    fn check(&self, attributes: &[(&str, &str)]) -> Verdict {
        self.check_for(attributes, 1)
    }

    fn check_for(&self, attributes: &[(&str, &str)], cost: u64) -> Verdict {
        self.engine.try_check(&Request::new(attributes).costing(cost)).unwrap().unwrap()
    }

    /// The remaining units of each applicable rule, by id.
    fn left(&self, attributes: &[(&str, &str)]) -> Vec<(String, u64)> {
        left(&self.engine, attributes)
    }
}

fn rules(yaml: &str) -> RuleSet {
    RuleSet::from_yaml(yaml, "rules.yaml").unwrap_or_else(|error| panic!("{error}"))
}

/// The remaining units of each applicable rule, by id, on any provider.
fn left(engine: &Engine, attributes: &[(&str, &str)]) -> Vec<(String, u64)> {
    let explained = trypema_testkit::blocking::wait_for(engine.explain(&Request::new(attributes))).unwrap();
    explained.applying().map(|rule| (rule.decision.rule.id.clone(), rule.left)).collect()
}

/// The ids of the rules in a verdict.
fn ids(verdict: &Verdict) -> Vec<&str> {
    verdict.rules().map(|rule| rule.rule.id.as_str()).collect()
}

/// The options of a reservation of one minute.
fn a_minute() -> ReserveOptions {
    ReserveOptions::new(std::time::Duration::from_secs(60)).unwrap()
}

fn decided_by(verdict: &Verdict) -> Option<&str> {
    verdict.decided_by().map(|rule| rule.rule.id.as_str())
}
