//! Requests that are denied by one counter after another one has reserved them, on every provider. On a Cluster
//! the counters are on different servers, and what was reserved is undone.

use std::time::Duration;

use trypema::rules::{OnDrop, Request, Reservation, ReserveOptions, RuleDecision, Verdict};
use trypema_testkit::blocking::wait_for;

use super::{Scene, a_minute, on_every_provider};

/// The rules are in different slots of a Cluster.
const TWO: &str = "
rules:
  - {id: ample, scope: user, strategy: {fixed_window: {limit: 10, window: 1d}}}
  - {id: slots, scope: user, strategy: {concurrency: {limit: 3, hold: 60s}}}
  - {id: tight, scope: user, strategy: {fixed_window: {limit: 1, window: 1s}}}
  - {id: logs, scope: user, action: log_only, strategy: {fixed_window: {limit: 9, window: 1d}}}
  - {id: next, scope: user, candidate_for: ample, strategy: {fixed_window: {limit: 8, window: 1d}}}
";

fn reserve(scene: &Scene, options: &ReserveOptions) -> Reservation {
    let ann = [("user", "ann")];
    wait_for(scene.engine.reserve(&Request::new(&ann), options)).unwrap()
}

fn left(scene: &Scene) -> Vec<(String, u64)> {
    let ann = [("user", "ann")];
    let explained = wait_for(scene.engine.explain(&Request::new(&ann).costing(0))).unwrap();
    explained.applying().map(|rule| (rule.decision.rule.id.clone(), rule.left)).collect()
}

fn left_of(scene: &Scene, id: &str) -> u64 {
    left(scene).into_iter().find(|(rule, _)| rule == id).unwrap().1
}

fn holders(scene: &Scene, rule: &str) -> usize {
    wait_for(scene.engine.holders(&format!("{rule}|user=ann"))).unwrap().unwrap().len()
}

#[test]
fn a_denied_reservation_is_nowhere() {
    on_every_provider(TWO, |scene| {
        let provider = scene.provider;
        for options in [a_minute(), a_minute().with_id("one").unwrap()] {
            scene.clock.advance(Duration::from_secs(1));
            let (ample, slots) = (left_of(scene, "ample"), left_of(scene, "slots"));
            let first = reserve(scene, &a_minute().on_drop(OnDrop::Keep));
            assert!(first.is_allowed(), "{provider}");
            for _ in 0..3 {
                let denied = reserve(scene, &options);
                assert!(!denied.is_allowed() && denied.text().is_none(), "{provider}");
                assert_eq!(denied.verdict().decided_by().unwrap().rule.id, "tight", "{provider}");
            }
            assert_eq!(left_of(scene, "ample"), ample - 1, "{provider}");
            assert_eq!(left_of(scene, "slots"), slots - 1, "{provider}");
        }
        assert_eq!(
            ["ample", "slots", "tight", "logs"].map(|rule| holders(scene, rule)),
            [2, 2, 2, 2],
            "{provider}"
        );
    });
}

/// A denied request with an id that the caller chose may be repeated. It spends when it is allowed.
#[test]
fn a_denied_request_is_repeated_under_its_id() {
    on_every_provider(TWO, |scene| {
        let provider = scene.provider;
        drop(reserve(scene, &a_minute().on_drop(OnDrop::Keep)));
        let options = a_minute().with_id("one").unwrap().on_drop(OnDrop::Keep);
        assert!(!reserve(scene, &options).is_allowed(), "{provider}");
        scene.clock.advance(Duration::from_secs(1));
        let repeated = reserve(scene, &options);
        assert!(repeated.is_allowed() && !repeated.is_repeated(), "{provider}");
        assert_eq!((left_of(scene, "ample"), left_of(scene, "slots")), (8, 1), "{provider}");
        assert_eq!((holders(scene, "ample"), holders(scene, "slots")), (2, 2), "{provider}");
        assert!(reserve(scene, &options).is_repeated(), "{provider}");
        assert_eq!((left_of(scene, "ample"), left_of(scene, "slots")), (8, 1), "{provider}");
    });
}

