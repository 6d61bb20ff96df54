//! What a path with several readings costs.

use trypema::TrypemaError;
use trypema::rules::{AttributeSet, Request, Verdict};
use trypema_testkit::blocking::wait_for;

use super::SPELLED;
use crate::engine::{Local, a_minute, rules};

const EACH: &str = "
units: [tokens]
rules:
  - {id: each, scope: endpoint, unit: tokens, strategy: {absolute: {limit: 10, window: 1h}}}
  - {id: all, scope: global, unit: tokens, strategy: {absolute: {limit: 100, window: 1h}}}
  - {id: area, scope: endpoint, endpoints: ['/**'], unit: tokens, strategy: {absolute: {limit: 100, window: 1h}}}
";

/// A path with more readings than a request may have.
const AMBIGUOUS: &str = r"/a%2Fb//../c\d";

fn keys(verdict: &Verdict, rule: &str) -> Vec<String> {
    let of_rule = verdict.rules().filter(|decided| decided.rule.id == rule);
    let mut keys: Vec<String> = of_rule.map(|decided| decided.key.to_owned()).collect();
    keys.sort();
    keys
}

fn counters_of(readings: &[&str]) -> Vec<String> {
    let mut keys: Vec<String> = readings.iter().map(|path| format!("each|endpoint={path}")).collect();
    keys.sort();
    keys
}

/// Returns the units that are spent of a counter, by its name.
fn spent(local: &Local, key: &str) -> u64 {
    let verdict = wait_for(local.engine.inspect(key, 0)).unwrap().unwrap();
    let decided = verdict.rules().next().unwrap();
    let limit = if key.starts_with("each") { 10 } else { 100 };
    assert_eq!(decided.key, key);
    limit - decided.decision.remaining()
}

#[test]
fn each_reading_is_charged_once() {
    for (spelled, readings) in SPELLED {
        let local = Local::new(EACH);
        let (attributes, costs) = ([("endpoint", spelled)], [("tokens", 3)]);
        let request = Request::new(&attributes).with_costs(&costs);
        let verdict = local.engine.try_check(&request).unwrap().unwrap();
        assert_eq!(keys(&verdict, "each"), counters_of(readings), "{spelled}");
        assert_eq!((keys(&verdict, "all").len(), keys(&verdict, "area").len()), (1, 1), "{spelled}");
        for key in counters_of(readings) {
            assert_eq!(spent(&local, &key), 3, "{key}");
        }
        assert_eq!((spent(&local, "all"), spent(&local, "area|endpoint=/**")), (3, 3), "{spelled}");
        let matching = local.engine.rules();
        assert_eq!(matching.matching(&request).unwrap().count(), 3, "each rule once");
    }
}

#[test]
fn a_denial_by_one_reading_spends_nothing_on_the_others() {
    let local = Local::new(EACH);
    let ask = |path: &str, tokens| {
        let (attributes, costs) = ([("endpoint", path)], [("tokens", tokens)]);
        local.engine.try_check(&Request::new(&attributes).with_costs(&costs)).unwrap().unwrap().is_allowed()
    };
    assert!(ask("/api/login", 9));
    assert!(!ask("/api//../login", 2));
    assert_eq!((spent(&local, "each|endpoint=/login"), spent(&local, "all")), (0, 9));
    assert!(ask("/api//../login", 1));
    assert_eq!(spent(&local, "each|endpoint=/api/login"), 10);
    assert_eq!(spent(&local, "each|endpoint=/api/../login"), 1);
}

#[test]
fn every_verb_knows_every_reading() {
    let (spelled, readings) = SPELLED[0];
    let local = Local::new(EACH);
    let (attributes, costs) = ([("endpoint", spelled)], [("tokens", 4)]);
    let request = Request::new(&attributes).with_costs(&costs);
    let spent_of_each = || counters_of(readings).iter().map(|key| spent(&local, key)).collect::<Vec<_>>();

    let peeked = wait_for(local.engine.peek(&request)).unwrap();
    assert_eq!(keys(&peeked, "each"), counters_of(readings));
    let explained = wait_for(local.engine.explain(&request)).unwrap();
    let applying = explained.applying().filter(|rule| rule.decision.rule.id == "each");
    assert_eq!(applying.map(|rule| rule.left).collect::<Vec<_>>(), [10, 10, 10]);
    assert_eq!(spent_of_each(), [0, 0, 0]);

    wait_for(local.engine.record(&request)).unwrap();
    assert_eq!(spent_of_each(), [4, 4, 4]);

    let mut reservation = wait_for(local.engine.reserve(&request, &a_minute())).unwrap();
    assert_eq!(spent_of_each(), [8, 8, 8]);
    let settled = wait_for(reservation.settle(&[("tokens", 1)])).unwrap();
    assert_eq!(settled.rules.len(), 5);
    assert_eq!(spent_of_each(), [5, 5, 5]);
    let mut released = wait_for(local.engine.reserve(&request, &a_minute())).unwrap();
    wait_for(released.release());
    assert_eq!(spent_of_each(), [5, 5, 5]);

    let odd = "each|endpoint=/api/../login";
    assert_eq!(wait_for(local.engine.reset(odd)).unwrap(), Some(true));
    assert_eq!((spent(&local, odd), spent(&local, "each|endpoint=/login")), (0, 5));
    assert_eq!(local.engine.rules().values_of(odd), None, "no override can name it");
}

