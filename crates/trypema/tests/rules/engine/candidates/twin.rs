//! A candidate that is identical to its live rule never differs from it, whatever other rules deny.

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use trypema::rules::{Engine, Request, Verdict};
use trypema_testkit::blocking::wait_for;

use super::super::{Local, left};
use super::on_every_provider;

const STRATEGIES: [&str; 6] = [
    "absolute: {limit: 5, window: 10s, group: 1s}",
    // After a refund, the group of the refunded units remains and may have begun before them. Groups of 1 ms
    // avoid that.
    "suppressed: {limit: 4, window: 10s, group: 1ms}",
    "token_bucket: {limits: [{limit: 3, window: 4s}, {limit: 6, window: 20s}]}",
    "sliding_window: {limit: 5, window: 10s}",
    "fixed_window: {limit: 5, window: 10s}",
    "abuse: {temp: {window: 5s, threshold: 4, block: 6s}, long: {window: 20s, threshold: 9, block: 30s}}",
];

/// Strategies whose units are interchangeable, so that it does not matter which units are refunded.
const EVEN: [&str; 2] = [STRATEGIES[2], STRATEGIES[4]];

fn twins(strategy: &str) -> String {
    format!(
        "
rules:
  - {{id: live, scope: user, strategy: {{{strategy}}}}}
  - {{id: twin, scope: user, candidate_for: live, strategy: {{{strategy}}}}}
  - {{id: before, scope: ip, priority: 1, strategy: {{fixed_window: {{limit: 2, window: 7s}}}}}}
  - {{id: after, scope: tenant, priority: 200, strategy: {{token_bucket: {{limit: 2, window: 5s}}}}}}
"
    )
}

#[derive(Debug, Clone)]
struct Step {
    wait: Duration,
    cost: u64,
    ip: &'static str,
    tenant: &'static str,
}

fn steps(count: Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let name = || prop_oneof![Just("1"), Just("2"), Just("3")];
    let step = (0_u64..1_500, 0_u64..3, name(), name());
    let step = step.prop_map(|(wait, cost, ip, tenant)| Step {
        wait: Duration::from_millis(wait),
        cost,
        ip,
        tenant,
    });
    proptest::collection::vec(step, count)
}

fn check(engine: &Engine, step: &Step) -> Verdict {
    let attributes = [("user", "ann"), ("ip", step.ip), ("tenant", step.tenant)];
    wait_for(engine.check(&Request::new(&attributes).costing(step.cost))).unwrap()
}

/// The difference between the two rules after a request, if any.
fn difference(engine: &Engine, verdict: &Verdict) -> Option<String> {
    if verdict.comparisons().any(|compared| compared.is_live_allowed != compared.is_candidate_allowed) {
        return Some(format!("{verdict:#?}"));
    }
    let left = left(engine, &[("user", "ann")]);
    (left[0].1 != left[1].1).then(|| format!("{left:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn here(steps in steps(1..60)) {
        for strategy in STRATEGIES {
            let local = Local::new(&twins(strategy));
            for step in &steps {
                local.clock.advance(step.wait);
                let verdict = check(&local.engine, step);
                prop_assert_eq!(difference(&local.engine, &verdict), None, "{}: {:?}", strategy, step);
            }
        }
    }
}

#[test]
fn on_every_store() {
    let mut runner = TestRunner::deterministic();
    let steps = steps(200..201).new_tree(&mut runner).unwrap().current();
    for strategy in EVEN {
        on_every_provider(&twins(strategy), |name, engine, clock| {
            let mut compared = 0;
            for step in &steps {
                clock.advance(step.wait);
                let verdict = check(engine, step);
                assert_eq!(difference(engine, &verdict), None, "{name}: {strategy}: {step:?}");
                compared += verdict.comparisons().count();
            }
            assert!((20..180).contains(&compared), "{name}: {compared} compared");
        });
    }
}
