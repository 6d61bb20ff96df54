//! Rules with leased counters: Redis decides cold keys first, then leased units are spent locally, all or
//! nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, Request, ReserveOptions, RuleSet, Verdict};
use trypema_testkit::blocking::{connect, limiter, runtime, wait_for};
use trypema_testkit::redis::Server;

/// One counter that all users share, and one per user.
const RULES: &str = "
rules:
  - {id: all, priority: 1, scope: global, strategy: {absolute: {limit: 1000, window: 60s}}}
  - {id: user, priority: 2, scope: user, strategy: {fixed_window: {limit: 5, window: 60s}}}
";

/// An instance with rules, on the server and the clock of the test.
struct Instance {
    engine: Arc<Engine>,
    rl: Arc<RateLimiter>,
    clock: Arc<ManualClock>,
}

impl Instance {
    fn new(server: &Server, clock: &Arc<ManualClock>, yaml: &str) -> Self {
        let builder =
            limiter(&connect(&server.url()), "rules", clock).sync_interval(Duration::from_millis(100));
        let rl = Arc::new(builder.build().unwrap());
        let rules = RuleSet::from_yaml(yaml, "rules.yaml").unwrap_or_else(|error| panic!("{error}"));
        Self { engine: Arc::new(Engine::hybrid(Arc::clone(&rl), rules)), rl, clock: Arc::clone(clock) }
    }

    fn check(&self, user: &str) -> Verdict {
        wait_for(self.engine.check(&Request::new(&[("user", user)]))).unwrap()
    }

    /// Makes the shared counter hot until the instance holds a lease of it. Returns the number of calls.
    fn warm_up(&self) -> u64 {
        let mut users = 0;
        while self.rl.hybrid().stats().held_units < 2 {
            assert!(self.check(&format!("visitor-{users}")).is_allowed());
            users += 1;
            assert!(users < 100, "the counter is never leased");
        }
        users
    }

    /// The remaining units of `rule` for `user`.
    fn left(&self, rule: &str, user: &str) -> u64 {
        let explained = wait_for(self.engine.explain(&Request::new(&[("user", user)]))).unwrap();
        let found = explained.applying().find(|applying| applying.decision.rule.id == rule);
        found.unwrap().left
    }
}

fn decided_by(verdict: &Verdict) -> Option<&str> {
    verdict.decided_by().map(|rule| rule.rule.id.as_str())
}

/// The number of script calls that Redis has executed.
fn calls(server: &Server) -> u64 {
    let info = server.info("commandstats").unwrap();
    let calls = |line: &str| line.split(',').find_map(|part| part.strip_prefix("calls=")?.parse().ok());
    calls(info.text("cmdstat_evalsha")).unwrap_or(0)
}

#[test]
fn what_a_cold_rule_denies_is_not_spent_on_a_leased_one() {
    let (server, clock) = (Server::start().unwrap(), Arc::new(ManualClock::default()));
    let instance = Instance::new(&server, &clock, RULES);
    let visitors = instance.warm_up();
    let spent_by_ann = (0..20).filter(|_| instance.check("ann").is_allowed()).count() as u64;
    assert_eq!(spent_by_ann, 5);
    assert_eq!(instance.left("all", "ann"), 1_000 - visitors - 5, "denied requests cost nothing");
    assert_eq!(decided_by(&instance.check("ann")), Some("user"));
}

#[test]
fn a_request_that_is_sure_to_be_denied_sends_no_call() {
    let (server, clock) = (Server::start().unwrap(), Arc::new(ManualClock::default()));
    let instance = Instance::new(&server, &clock, RULES);
    instance.warm_up();
    (0..6).for_each(|_| drop(instance.check("ann")));
    let before = calls(&server);
    for _ in 0..100 {
        let denied = instance.engine.try_check(&Request::new(&[("user", "ann")])).unwrap().unwrap();
        assert_eq!(decided_by(&denied), Some("user"));
        assert!(denied.retry_after().is_some_and(|wait| !wait.is_zero()));
    }
    assert_eq!(calls(&server), before);
    // A cached denial is checked again after at most one interval: the block may have been lifted, or units
    // refunded.
    clock.advance(Duration::from_millis(101));
    assert!(instance.engine.try_check(&Request::new(&[("user", "ann")])).is_none());
    assert!(!instance.check("ann").is_allowed());
    assert_eq!(calls(&server), before + 1);
}

