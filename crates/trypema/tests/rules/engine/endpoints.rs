//! Endpoints that operators enter are normalised like those of requests.

use trypema::rules::Request;
use trypema_testkit::blocking::wait_for;

use super::{Local, rules};

const RULES: &str = "
rules:
  - {id: each, scope: endpoint, strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {id: area, scope: endpoint, endpoints: [/area/**, POST /login], strategy: {fixed_window: {limit: 5, window: 1h}}}
overrides:
  - {rule: each, key: {endpoint: /admin/}, verdict: block}
  - {rule: each, key: {endpoint: //api/./v1/x/../%73earch?q=1}, verdict: block}
  - {rule: each, key: {endpoint: /}, verdict: block}
  - {rule: area, key: {endpoint: /area//**/}, verdict: block}
  - {rule: area, key: {endpoint: POST /login/}, verdict: block}
";

#[test]
fn an_override_matches_however_its_endpoint_is_written() {
    let local = Local::new(RULES);
    for blocked in
        ["/admin", "/admin/", "//admin", "/%61dmin", "/x/../admin", "/api/v1/search", "/", "", "/area/x"]
    {
        assert!(!local.check(&[("endpoint", blocked)]).is_allowed(), "{blocked}");
    }
    assert!(!local.check(&[("endpoint", "/login"), ("method", "POST")]).is_allowed());
    for free in ["/admins", "/admin/x", "/api/v1/x", "/login"] {
        assert!(local.check(&[("endpoint", free)]).is_allowed(), "{free}");
    }
}

#[test]
fn one_endpoint_written_in_two_ways_is_one_key() {
    let twice = RULES.to_owned() + "  - {rule: each, key: {endpoint: /admin}, verdict: allow}\n";
    let error = trypema::rules::RuleSet::from_yaml(&twice, "rules.yaml").unwrap_err().to_string();
    assert!(error.contains("duplicate override: this key already has one"), "{error}");
    let bytes = RULES.to_owned() + "  - {rule: each, key: {endpoint: /%ff}, verdict: allow}\n";
    let error = trypema::rules::RuleSet::from_yaml(&bytes, "rules.yaml").unwrap_err().to_string();
    assert!(error.contains("path \"/%ff\" does not decode to text"), "{error}");
}

#[test]
fn counters_are_found_however_their_endpoint_is_written() {
    let local = Local::new(RULES);
    let spend =
        |path: &str| local.check(&[("endpoint", path)]).rules().next().map(|rule| rule.key.to_owned());
    let left = |key: &str| {
        let verdict = wait_for(local.engine.inspect(key, 0)).unwrap()?;
        verdict.rules().next().map(|rule| rule.decision.remaining())
    };
    assert_eq!(spend("/reports/").as_deref(), Some("each|endpoint=/reports"));
    for key in ["each|endpoint=/reports", "each|endpoint=/reports/", "each|endpoint=//reports"] {
        assert_eq!(left(key), Some(4), "{key}");
    }
    assert_eq!(wait_for(local.engine.reset("each|endpoint=/reports/")).unwrap(), Some(true));
    assert_eq!(left("each|endpoint=/reports"), Some(5));

    // A key that a verdict reports is the name of that counter, whatever characters it contains.
    for path in ["/a%3Fb", "/a%23b", "/100%", "/%%341", "/a%2Fb", "/", "/x%7Cy", "/~z"] {
        let key = spend(path).unwrap();
        let values = local.engine.rules().values_of(&key).unwrap();
        assert_eq!(local.engine.rules().key_of("each", &values.values).as_deref(), Some(&*key), "{path}");
        assert_eq!(spend(&values.values["endpoint"]).as_deref(), Some(&*key), "{path}");
        assert!(left(&key).is_none_or(|left| left < 5), "{path}");
    }
}

#[test]
fn lists_of_endpoints_and_of_networks_hold_as_before() {
    let set = rules(
        "
rules: [{id: all, scope: global, strategy: {fixed_window: {limit: 5, window: 1h}}}]
block: {endpoint: [/admin/], ip: [10.0.0.0/8, 10.1.0.0/16, 192.0.2.7, '2001:db8::/48']}
allow: {ip: [203.0.113.0/24, '2001:db8:1::1']}
",
    );
    let limiter = trypema::RateLimiter::builder().build().unwrap();
    let engine = trypema::rules::Engine::local(std::sync::Arc::new(limiter), set);
    let listed = |name: &str, value: &str| {
        let verdict = engine.try_check(&Request::new(&[(name, value)])).unwrap().unwrap();
        verdict.listed_by().map(|_| verdict.is_allowed())
    };
    assert_eq!(listed("endpoint", "/%61dmin"), Some(false));
    for blocked in ["10.1.2.3", "10.255.0.1", "192.0.2.7", "::ffff:10.0.0.1", "2001:db8::1", "2001:db8::/64"]
    {
        assert_eq!(listed("ip", blocked), Some(false), "{blocked}");
    }
    for other in ["11.0.0.1", "192.0.2.8", "2001:db8:2::1", "2001:db8:1::/64", "not an address"] {
        assert_eq!(listed("ip", other), None, "{other}: in doubt a request is not allowed");
    }
    assert_eq!(listed("ip", "203.0.113.9"), Some(true));
    assert_eq!(listed("ip", "2001:db8:1::1"), Some(true));
}
