//! One server of a Cluster is down: its rules follow their policies, and the other rules are taken all or
//! nothing with them.

use std::sync::Arc;
use std::time::Duration;

use trypema::redis::{OnFailure, RedisConnection};
use trypema::rules::{Engine, OnDrop, Request};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::{Cluster, Server};

use super::super::a_minute;
use super::{LOCAL, Setup, Shared, steady_cluster};

/// A Cluster without one of its servers, and a user whose rules `near` and `far` are on a live and on the
/// lost server.
struct Split {
    cluster: Cluster,
    user: String,
    connections: Vec<RedisConnection>,
}

impl Split {
    /// Kills one server after `connections` connections were opened.
    fn new(connections: usize) -> Self {
        Self::after(connections, |lost| lost.kill_9().unwrap())
    }

    /// The same with a server that hangs.
    fn hung(connections: usize) -> Self {
        Self::after(connections, |lost| lost.stop().unwrap())
    }

    fn after(connections: usize, lose: impl Fn(&Server)) -> Self {
        let cluster = steady_cluster();
        let connections = (0..connections).map(|_| connect(&cluster.url())).collect();
        let lost = cluster.primary_of(0).unwrap();
        let is_lost =
            |key: &str| cluster.primary_of(cluster.slot_of(key).unwrap()).unwrap().port() == lost.port();
        let is_split =
            |user: &String| !is_lost(&format!("near|user={user}")) && is_lost(&format!("far|user={user}"));
        let user = (0..).map(|number| number.to_string()).find(is_split).unwrap();
        lose(lost);
        Self { user, connections, cluster }
    }

    fn engine(&mut self, provider: Shared, (on_failure, far): (OnFailure, &str)) -> Arc<Engine> {
        let yaml = format!(
            "
rules:
  - {{id: near, scope: user, strategy: {{fixed_window: {{limit: 100, window: 30d}}}}}}
  - {{id: far, scope: user, {far} strategy: {{fixed_window: {{limit: 2, window: 30d}}}}}}
"
        );
        let setup = Setup { on_failure, deadline: Duration::from_secs(1), yaml: &yaml };
        provider.engine(&self.connections.pop().unwrap(), &setup)
    }

    /// The units spent of the rule on the live server.
    fn spent(&self, engine: &Engine) -> u64 {
        let inspected = wait_for(engine.inspect(&format!("near|user={}", self.user), 0)).unwrap().unwrap();
        let rule = inspected.rules().next().unwrap();
        assert!(!rule.decision.is_substitute(), "its server is there: {inspected:?}");
        100 - rule.decision.remaining()
    }

    fn check(&self, engine: &Engine) -> Option<bool> {
        let request = [("user", self.user.as_str())];
        wait_for(engine.check(&Request::new(&request))).ok().map(|verdict| verdict.is_allowed())
    }
}

#[test]
fn a_lost_server_stops_only_the_requests_that_its_rules_stop() {
    let mut split = Split::new(10);
    for provider in Shared::ALL {
        let engine = split.engine(provider, (OnFailure::Fail, ""));
        let start = split.spent(&engine);
        assert_eq!(split.check(&engine), None, "{provider:?}");
        assert_eq!(split.spent(&engine), start, "{provider:?}: an error spends nothing");

        let engine = split.engine(provider, (OnFailure::Allow, "on_store_failure: deny,"));
        assert_eq!(split.check(&engine), Some(false), "{provider:?}");
        assert_eq!(split.spent(&engine), start, "{provider:?}: a denial spends nothing");

        let engine = split.engine(provider, (OnFailure::Fail, "on_store_failure: allow,"));
        assert_eq!(split.check(&engine), Some(true), "{provider:?}");
        assert_eq!(split.spent(&engine), start + 1, "{provider:?}: it was let in");

        let engine = split.engine(provider, (LOCAL, ""));
        let checks: Vec<Option<bool>> = (0..4).map(|_| split.check(&engine)).collect();
        assert_eq!(checks, [Some(true), Some(true), Some(false), Some(false)], "{provider:?}");
        assert_eq!(split.spent(&engine), start + 3, "{provider:?}: two were let in, and two were given back");
    }
}

