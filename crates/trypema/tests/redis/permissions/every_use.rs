//! Everything that is done with Redis: every verb of every strategy, rules with reservations, and leases.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::redis::{RedisConnection, RedisLimiter};
use trypema::rules::{Engine, OnDrop, Request, ReserveOptions, RuleSet};
use trypema::strategy::Absolute;
use trypema_testkit::blocking::{self, Blocking, runtime, wait_for};
use trypema_testkit::redis::wait_until;
use trypema_testkit::verbs::Verbs;

use super::limiter;
use crate::expiry::verbs;
use crate::strategies::Limits;

/// Long enough that nothing expires during a test.
const WINDOW: Duration = Duration::from_secs(60);
/// Calls to a counter within which it is leased.
const ENOUGH_CALLS: usize = 5_000;

const RULES: &str = "
units: [tokens]
rules:
  - {id: all, priority: 1, scope: global, strategy: {fixed_window: {limit: 100000, window: 60s}}}
  - {id: user, priority: 2, scope: user, strategy: {sliding_window: {limit: 100000, window: 60s}}}
  - {id: tokens, priority: 3, scope: user, unit: tokens, strategy: {absolute: {limit: 100000, window: 60s}}}
  - {id: slots, priority: 4, scope: user, strategy: {concurrency: {limit: 1, hold: 60s}}}
";

/// Runs every verb of the Redis provider.
pub(super) fn counters(connection: &RedisConnection) {
    let rl = Arc::new(limiter(connection.clone()));
    verbs::run(&rl, WINDOW, |_| {});
    long_states(connection);
    rules(&Arc::new(Engine::redis(rl, RuleSet::from_yaml(RULES, "rules.yaml").unwrap())));
}

/// Fills the largest states, which are changed in place.
fn long_states(connection: &RedisConnection) {
    let clock = Arc::new(ManualClock::default());
    let rl = blocking::limiter(connection, "trypema", &clock).build().unwrap();
    let limit = Limits::of(5_000, WINDOW).absolute;
    let limiter: &RedisLimiter<Absolute> = rl.redis().absolute();
    for _ in 0..500 {
        clock.advance(Duration::from_millis(10));
        Blocking(limiter).take("long", &limit, 1);
    }
    clock.advance(WINDOW);
    Blocking(limiter).take("long", &limit, 1);
}

/// Runs every verb of rules.
fn rules(engine: &Arc<Engine>) {
    let ann = [("user", "ann")];
    let request = Request::new(&ann).with_costs(&[("tokens", 800)]);
    wait_for(engine.check(&request)).unwrap();
    wait_for(engine.peek(&request)).unwrap();
    wait_for(engine.record(&request)).unwrap();
    wait_for(engine.explain(&request)).unwrap();
    let options = ReserveOptions::new(Duration::from_secs(30)).unwrap();
    let reserve = |options: &ReserveOptions| wait_for(engine.reserve(&request, options)).unwrap();
    for (cost, id) in [(150, "cheaper"), (800, "as estimated"), (2_000, "dearer")] {
        let options = options.clone().with_id(id).unwrap().on_drop(OnDrop::Keep);
        let made = reserve(&options);
        assert!(made.is_allowed() && reserve(&options).is_repeated());
        assert!(!reserve(&ReserveOptions::new(WINDOW).unwrap()).is_allowed(), "the slot is taken");
        let holders = wait_for(engine.holders("slots|user=ann")).unwrap().unwrap();
        assert_eq!(holders.len(), 1);
        let text = made.into_text().unwrap();
        assert!(wait_for(engine.renew(&text, WINDOW)).unwrap().is_some());
        wait_for(engine.settle(&text, &[("tokens", cost)])).unwrap();
    }
    let released = reserve(&options).into_text().unwrap();
    wait_for(engine.release(&released)).unwrap();
    let held = reserve(&options);
    let waiting = options.clone().waiting(Duration::from_millis(50));
    assert!(!reserve(&waiting).is_allowed());
    let id = wait_for(engine.holders("slots|user=ann")).unwrap().unwrap()[0].id.clone();
    assert_eq!(wait_for(engine.release_holder("slots|user=ann", &id)).unwrap(), Some(true));
    drop(held);
    wait_for(engine.wait_for_settlements());
    wait_for(engine.inspect("user|user=ann", 1)).unwrap();
    for key in ["all", "user|user=ann", "tokens|user=ann", "slots|user=ann"] {
        wait_for(engine.reset(key)).unwrap();
    }
}

/// Leases units, lets two instances be counted, and returns everything.
pub(super) fn leases(connection: &RedisConnection) {
    let rl = Arc::new(limiter(connection.clone()));
    let other = limiter(connection.clone());
    let rule_set = RuleSet::from_yaml(RULES, "rules.yaml").unwrap();
    let engine = Arc::new(Engine::hybrid(Arc::clone(&rl), rule_set));
    let synced =
        [rl.hybrid().keep_in_sync(), other.hybrid().keep_in_sync()].map(|sync| runtime().spawn(sync));
    let mut calls = 0;
    while rl.hybrid().stats().held_units == 0 {
        wait_for(engine.check(&Request::new(&[("user", "bob")]).with_costs(&[("tokens", 1)]))).unwrap();
        calls += 1;
        assert!(calls < ENOUGH_CALLS, "the counters are never leased");
    }
    rules(&engine);
    let are_both_counted = || rl.hybrid().stats().instances.is_some_and(|instances| instances.get() == 2);
    wait_until("both instances to be counted", are_both_counted).unwrap();
    wait_for(rl.hybrid().release());
    synced.iter().for_each(|sync| sync.abort());
}