/// Rules that only log, and candidates, count a denied reservation as they count a denied check.
#[test]
fn rules_that_only_log_count_a_denied_reservation_as_a_check() {
    let denied_counts = |is_reserving: bool| {
        let mut counts = Vec::new();
        on_every_provider(TWO, |scene| {
            drop(reserve(scene, &a_minute().on_drop(OnDrop::Keep)));
            for _ in 0..2 {
                if is_reserving {
                    assert!(!reserve(scene, &a_minute()).is_allowed(), "{}", scene.provider);
                } else {
                    // A check skips limits on what is in flight.
                    let ann = [("user", "ann")];
                    assert!(!wait_for(scene.engine.check(&Request::new(&ann))).unwrap().is_allowed());
                }
            }
            assert_eq!(left_of(scene, "slots"), 2, "{}", scene.provider);
            counts.push(["ample", "logs", "next"].map(|rule| left_of(scene, rule)));
        });
        counts
    };
    assert_eq!(denied_counts(true), [[9, 6, 7]; 4]);
    assert_eq!(denied_counts(false), [[9, 6, 7]; 4]);
}

/// "A request that is denied charges nothing, so each other rule reports what is really left for it."
#[test]
fn a_denied_request_leaves_other_rules_as_they_were() {
    const RULES: &str = "
units: [tokens]
rules:
  - {id: calls, scope: user, strategy: {fixed_window: {limit: 1, window: 1d}}}
  - {id: absolute, scope: user, unit: tokens, strategy: {absolute: {limit: 100, window: 1h}}}
  - {id: bucket, scope: user, unit: tokens, strategy: {token_bucket: {limit: 100, window: 1h}}}
  - {id: sliding, scope: global, unit: tokens, strategy: {sliding_window: {limit: 100, window: 1h}}}
  - {id: suppressed, scope: user, unit: tokens, strategy: {suppressed: {limit: 100, window: 1h, group: 10ms, hard_limit_factor: 2}}}
  - {id: held, scope: user, unit: tokens, strategy: {concurrency: {limit: 100, hold: 1m}}}
";
    fn reports(verdict: &Verdict) -> Vec<(&str, u64, Option<Duration>)> {
        let others = verdict.rules().filter(|rule| rule.rule.id != "calls");
        let report = |rule: RuleDecision<'_>| {
            assert!(rule.decision.is_allowed(), "{}", rule.rule.id);
            // A window ends, whatever was spent in it.
            let is_window = rule.rule.id == "sliding";
            (rule.decision.remaining(), (!is_window).then(|| rule.decision.reset_after()))
        };
        others
            .map(|rule| (rule.rule.id.as_str(), report(rule)))
            .map(|(id, (left, reset))| (id, left, reset))
            .collect()
    }
    on_every_provider(RULES, |scene| {
        let provider = scene.provider;
        let ann = [("user", "ann")];
        let first = wait_for(scene.engine.check(&Request::new(&ann).with_costs(&[("tokens", 0)]))).unwrap();
        assert!(first.is_allowed(), "{provider}");
        scene.clock.advance(Duration::from_secs(1));
        let costs = [("tokens", 40)];
        let request = Request::new(&ann).with_costs(&costs);
        let untouched = |id: &'static str| (id, 100, (id != "sliding").then_some(Duration::ZERO));
        let rates = ["absolute", "bucket", "sliding", "suppressed"].map(untouched);
        let with_slots = ["absolute", "bucket", "held", "sliding", "suppressed"].map(untouched);
        let check = wait_for(scene.engine.peek(&request)).unwrap();
        assert_eq!(reports(&check), rates, "{provider}: peek");
        let check = wait_for(scene.engine.check(&request)).unwrap();
        assert_eq!(check.decided_by().unwrap().rule.id, "calls", "{provider}");
        assert_eq!(reports(&check), rates, "{provider}: check");
        let explained = wait_for(scene.engine.explain(&request)).unwrap();
        assert_eq!(reports(&explained.verdict), with_slots, "{provider}: explain");
        for options in [a_minute(), a_minute().with_id("one").unwrap()] {
            let reserved = wait_for(scene.engine.reserve(&request, &options)).unwrap();
            assert_eq!(reports(reserved.verdict()), with_slots, "{provider}: reserve");
        }
    });
}