/// The same with reservations. What the lost server stops is reserved nowhere.
#[test]
fn a_lost_server_stops_only_the_reservations_that_its_rules_stop() {
    let mut split = Split::new(8);
    let user = split.user.clone();
    let (request, near) = ([("user", user.as_str())], format!("near|user={user}"));
    let reserve = |engine: &Arc<Engine>| {
        let reserved = wait_for(engine.reserve(&Request::new(&request), &a_minute().on_drop(OnDrop::Keep)));
        reserved.ok().map(|reserved| reserved.is_allowed().then(|| reserved.text().unwrap()))
    };
    let held = |engine: &Engine| wait_for(engine.holders(&near)).unwrap().unwrap().len();
    for provider in Shared::ALL {
        let engine = split.engine(provider, (OnFailure::Fail, ""));
        let start = split.spent(&engine);
        assert_eq!(reserve(&engine), None, "{provider:?}");
        assert_eq!((split.spent(&engine), held(&engine)), (start, 0), "{provider:?}: an error");

        let engine = split.engine(provider, (OnFailure::Allow, "on_store_failure: deny,"));
        assert_eq!(reserve(&engine), Some(None), "{provider:?}");
        assert_eq!((split.spent(&engine), held(&engine)), (start, 0), "{provider:?}: a denial");

        let engine = split.engine(provider, (OnFailure::Fail, "on_store_failure: allow,"));
        let text = reserve(&engine).flatten().unwrap();
        assert_eq!((split.spent(&engine), held(&engine)), (start + 1, 1), "{provider:?}: it was let in");
        assert_eq!(
            wait_for(engine.renew(&text, Duration::from_secs(9))).unwrap(),
            Some(Duration::from_secs(9))
        );
        let settled = wait_for(engine.settle(&text, &[("requests", 0)])).unwrap();
        assert!(settled.is_complete() && settled.rules.len() == 1, "{provider:?}: {settled:?}");
        assert_eq!((split.spent(&engine), held(&engine)), (start, 0), "{provider:?}: settled");

        let engine = split.engine(provider, (LOCAL, ""));
        let made: Vec<bool> = (0..4).map(|_| reserve(&engine).unwrap().is_some()).collect();
        assert_eq!(made, [true, true, false, false], "{provider:?}");
        assert_eq!((split.spent(&engine), held(&engine)), (start + 2, 2), "{provider:?}: two were let in");
        for holder in wait_for(engine.holders(&near)).unwrap().unwrap() {
            assert_eq!(wait_for(engine.release_holder(&near, &holder.id)).unwrap(), Some(true));
        }
        assert_eq!((split.spent(&engine), held(&engine)), (start, 0), "{provider:?}: released");
    }
}

#[test]
fn every_rule_that_can_be_reached_records() {
    let mut split = Split::new(2);
    for provider in Shared::ALL {
        let engine = split.engine(provider, (OnFailure::Fail, "on_store_failure: allow,"));
        let (request, before) = (split.user.clone(), split.spent(&engine));
        let request = [("user", request.as_str())];
        let recorded = wait_for(engine.record(&Request::new(&request))).unwrap();
        let uncounted: Vec<(&str, bool)> =
            recorded.rules().map(|rule| (rule.rule.id.as_str(), rule.decision.is_uncounted())).collect();
        assert_eq!(uncounted, [("far", true), ("near", false)], "{provider:?}");
        assert_eq!(split.spent(&engine), before + 1, "{provider:?}");
    }
}

/// The server of the `log_only` rule is down.
#[test]
fn a_rule_that_only_logs_never_fails_a_request() {
    let mut split = Split::new(2);
    for provider in Shared::ALL {
        let engine = split.engine(provider, (OnFailure::Fail, "action: log_only,"));
        let request = [("user", split.user.as_str())];
        let request = Request::new(&request);
        let verdicts = [
            wait_for(engine.check(&request)).unwrap(),
            wait_for(engine.peek(&request)).unwrap(),
            wait_for(engine.record(&request)).unwrap(),
            wait_for(engine.reserve(&request, &a_minute())).unwrap().verdict().clone(),
        ];
        for verdict in verdicts {
            let ids: Vec<&str> = verdict.rules().map(|rule| rule.rule.id.as_str()).collect();
            assert!(verdict.is_allowed() && ids.contains(&"near"), "{provider:?} {verdict:?}");
        }
        let explained = wait_for(engine.explain(&request)).unwrap();
        let left: Vec<u64> = explained.applying().map(|rule| rule.left).collect();
        assert_eq!(left, [100 - split.spent(&engine)], "{provider:?}: what the other rule has left");
    }
    drop(split.cluster);
}

/// A server that accepts calls and does not reply leaves enough time for the others.
#[test]
fn a_hung_server_does_not_fail_the_rules_of_the_others() {
    let mut split = Split::hung(2);
    for provider in Shared::ALL {
        let engine = split.engine(provider, (OnFailure::Fail, "on_store_failure: allow,"));
        let before = split.spent(&engine);
        for _ in 0..3 {
            assert_eq!(split.check(&engine), Some(true), "{provider:?}");
        }
        assert_eq!(split.spent(&engine), before + 3, "{provider:?}");
        let request = [("user", split.user.as_str())];
        let mut reserved = wait_for(engine.reserve(&Request::new(&request), &a_minute())).unwrap();
        assert_eq!((reserved.is_allowed(), split.spent(&engine)), (true, before + 4), "{provider:?}");
        assert!(wait_for(reserved.release()).is_complete(), "{provider:?}");
        assert_eq!(split.spent(&engine), before + 3, "{provider:?}");
    }
    split.cluster.nodes().iter().for_each(|node| node.cont().unwrap());
}
