//! The whole store is down: every operation follows the policy.

use std::sync::Arc;
use std::time::Duration;

use trypema::TrypemaError;
use trypema::redis::{OnFailure, RedisConnection};
use trypema::rules::{Engine, Request, SettledStatus, Verdict};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::Server;

use super::super::a_minute;
use super::{LOCAL, Setup, Shared, steady_cluster};

/// An abuse rule and a fixed window in different slots of a Cluster, and a `log_only` rule whose failure
/// never matters.
fn yaml(policy: Option<&str>) -> String {
    let policy = policy.map_or(String::new(), |policy| format!("on_store_failure: {policy},"));
    format!(
        "
rules:
  - id: logins
    scope: user
    {}
    strategy: {{abuse: {{temp: {{window: 60s, threshold: 8, block: 10m}}, long: {{window: 1h, threshold: 9, block: 1d}}}}}}
  - {{id: per-user, scope: user, {policy} strategy: {{fixed_window: {{limit: 3, window: 30d}}}}}}
  - {{id: watched, scope: user, action: log_only, strategy: {{fixed_window: {{limit: 1, window: 1h}}}}}}
",
        policy.trim_end_matches(',')
    )
}

/// The policy of the limiter, the policy of the rules, and the effective policy.
const POLICIES: [(OnFailure, Option<&str>, Policy); 11] = [
    (OnFailure::Fail, None, Policy::Error),
    (OnFailure::Allow, None, Policy::Allow),
    (OnFailure::Deny, None, Policy::Deny),
    (LOCAL, None, Policy::Local),
    (LOCAL, Some("error"), Policy::Error),
    (LOCAL, Some("allow"), Policy::Allow),
    (LOCAL, Some("deny"), Policy::Deny),
    (OnFailure::Fail, Some("allow"), Policy::Allow),
    (OnFailure::Fail, Some("deny"), Policy::Deny),
    (OnFailure::Allow, Some("error"), Policy::Error),
    (OnFailure::Deny, Some("allow"), Policy::Allow),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Error,
    Allow,
    Deny,
    Local,
}

/// The result of an operation that decides.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Error,
    /// Whether the request is allowed, and whether it was counted at all. Both are the same for every
    /// enforced rule.
    Decided {
        is_allowed: bool,
        is_counted: bool,
    },
}

impl Policy {
    fn answer(self) -> Answer {
        match self {
            Self::Error => Answer::Error,
            Self::Allow => Answer::Decided { is_allowed: true, is_counted: false },
            Self::Deny => Answer::Decided { is_allowed: false, is_counted: false },
            Self::Local => Answer::Decided { is_allowed: true, is_counted: true },
        }
    }
}

/// Reads a verdict in which the store decided no rule.
fn read(verdict: Result<Verdict, TrypemaError>) -> Answer {
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(TrypemaError::RedisError(_)) => return Answer::Error,
        Err(error) => panic!("{error}"),
    };
    let enforced: Vec<_> = verdict.rules().filter(|rule| rule.rule.id != "watched").collect();
    assert_eq!(enforced.len(), 2, "each enforced rule answers: {verdict:?}");
    assert_eq!(verdict.rules().count(), 2, "a rule that only logs is left out: {verdict:?}");
    assert!(enforced.iter().all(|rule| rule.decision.is_substitute()), "{verdict:?}");
    let is_counted = !enforced[0].decision.is_uncounted();
    assert!(enforced.iter().all(|rule| rule.decision.is_uncounted() != is_counted), "{verdict:?}");
    Answer::Decided { is_allowed: verdict.is_allowed(), is_counted }
}

