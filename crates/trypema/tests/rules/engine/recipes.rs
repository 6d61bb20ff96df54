//! The rules of `docs/recipes.md` for anonymous and authenticated callers.

use std::fs;
use std::time::Duration;

use trypema::TrypemaError;
use trypema::rules::Request;

use super::{Local, decided_by, ids};

const ANONYMOUS: [(&str, &str); 2] = [("plan", "anonymous"), ("ip", "203.0.113.9")];
const ANN: [(&str, &str); 3] = [("plan", "signed-in"), ("user", "ann"), ("ip", "203.0.113.9")];

/// Returns the rules in the section of `docs/recipes.md` with this heading.
fn rules_of(heading: &str) -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recipes.md")).unwrap();
    let section = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let block = section.split_once("```yaml\n").unwrap().1;
    block.split_once("```").unwrap().0.to_owned()
}

fn callers() -> Local {
    Local::new(&rules_of("Anonymous and authenticated callers"))
}

#[test]
fn callers_are_limited_side_by_side() {
    let local = callers();
    for _ in 0..3 {
        let verdict = local.check(&ANONYMOUS);
        assert!(verdict.is_allowed());
        assert_eq!(ids(&verdict), ["anonymous", "per-address"]);
    }
    assert_eq!(decided_by(&local.check(&ANONYMOUS)), Some("anonymous"));
    for _ in 0..10 {
        let verdict = local.check(&ANN);
        assert!(verdict.is_allowed(), "a user at the same address");
        assert_eq!(ids(&verdict), ["per-address", "signed-in"]);
    }
    assert_eq!(decided_by(&local.check(&ANN)), Some("signed-in"));
    let bob = [("plan", "signed-in"), ("user", "bob"), ("ip", "203.0.113.9")];
    assert!(local.check(&bob).is_allowed());
    let other = [("plan", "anonymous"), ("ip", "203.0.113.10")];
    assert!(local.check(&other).is_allowed());
}

#[test]
fn a_denied_caller_spends_nothing_of_the_address() {
    let local = callers();
    (0..3).for_each(|_| assert!(local.check(&ANONYMOUS).is_allowed()));
    (0..50).for_each(|_| assert!(!local.check(&ANONYMOUS).is_allowed()));
    let address = [("ip", "203.0.113.9")];
    assert_eq!(local.left(&address), [("per-address".to_owned(), 97)]);
}

#[test]
fn an_ipv6_network_is_one_anonymous_caller() {
    let local = callers();
    for host in 1..=3 {
        let address = format!("2001:db8:1:2::{host}");
        assert!(local.check(&[("plan", "anonymous"), ("ip", &address)]).is_allowed());
    }
    let fourth = local.check(&[("plan", "anonymous"), ("ip", "2001:db8:1:2:ffff::4")]);
    assert_eq!(decided_by(&fourth), Some("anonymous"));
    assert!(local.check(&[("plan", "anonymous"), ("ip", "2001:db8:1:3::1")]).is_allowed());
}

#[test]
fn an_authenticated_request_without_a_user_is_an_error_and_spends_nothing() {
    let local = callers();
    let request = [("plan", "signed-in"), ("ip", "203.0.113.9")];
    let error = local.engine.try_check(&Request::new(&request)).unwrap().unwrap_err();
    assert!(matches!(error, TrypemaError::MissingAttribute { .. }), "{error}");
    assert_eq!(local.left(&[("ip", "203.0.113.9")]), [("per-address".to_owned(), 100)]);
}

#[test]
fn a_request_without_a_plan_has_the_limit_of_its_address() {
    let local = callers();
    let request = [("ip", "203.0.113.9")];
    (0..100).for_each(|_| assert!(local.check(&request).is_allowed()));
    assert_eq!(decided_by(&local.check(&request)), Some("per-address"));
    assert!(!local.check(&ANN).is_allowed(), "the address is exhausted for everybody");
}

/// Five a second without a burst: one request, and the next one 200 ms later.
#[test]
fn paced_requests_are_a_fifth_of_a_second_apart() {
    let local = Local::new(&rules_of("Five requests a second, without a burst"));
    let interval = Duration::from_millis(200);
    for _ in 0..10 {
        assert!(local.check(&[]).is_allowed());
        assert_eq!(local.check(&[]).retry_after(), Some(interval));
        local.clock.advance(interval - Duration::from_micros(1));
        assert!(!local.check(&[]).is_allowed(), "a microsecond early");
        local.clock.advance(Duration::from_micros(1));
    }
}