#[test]
fn requests_of_leased_counters_send_few_calls() {
    let (server, clock) = (Server::start().unwrap(), Arc::new(ManualClock::default()));
    let yaml = "
rules:
  - {id: all, scope: global, strategy: {absolute: {limit: 1000000, window: 60s}}}
  - {id: user, scope: user, strategy: {token_bucket: {limit: 1000000, window: 60s}}}
";
    let instance = Instance::new(&server, &clock, yaml);
    runtime().spawn(instance.rl.hybrid().keep_in_sync());
    let mut answered_at_once = 0;
    for _ in 0..2_000 {
        match instance.engine.try_check(&Request::new(&[("user", "ann")])) {
            Some(verdict) => {
                assert!(verdict.unwrap().is_allowed());
                answered_at_once += 1;
            }
            None => assert!(instance.check("ann").is_allowed()),
        }
        clock.advance(Duration::from_micros(100));
    }
    assert!(answered_at_once > 1_500, "{answered_at_once}");
    assert!(calls(&server) < 500, "{}", calls(&server));
    // The rest of each lease is refunded, and no unit is lost.
    wait_for(instance.rl.hybrid().release());
    assert_eq!(instance.left("all", "ann"), 1_000_000 - 2_000);
    assert!(instance.left("user", "ann") >= 1_000_000 - 2_000, "a bucket has refilled meanwhile");
}

#[test]
fn what_a_leased_rule_denies_is_given_back_to_a_cold_one() {
    let (server, clock) = (Server::start().unwrap(), Arc::new(ManualClock::default()));
    let yaml = "
rules:
  - {id: all, priority: 1, scope: global, strategy: {fixed_window: {limit: 40, window: 60s}}}
  - {id: user, priority: 2, scope: user, strategy: {fixed_window: {limit: 5, window: 60s}}}
";
    let instance = Instance::new(&server, &clock, yaml);
    let admitted = (0..100).filter(|user| instance.check(&format!("user-{user}")).is_allowed()).count();
    assert_eq!(admitted, 40);
    // The cached denial of `all` has expired. The next check takes from `user` first, is denied by `all`, and
    // refunds `user`.
    clock.advance(Duration::from_millis(101));
    assert_eq!(decided_by(&instance.check("ann")), Some("all"));
    assert_eq!(instance.left("user", "ann"), 5);
}

#[test]
fn a_reservation_is_taken_from_redis_beside_leases() {
    let (server, clock) = (Server::start().unwrap(), Arc::new(ManualClock::default()));
    let instance = Instance::new(&server, &clock, RULES);
    let visitors = instance.warm_up();
    let request = [("user", "ann")];
    let held = instance.rl.hybrid().stats().held_units;
    let options = ReserveOptions::new(Duration::from_secs(60)).unwrap();
    let mut reserved =
        wait_for(instance.engine.reserve(&Request::new(&request).costing(2), &options)).unwrap();
    assert!(reserved.is_allowed());
    assert_eq!(instance.rl.hybrid().stats().held_units, held, "no leased unit is spent");
    // An instance sees what others spend of a key that it leases when it returns its lease.
    wait_for(instance.rl.hybrid().release());
    assert_eq!((instance.left("all", "ann"), instance.left("user", "ann")), (1_000 - visitors - 2, 3));
    assert!(wait_for(reserved.release()).is_complete());
    assert_eq!((instance.left("all", "ann"), instance.left("user", "ann")), (1_000 - visitors, 5));
}

#[test]
fn several_instances_never_pass_a_limit_together() {
    let (server, clock) = (Server::start().unwrap(), Arc::new(ManualClock::default()));
    let instances: Vec<Instance> = (0..4).map(|_| Instance::new(&server, &clock, RULES)).collect();
    let mut admitted = 0;
    for call in 0..4_000 {
        let instance = &instances[call * 7 % 4];
        admitted += u64::from(instance.check(&format!("user-{}", call % 600)).is_allowed());
        instance.clock.advance(Duration::from_micros(500));
        assert!(admitted <= 1_000);
    }
    instances.iter().for_each(|instance| wait_for(instance.rl.hybrid().release()));
    assert!(admitted >= 970, "{admitted} of 1000");
}

#[test]
fn without_redis_a_lease_is_spent_and_each_cold_rule_says_what_that_means() {
    let (server, clock) = (Server::start().unwrap(), Arc::new(ManualClock::default()));
    let yaml = "
rules:
  - {id: all, priority: 1, scope: global, on_store_failure: deny, strategy: {absolute: {limit: 1000, window: 60s}}}
  - {id: user, priority: 2, scope: user, on_store_failure: allow, strategy: {fixed_window: {limit: 5, window: 60s}}}
";
    let instance = Instance::new(&server, &clock, yaml);
    instance.warm_up();
    let held = instance.rl.hybrid().stats().held_units;
    server.kill_9().unwrap();
    let allowed = (0..held + 3).filter(|_| instance.check("ann").is_allowed()).count() as u64;
    assert_eq!(allowed, held, "what was leased is spent, and then the rule says deny");
}