/// Calls every operation, each with its own user, so that local counts of one do not affect another. `reserved` is the
/// text of a reservation that was made while the store was there.
fn ask(engine: &Arc<Engine>, reserved: &str, policy: Policy) {
    let request = |user| [("user", user)];
    let expected = || policy.answer();
    assert_eq!(read(wait_for(engine.check(&Request::new(&request("check"))))), expected(), "check");
    assert_eq!(read(wait_for(engine.peek(&Request::new(&request("peek"))))), expected(), "peek");
    assert_eq!(read(wait_for(engine.record(&Request::new(&request("record"))))), expected(), "record");
    let explained = wait_for(engine.explain(&Request::new(&request("explain"))));
    assert_eq!(explained.is_err(), policy == Policy::Error, "explain");
    let made = wait_for(engine.reserve(&Request::new(&request("reserve")), &a_minute()));
    assert_eq!(read(made.map(|made| made.verdict().clone())), expected(), "reserve");
    for key in ["logins|user=peek", "watched|user=peek"] {
        assert!(
            wait_for(engine.inspect(key, 0)).is_err(),
            "inspecting {key} tells the state in Redis, or nothing"
        );
    }

    // A refund, renewal or reset that did not happen is never reported as done.
    let settlements =
        [wait_for(engine.settle(reserved, &[("requests", 0)])), wait_for(engine.release(reserved))];
    for settlement in settlements.map(Result::unwrap) {
        let is_failed = |status: &SettledStatus| matches!(status, SettledStatus::Failed(_));
        // The log-only rule is not listed.
        assert!(settlement.rules.len() == 2 && !settlement.is_complete(), "{settlement:?}");
        assert!(settlement.rules.iter().all(|rule| is_failed(&rule.status)), "{settlement:?}");
    }
    assert!(wait_for(engine.renew(reserved, Duration::from_secs(60))).is_err(), "renew");
    assert!(wait_for(engine.holders("per-user|user=before")).is_err(), "holders");
    assert!(wait_for(engine.reset("per-user|user=check")).is_err(), "reset");
    if policy == Policy::Local {
        counts_in_this_process(engine);
    }
}

/// The second rule admits three requests, by whichever operation. Then the rules together deny.
fn counts_in_this_process(engine: &Arc<Engine>) {
    let ann = [("user", "ann")];
    wait_for(engine.record(&Request::new(&ann))).unwrap();
    assert!(wait_for(engine.check(&Request::new(&ann))).unwrap().is_allowed());
    let mut reserved = wait_for(engine.reserve(&Request::new(&ann), &a_minute())).unwrap();
    assert!(reserved.is_allowed());
    let denied = wait_for(engine.check(&Request::new(&ann))).unwrap();
    assert_eq!(denied.decided_by().map(|rule| rule.rule.id.as_str()), Some("per-user"), "{denied:?}");
    assert!(!wait_for(engine.peek(&Request::new(&ann))).unwrap().is_allowed());
    let released = wait_for(reserved.release());
    assert!(released.is_complete() && released.rules.len() == 2, "{released:?}");
    let allowed = wait_for(engine.peek(&Request::new(&ann))).unwrap();
    assert!(allowed.is_allowed(), "units that were reserved here are given back here: {allowed:?}");
}

fn every_verb_follows_every_policy(provider: Shared, connections: Vec<RedisConnection>, reserved: &str) {
    for ((on_failure, of_rules, policy), connection) in POLICIES.into_iter().zip(connections) {
        let yaml = yaml(of_rules);
        let setup = Setup { on_failure, deadline: Duration::from_secs(5), yaml: &yaml };
        println!("{provider:?}, built with {on_failure:?}, rules say {of_rules:?}");
        ask(&provider.engine(&connection, &setup), reserved, policy);
    }
}

/// Returns the text of a reservation of all rules.
fn reserve_before(provider: Shared, connection: &RedisConnection) -> String {
    let setup = Setup { on_failure: OnFailure::Fail, deadline: Duration::from_secs(5), yaml: &yaml(None) };
    let engine = provider.engine(connection, &setup);
    let request = [("user", "before")];
    wait_for(engine.reserve(&Request::new(&request), &a_minute())).unwrap().into_text().unwrap()
}

