//! Rules that change while requests run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::rules::{Engine, Request, RuleSet};
use trypema_testkit::blocking::wait_for;

use super::{Local, ids, left, rules};

/// Two rule sets that no verdict may mix: even rules in one, odd ones in the other, and one that both share.
fn version(number: u64) -> RuleSet {
    let parity = if number.is_multiple_of(2) { ["even-a", "even-b"] } else { ["odd-a", "odd-b"] };
    let own: String = parity
        .iter()
        .map(|id| {
            format!(
                "  - {{id: {id}, scope: user, strategy: {{fixed_window: {{limit: 1000000, window: 1d}}}}}}\n"
            )
        })
        .collect();
    // The limit of the shared rule changes with every version. Its spent units stay.
    let limit = 1_000_000 + number;
    rules(&format!(
        "rules:\n{own}  - {{id: shared, scope: global, priority: 999, strategy: {{fixed_window: {{limit: {limit}, window: 366d}}}}}}\n"
    ))
}

const RELOADS: u64 = 200;
/// A hundred reloads per second.
const PAUSE: Duration = Duration::from_millis(10);

#[test]
fn every_request_sees_one_version_and_nothing_is_lost() {
    let engine = Arc::new(Engine::local(Arc::new(RateLimiter::builder().build().unwrap()), version(0)));
    let (is_over, admitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let (engine, is_over, admitted) =
                (Arc::clone(&engine), Arc::clone(&is_over), Arc::clone(&admitted));
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let verdict = engine.try_check(&Request::new(&[("user", "ann")])).unwrap().unwrap();
                    let ids = ids(&verdict);
                    assert!(
                        ids == ["even-a", "even-b", "shared"] || ids == ["odd-a", "odd-b", "shared"],
                        "{ids:?}"
                    );
                    assert!(verdict.is_allowed());
                    let number = verdict.set().rules().next().unwrap().id.starts_with("even");
                    assert_eq!(number, ids[0] == "even-a");
                    if admitted.fetch_add(1, Ordering::Relaxed) > 900_000 {
                        thread::sleep(PAUSE);
                    }
                }
            })
        })
        .collect();
    for number in 1..=RELOADS {
        thread::sleep(PAUSE);
        engine.replace(version(number));
    }
    is_over.store(true, Ordering::Relaxed);
    callers.into_iter().for_each(|caller| caller.join().unwrap());

    let admitted = admitted.load(Ordering::Relaxed);
    let left = left(&engine, &[("user", "ann")]);
    // The window of the shared rule does not end during the test, so its count must match the admissions.
    let spent = 1_000_000 + RELOADS - left.last().unwrap().1;
    assert!(
        admitted > RELOADS && spent <= admitted && admitted - spent <= 10,
        "{admitted} admitted, {spent} spent"
    );
}

#[test]
fn a_changed_limit_keeps_what_was_spent() {
    let local = Local::new("rules: [{id: r, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}]");
    let ann = [("user", "ann")];
    assert!(local.check_for(&ann, 4).is_allowed());
    local.engine.replace(rules("rules: [{id: r, name: Other, scope: user, key_pattern: \"the user {user}\", strategy: {fixed_window: {limit: 6, window: 1h}}}]"));
    assert_eq!(local.left(&ann), [("r".to_owned(), 2)]);
    local
        .engine
        .replace(rules("rules: [{id: r, scope: user, strategy: {fixed_window: {limit: 3, window: 1h}}}]"));
    assert!(!local.check(&ann).is_allowed());
    local.engine.replace(rules(
        "rules: [{id: other, scope: user, strategy: {fixed_window: {limit: 3, window: 1h}}}]",
    ));
    assert_eq!(local.left(&ann), [("other".to_owned(), 3)]);
}

#[test]
fn what_a_removed_rule_counted_expires() {
    let local = Local::new("rules: [{id: r, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}]");
    let rl = Arc::new(RateLimiter::builder().clock(local.clock.clone()).build().unwrap());
    let engine = Engine::local(
        Arc::clone(&rl),
        rules("rules: [{id: r, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}]"),
    );
    assert!(wait_for(engine.check(&Request::new(&[("user", "ann")]))).unwrap().is_allowed());
    assert_eq!(rl.local().fixed_window().len(), 1);
    engine.replace(rules("rules: []"));
    local.clock.advance(Duration::from_secs(7_200));
    rl.local().forget_stale(Duration::ZERO);
    assert_eq!(rl.local().fixed_window().len(), 0);
}

#[test]
fn invalid_rules_change_nothing() {
    let local = Local::new("rules: [{id: r, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}]");
    for file in
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/rules/invalid")).unwrap()
    {
        match RuleSet::read(file.unwrap().path()) {
            Ok(set) => drop(local.engine.replace(set)),
            Err(error) => assert!(!error.problems().is_empty()),
        }
        assert_eq!(ids(&local.check(&[("user", "bob")])), ["r"]);
    }
}