#[test]
fn sets_with_paths_of_several_readings_add_up() {
    let local = Local::new(EACH);
    let (spelled, plain) = ([("endpoint", "/api//../login")], [("endpoint", "/api/login")]);
    let sets = [
        AttributeSet::new(&spelled).with_costs(&[("tokens", 2)]),
        AttributeSet::new(&plain).with_costs(&[("tokens", 3)]),
    ];
    assert!(wait_for(local.engine.check(&Request::of_sets(&sets))).unwrap().is_allowed());
    let of = |key: &str| spent(&local, key);
    assert_eq!((of("each|endpoint=/login"), of("each|endpoint=/api/login")), (2, 5));
    assert_eq!((of("all"), of("area|endpoint=/**")), (5, 5), "each set once, however many readings it has");
}

#[test]
fn a_rule_with_endpoints_counts_each_that_matches() {
    let local = Local::new(
        "
rules:
  - {id: some, scope: endpoint, endpoints: [/files/**, /secret, '/*'], strategy: {absolute: {limit: 2, window: 1h}}}
",
    );
    let verdict = local.check(&[("endpoint", "/files/../secret")]);
    assert_eq!(keys(&verdict, "some"), ["some|endpoint=/files/**", "some|endpoint=/secret"]);
}

#[test]
fn a_path_with_too_many_readings_is_refused() {
    let local = Local::new(&(EACH.to_owned() + "block: {user: [eve]}\nallow: {user: [root]}"));
    let refused = TrypemaError::AmbiguousPath { max_readings: 6 };
    for user in ["ann", "root", "eve"] {
        let attributes = [("endpoint", AMBIGUOUS), ("user", user)];
        let request = Request::new(&attributes);
        assert_eq!(local.engine.try_check(&request).unwrap().unwrap_err(), refused);
        assert_eq!(wait_for(local.engine.check(&request)).unwrap_err(), refused);
        assert_eq!(wait_for(local.engine.peek(&request)).unwrap_err(), refused);
        assert_eq!(wait_for(local.engine.record(&request)).unwrap_err(), refused);
        assert_eq!(wait_for(local.engine.reserve(&request, &a_minute())).unwrap_err(), refused);
        assert_eq!(wait_for(local.engine.explain(&request)).unwrap_err(), refused);
        assert_eq!(local.engine.rules().matching(&request).err(), Some(refused.clone()));
        assert_eq!(local.engine.rules().skipped_rules(&request).err(), Some(refused.clone()));
        let sets = [AttributeSet::new(&[]), AttributeSet::new(&attributes)];
        assert_eq!(wait_for(local.engine.check(&Request::of_sets(&sets))).unwrap_err(), refused);
    }
    assert_eq!(spent(&local, "all"), 0);
}

/// A path with six readings, which is as many as a request may have.
#[test]
fn the_bound_on_rules_holds_for_paths_with_several_readings() {
    let six = r"/a%2Fb\c%2F..%2Fd";
    let each = |count| {
        let rule = |index| {
            format!(
                "  - {{id: r{index}, scope: endpoint, strategy: {{absolute: {{limit: 9, window: 1h}}}}}}\n"
            )
        };
        "rules:\n".to_owned() + &(0..count).map(rule).collect::<String>()
    };
    let readings = Local::new(&each(1)).check(&[("endpoint", six)]).rules().count();
    assert_eq!(readings, 6);
    for (count, is_error) in [(10, false), (11, true)] {
        let local = Local::new(&each(count));
        let bound = local.engine.rules().applying_upper_bound();
        assert_eq!(bound, count * 6);
        let outcome = local.engine.try_check(&Request::new(&[("endpoint", six)])).unwrap();
        assert_eq!(outcome.is_err(), is_error, "{count} rules");
        assert_eq!(local.check(&[("endpoint", "/a")]).rules().count(), count);
    }
    let of_tree = "
rules:
  - {id: a, scope: endpoint, endpoints: ['/**'], strategy: {absolute: {limit: 9, window: 1h}}}
  - {id: b, scope: endpoint, endpoints: ['/*/b', '/c/*'], strategy: {absolute: {limit: 9, window: 1h}}}
  - {id: c, scope: global, endpoints: [/c/b], strategy: {absolute: {limit: 9, window: 1h}}}
";
    assert_eq!(
        rules(of_tree).applying_upper_bound(),
        4,
        "all readings that match an endpoint are one counter"
    );
}
