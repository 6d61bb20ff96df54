//! Rules with leased counters: Redis decides cold keys first, then leased units are spent locally, all or
//! nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::redis::RedisKey;
use trypema::rules::{AttributeSet, Engine, Request, ReserveOptions, RuleSet, Verdict};
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

/// A budget of tokens that all users share, and a few requests per user.
const BUDGET: &str = "
units: [tokens]
rules:
  - {id: budget, priority: 1, scope: global, unit: tokens, strategy: {fixed_window: {limit: 3000, window: 60s}}}
  - {id: user, priority: 2, scope: user, strategy: {fixed_window: {limit: 5, window: 60s}}}
";

/// The limit of `budget`.
const TOKENS: u64 = 3_000;

/// The engine that checks a request.
#[derive(Clone, Copy)]
enum By {
    Instance(usize),
    /// The engine without leases.
    Redis,
}

/// Two instances that lease the budget, and an engine that asks Redis for every decision.
struct BudgetScene {
    clock: Arc<ManualClock>,
    instances: [Instance; 2],
    in_redis: Engine,
    /// The tokens of all requests that were admitted.
    admitted: u64,
}

impl BudgetScene {
    fn new(server: &Server) -> Self {
        let clock = Arc::new(ManualClock::default());
        let instances = [(); 2].map(|()| Instance::new(server, &clock, BUDGET));
        let rules = RuleSet::from_yaml(BUDGET, "rules.yaml").unwrap_or_else(|error| panic!("{error}"));
        let in_redis = Engine::redis(Arc::clone(&instances[0].rl), rules);
        Self { clock, instances, in_redis, admitted: 0 }
    }

    /// Checks one request of several sets, each a user and its tokens.
    fn check(&mut self, by: By, sets: &[(&str, u64)]) -> Verdict {
        let attributes: Vec<_> = sets.iter().map(|(user, _)| [("user", *user)]).collect();
        let costs: Vec<_> = sets.iter().map(|(_, tokens)| [("tokens", *tokens)]).collect();
        let parts: Vec<_> = attributes
            .iter()
            .zip(&costs)
            .map(|(user, cost)| AttributeSet::new(user).with_costs(cost))
            .collect();
        let engine = match by {
            By::Instance(index) => &*self.instances[index].engine,
            By::Redis => &self.in_redis,
        };
        let verdict = wait_for(engine.check(&Request::of_sets(&parts))).unwrap();
        let asked: u64 = sets.iter().map(|(_, tokens)| tokens).sum();
        if verdict.is_allowed() {
            let budget = verdict.rules().find(|decided| decided.rule.id == "budget").unwrap();
            assert_eq!(budget.cost, asked, "the budget is asked for the sum");
            self.admitted += asked;
        }
        assert!(self.admitted <= TOKENS, "{} of {TOKENS} were admitted", self.admitted);
        assert!(self.admitted + self.held().iter().sum::<u64>() <= self.spent(), "Redis counts every unit");
        verdict
    }

    /// The units of the budget that each instance has leased and not spent.
    fn held(&self) -> [u64; 2] {
        let key = RedisKey::encode("budget");
        self.instances.each_ref().map(|instance| instance.rl.hybrid().fixed_window().held(&key))
    }

    /// The units of the budget that Redis counts as spent or leased.
    fn spent(&self) -> u64 {
        TOKENS - self.left(&Request::new(&[]).with_costs(&[("tokens", 0)]), "budget")
    }

    /// The requests that Redis would still admit for a user.
    fn left_of(&self, user: &str) -> u64 {
        self.left(&Request::new(&[("user", user)]), "user")
    }

    fn left(&self, request: &Request<'_>, rule: &str) -> u64 {
        let explained = wait_for(self.in_redis.explain(request)).unwrap();
        explained.applying().find(|applying| applying.decision.rule.id == rule).unwrap().left
    }

    /// Makes the budget hot until both instances hold leases of at least 20 tokens.
    fn warm_up(&mut self) {
        for visitor in 0..200 {
            let user = format!("visitor-{visitor}");
            assert!(self.check(By::Instance(visitor % 2), &[(&user, 5)]).is_allowed());
            if self.held().iter().all(|held| *held >= 20) {
                return;
            }
        }
        panic!("the budget is never leased: {:?}", self.held());
    }
}

#[test]
fn sets_that_sum_on_a_leased_counter_spend_it_once_or_not_at_all() {
    let server = Server::start().unwrap();
    let mut scene = BudgetScene::new(&server);
    scene.warm_up();
    let exactly = |scene: &BudgetScene| {
        assert_eq!(scene.spent(), scene.admitted + scene.held().iter().sum::<u64>());
        (scene.spent(), scene.held(), ["ann", "bob", "eve"].map(|user| scene.left_of(user)))
    };

    let (spent, [held, other], _) = exactly(&scene);
    assert!(scene.check(By::Instance(0), &[("ann", 4), ("bob", 3)]).is_allowed());
    assert_eq!(exactly(&scene), (spent, [held - 7, other], [4, 4, 5]), "a lease pays for both sets");

    // Eve has no request left. Redis denies her once, and then the instance remembers it.
    let all_of_eve = [("user", "eve")];
    let of_eve = Request::new(&all_of_eve).costing(5);
    assert!(wait_for(scene.instances[0].engine.check(&of_eve)).unwrap().is_allowed());
    let before = exactly(&scene);
    for _ in 0..2 {
        assert_eq!(
            decided_by(&scene.check(By::Instance(0), &[("ann", 4), ("bob", 3), ("eve", 2)])),
            Some("user")
        );
        assert_eq!(exactly(&scene), before, "a denied request spends nothing");
    }
    // The leased counter denies: each set fits, but their sum never does.
    let denied = scene.check(By::Instance(0), &[("ann", TOKENS - 10), ("bob", 11)]);
    assert_eq!((decided_by(&denied), denied.retry_after()), (Some("budget"), None));
    assert_eq!(exactly(&scene), before, "what Redis took of the users is refunded");
}

#[test]
fn a_leased_budget_is_exhausted_to_the_last_unit() {
    let server = Server::start().unwrap();
    let mut scene = BudgetScene::new(&server);
    scene.warm_up();
    let mut denials_in_a_row = 0;
    let mut users = 0;
    while denials_in_a_row < 10 {
        let [one, other] = [users, users + 1].map(|user| format!("user-{user}"));
        users += 2;
        let is_allowed = scene.check(By::Instance(users / 2 % 2), &[(&one, 7), (&other, 6)]).is_allowed();
        let left = if is_allowed { 4 } else { 5 };
        assert_eq!([scene.left_of(&one), scene.left_of(&other)], [left; 2]);
        denials_in_a_row = if is_allowed { 0 } else { denials_in_a_row + 1 };
        // Leases end and remembered denials are forgotten meanwhile.
        scene.clock.advance(Duration::from_millis(if is_allowed { 5 } else { 60 }));
    }
    assert!(scene.admitted > TOKENS * 95 / 100, "{} of {TOKENS}", scene.admitted);
    scene.instances.iter().for_each(|instance| wait_for(instance.rl.hybrid().release()));
    assert_eq!(scene.spent(), scene.admitted, "Redis counts what was admitted, and nothing else");

    for last in 0..TOKENS - scene.admitted {
        assert!(scene.check(By::Redis, &[(&format!("last-{last}"), 1)]).is_allowed());
    }
    assert_eq!((scene.admitted, scene.spent()), (TOKENS, TOKENS));
    assert!(!scene.check(By::Redis, &[("last", 1)]).is_allowed());
}
