//! A request has one deadline, however many rules apply to it.

use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::OnFailure;
use trypema::rules::{Request, SettledStatus, Settlement};
use trypema_testkit::blocking::{connect, runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, Server};

use super::super::a_minute;
use super::{Setup, Shared};

const RULES: usize = 12;
/// With a deadline per rule, an operation would take twelve of these; with one per step, two.
const DEADLINE: Duration = Duration::from_millis(800);
/// Less than two deadlines, with an allowance for a busy machine.
const LATEST: Duration = Duration::from_millis(1_550);

fn yaml() -> String {
    let rule = |number: usize| {
        let window = "{fixed_window: {limit: 1000, window: 1h}}";
        format!("  - {{id: r{number}, scope: user, priority: {number}, strategy: {window}}}\n")
    };
    let rules: String = (0..RULES).map(rule).collect();
    format!("rules:\n{rules}")
}

/// Asserts that the operation returns in time.
fn in_time<T>(verb: &str, provider: Shared, future: impl Future<Output = T>) -> T {
    let started = SystemClock.now();
    let answer = wait_for(future);
    let took = Duration::from_micros(SystemClock.now().as_micros() - started.as_micros());
    assert!(took < LATEST, "{provider:?}: {verb} took {took:?} with a deadline of {DEADLINE:?}");
    answer
}

/// Whether every counter says that its store failed: nothing is reported as done.
fn is_failed(settlement: &Settlement) -> bool {
    let is_failed = |status: &SettledStatus| matches!(status, SettledStatus::Failed(_));
    settlement.rules.len() == RULES && settlement.rules.iter().all(|rule| is_failed(&rule.status))
}

#[test]
fn every_verb_gives_up_at_the_deadline_of_the_request() {
    let server = Server::start().unwrap();
    let _guard = runtime().enter();
    for provider in Shared::ALL {
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let yaml = yaml();
        let setup = Setup { on_failure: OnFailure::Fail, deadline: DEADLINE, yaml: &yaml };
        let engine = provider.engine(&connect(&proxy.url()), &setup);
        let request = [("user", "ann")];
        let request = Request::new(&request);
        let mut reserved = wait_for(engine.reserve(&request, &a_minute())).unwrap();
        let text = reserved.text().unwrap();
        let fresh = || {
            proxy.heal();
            // Another user: a key that is called often would be leased.
            let probe = [("user", "probe")];
            trypema_testkit::redis::wait_until("Redis to be asked again", || {
                wait_for(engine.peek(&Request::new(&probe))).is_ok()
            })
            .unwrap();
            proxy.freeze();
        };
        fresh();
        assert!(in_time("check", provider, engine.check(&request)).is_err());
        fresh();
        assert!(in_time("peek", provider, engine.peek(&request)).is_err());
        fresh();
        assert!(in_time("record", provider, engine.record(&request)).is_err());
        fresh();
        assert!(in_time("reserve", provider, engine.reserve(&request, &a_minute())).is_err());
        fresh();
        assert!(in_time("explain", provider, engine.explain(&request)).is_err());
        fresh();
        assert!(in_time("renew", provider, engine.renew(&text, Duration::from_secs(1))).is_err());
        fresh();
        assert!(in_time("renew", provider, reserved.renew(Duration::from_secs(1))).is_err());
        fresh();
        assert!(is_failed(&in_time("settle", provider, engine.settle(&text, &[("requests", 0)])).unwrap()));
        fresh();
        assert!(is_failed(&in_time("release", provider, engine.release(&text)).unwrap()));
        fresh();
        assert!(is_failed(&in_time("release", provider, reserved.release())));
        fresh();
        assert!(in_time("holders", provider, engine.holders("r0|user=ann")).is_err());
    }
}