#[test]
fn every_verb_follows_every_policy_without_redis() {
    let server = Server::start().unwrap();
    for provider in Shared::ALL {
        let connections = POLICIES.iter().map(|_| connect(&server.url())).collect();
        let reserved = reserve_before(provider, &connect(&server.url()));
        server.kill_9().unwrap();
        every_verb_follows_every_policy(provider, connections, &reserved);
        server.restart().unwrap();
    }
}

#[test]
fn every_verb_follows_every_policy_without_a_cluster() {
    let cluster = steady_cluster();
    let slot = |key: &str| cluster.slot_of(key).unwrap();
    assert_ne!(slot("logins|user=check"), slot("per-user|user=check"), "the rules are in several slots");
    let connections = || POLICIES.iter().map(|_| connect(&cluster.url())).collect();
    let of_each: [Vec<RedisConnection>; 2] = [connections(), connections()];
    let reserved = reserve_before(Shared::Redis, &connect(&cluster.url()));
    for node in cluster.nodes() {
        node.kill_9().unwrap();
    }
    for (provider, connections) in Shared::ALL.into_iter().zip(of_each) {
        every_verb_follows_every_policy(provider, connections, &reserved);
    }
}

/// Requests that were counted locally are charged to Redis once it is reachable again.
#[test]
fn what_was_counted_here_is_reconciled() {
    for provider in Shared::ALL {
        let server = Server::start().unwrap();
        let (connection, yaml) = (connect(&server.url()), yaml(None));
        let setup = Setup { on_failure: LOCAL, deadline: Duration::from_secs(5), yaml: &yaml };
        let engine = provider.engine(&connection, &setup);
        let ann = [("user", "ann")];
        server.kill_9().unwrap();
        wait_for(engine.record(&Request::new(&ann))).unwrap();
        assert!(wait_for(engine.check(&Request::new(&ann))).unwrap().is_allowed());
        server.restart().unwrap();
        trypema_testkit::redis::wait_until("Redis to be asked again", || {
            wait_for(engine.reset("per-user|user=nobody")).is_ok()
        })
        .unwrap();
        let last = wait_for(engine.check(&Request::new(&ann))).unwrap();
        let left = |verdict: &Verdict| {
            let rule = verdict.rules().find(|rule| rule.rule.id == "per-user").unwrap();
            assert!(!rule.decision.is_substitute(), "{provider:?} {verdict:?}");
            rule.decision.remaining()
        };
        assert!(last.is_allowed(), "{provider:?} {last:?}");
        assert_eq!(left(&last), 0, "{provider:?}: two were counted here, and this is the third");
        assert!(!wait_for(engine.check(&Request::new(&ann))).unwrap().is_allowed(), "{provider:?}");
    }
}

/// A denied reservation took nothing, so its release changes nothing, even for a rule that would have allowed
/// it.
#[test]
fn a_denied_reservation_gives_nothing_back() {
    const RULES: &str = "
rules:
  - {id: roomy, scope: user, strategy: {fixed_window: {limit: 100, window: 30d}}}
  - {id: tight, scope: user, strategy: {fixed_window: {limit: 2, window: 30d}}}
";
    let server = Server::start().unwrap();
    for provider in Shared::ALL {
        let setup = Setup { on_failure: OnFailure::Fail, deadline: Duration::from_secs(5), yaml: RULES };
        let engine = provider.engine(&connect(&server.url()), &setup);
        let (user, key) = (format!("{provider:?}"), format!("roomy|user={provider:?}"));
        let request = [("user", user.as_str())];
        for _ in 0..2 {
            assert!(wait_for(engine.check(&Request::new(&request))).unwrap().is_allowed());
        }
        for _ in 0..3 {
            let mut denied = wait_for(engine.reserve(&Request::new(&request), &a_minute())).unwrap();
            assert!(!denied.is_allowed() && denied.text().is_none(), "{provider:?}");
            assert_eq!(wait_for(denied.release()).rules, [], "{provider:?}");
        }
        let inspected = wait_for(engine.inspect(&key, 0)).unwrap().unwrap();
        assert_eq!(inspected.rules().next().unwrap().decision.remaining(), 98, "{provider:?}");
    }
}
