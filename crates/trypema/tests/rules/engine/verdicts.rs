//! The combined decision of several rules.

use std::time::Duration;

use trypema::rules::{Outcome, Request};
use trypema_testkit::blocking::wait_for;

use super::{Local, a_minute, decided_by, ids};

const TWO: &str = "
rules:
  - {id: user, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: all, scope: global, priority: 50, strategy: {fixed_window: {limit: 3, window: 1h}}}
";

#[test]
fn one_that_denies_keeps_all_from_being_spent() {
    let local = Local::new(TWO);
    let ann = [("user", "ann")];
    assert!(local.check_for(&ann, 2).is_allowed());
    let denied = local.check(&ann);
    assert_eq!((denied.outcome(), decided_by(&denied)), (Outcome::Denied, Some("user")));
    assert_eq!(ids(&denied), ["all", "user"], "by priority");
    assert!(denied.retry_after().is_some_and(|wait| wait <= Duration::from_secs(3600) && !wait.is_zero()));
    assert!(local.check(&[("user", "bob")]).is_allowed(), "one was left of `all`");
    let both = local.check(&ann);
    assert_eq!(decided_by(&both), Some("all"), "the first by priority is named");
}

#[test]
fn the_wait_is_that_of_the_slowest() {
    let local = Local::new(
        "
rules:
  - {id: a, scope: global, strategy: {token_bucket: {limit: 1, window: 10s}}}
  - {id: b, scope: global, strategy: {token_bucket: {limit: 1, window: 60s}}}
",
    );
    assert!(local.check(&[]).is_allowed());
    let denied = local.check(&[]);
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
    local.clock.advance(Duration::from_secs(60) - Duration::from_micros(1));
    assert!(!local.check(&[]).is_allowed());
    local.clock.advance(Duration::from_micros(1));
    assert!(local.check(&[]).is_allowed());
}

/// A refill rate of two tokens per second overrides the rate of 10 tokens per minute.
#[test]
fn a_refill_rate_takes_precedence_over_the_window() {
    let local = Local::new(
        "
rules:
  - {id: a, scope: global, strategy: {token_bucket: {limit: 10, window: 60s, refill_rate: 2}}}
",
    );
    assert!(local.check_for(&[], 10).is_allowed(), "the limit is the bucket's size");
    assert_eq!(local.check(&[]).retry_after(), Some(Duration::from_millis(500)));
    local.clock.advance(Duration::from_millis(500) - Duration::from_micros(1));
    assert!(!local.check(&[]).is_allowed());
    local.clock.advance(Duration::from_micros(1));
    assert!(local.check(&[]).is_allowed());
}

#[test]
fn a_cost_that_never_fits_has_no_wait() {
    let local = Local::new(TWO);
    let never = local.check_for(&[("user", "ann")], 3);
    assert_eq!((never.outcome(), never.retry_after()), (Outcome::Denied, None));
    assert!(local.check_for(&[("user", "ann")], 2).is_allowed(), "nothing was spent");
}

#[test]
fn throttling_waits_within_its_bound_and_reserves_nothing() {
    let local = Local::new(
        "
rules:
  - {id: t, scope: global, strategy: {token_bucket: {limit: 2, window: 4s}}, action: throttle, max_delay: 2s}
",
    );
    assert!(local.check_for(&[], 2).is_allowed());
    for _ in 0..3 {
        let throttled = local.check(&[]);
        assert_eq!(
            (throttled.outcome(), throttled.retry_after()),
            (Outcome::Throttled, Some(Duration::from_secs(2)))
        );
        assert!(!throttled.is_allowed());
    }
    assert_eq!(local.check_for(&[], 2).outcome(), Outcome::Denied, "4 s are too long");
    local.clock.advance(Duration::from_secs(2));
    assert!(local.check(&[]).is_allowed());
}

#[test]
fn a_rule_that_rejects_goes_before_those_that_throttle() {
    let local = Local::new(
        "
rules:
  - {id: t, scope: global, priority: 1, strategy: {token_bucket: {limit: 1, window: 1s}}, action: throttle}
  - {id: r, scope: global, priority: 2, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    assert!(local.check(&[]).is_allowed());
    let denied = local.check(&[]);
    assert_eq!((denied.outcome(), decided_by(&denied)), (Outcome::Denied, Some("r")));
}

#[test]
fn rules_that_log_spend_on_their_own_and_never_deny() {
    let local = Local::new(
        "
rules:
  - {id: real, scope: global, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {id: trial, scope: global, strategy: {fixed_window: {limit: 5, window: 1h}}, action: log_only}
",
    );
    let shadowed = |count: usize| {
        let verdict = local.check(&[]);
        let is_shadowed = verdict.rules().any(|rule| rule.is_shadowed());
        assert_eq!(verdict.is_allowed(), count <= 3, "{count}");
        is_shadowed
    };
    let seen: Vec<bool> = (1..=7).map(shadowed).collect();
    // Requests that the other rule denies are counted too.
    assert_eq!(seen, [false, false, false, false, false, true, true]);
    assert_eq!(local.left(&[]), [("real".to_owned(), 0), ("trial".to_owned(), 0)]);
}

#[test]
fn vetoed_rules_count_what_their_strategy_counts_of_denials() {
    let local = Local::new(
        "
rules:
  - {id: abuse, scope: user, strategy: {abuse: {temp: {window: 1m, threshold: 3, block: 1h}, long: {window: 1h, threshold: 9, block: 1d}}}}
  - {id: once, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    let ann = [("user", "ann")];
    assert!(local.check(&ann).is_allowed());
    for _ in 0..5 {
        assert_eq!(decided_by(&local.check(&ann)), Some("once"));
    }
    assert_eq!(
        local.left(&ann),
        [("abuse".to_owned(), 1), ("once".to_owned(), 0)],
        "no attempt was recorded"
    );
}

#[test]
fn overrides_change_single_keys() {
    let local = Local::new(
        "
rules:
  - id: key
    scope: tenant
    key_pattern: tenant:{api_key}
    strategy: {fixed_window: {limit: 1, window: 1h}}
overrides:
  - {rule: key, key: {api_key: acme}, strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {rule: key, key: {api_key: partner}, verdict: allow}
  - {rule: key, key: {api_key: mallory}, verdict: block}
",
    );
    let admitted = |key: &str| (0..20).filter(|_| local.check(&[("api_key", key)]).is_allowed()).count();
    assert_eq!(["acme", "someone", "partner", "mallory"].map(admitted), [5, 1, 20, 0]);
    let blocked = local.check(&[("api_key", "mallory")]);
    assert_eq!((blocked.retry_after(), decided_by(&blocked)), (None, Some("key")));
    let limit = local.check(&[("api_key", "acme")]);
    assert_eq!(limit.rules().next().unwrap().limit.quota(), 5);
}

#[test]
fn lists_decide_by_themselves_and_spend_nothing() {
    let local = Local::new(
        "
rules:
  - {id: all, scope: global, strategy: {fixed_window: {limit: 1, window: 1h}}}
allow: {ip: [10.0.0.1]}
block: {user: [mallory]}
",
    );
    for _ in 0..3 {
        let allowed = local.check(&[("ip", "10.0.0.1")]);
        assert!(allowed.is_allowed() && allowed.listed_by() == Some("ip"));
        let blocked = local.check(&[("user", "mallory"), ("ip", "10.0.0.1")]);
        assert_eq!((blocked.outcome(), blocked.retry_after()), (Outcome::Denied, None));
        assert_eq!((blocked.listed_by(), decided_by(&blocked)), (Some("user"), None));
    }
    assert_eq!(local.left(&[]), [("all".to_owned(), 1)]);
}

#[test]
fn reservations_are_given_back_once() {
    let local = Local::new(TWO);
    let request = Request::new(&[("user", "ann")]).costing(2);
    let mut reserved = wait_for(local.engine.reserve(&request, &a_minute())).unwrap();
    assert!(reserved.verdict().is_allowed());
    assert_eq!(local.left(&[("user", "ann")]), [("all".to_owned(), 1), ("user".to_owned(), 0)]);
    assert!(wait_for(reserved.release()).is_complete());
    assert_eq!(local.left(&[("user", "ann")]), [("all".to_owned(), 3), ("user".to_owned(), 2)]);
}

#[test]
fn looking_spends_nothing_and_asks_abuse_rules_only_for_blocks() {
    let local = Local::new(
        "
rules:
  - {id: guess, scope: user, strategy: {abuse: {temp: {window: 1m, threshold: 2, block: 1h}, long: {window: 1h, threshold: 9, block: 1d}}}}
",
    );
    let ann = [("user", "ann")];
    let peek = || wait_for(local.engine.peek(&Request::new(&ann))).unwrap().is_allowed();
    assert!((0..10).all(|_| peek()));
    assert!(local.check(&ann).is_allowed(), "the first failure");
    assert!(peek(), "one failure does not block");
    assert!(!local.check(&ann).is_allowed(), "the second one does");
    assert!(!peek());
}

#[test]
fn what_has_happened_is_recorded_by_each_rule_on_its_own() {
    let local = Local::new(
        "
rules:
  - {id: account, scope: user, strategy: {abuse: {temp: {window: 1h, threshold: 5, block: 1h}, long: {window: 1d, threshold: 90, block: 1d}}}}
  - {id: address, scope: ip, strategy: {fixed_window: {limit: 2, window: 1h}}}
",
    );
    let attempt = [("user", "ann"), ("ip", "10.0.0.1")];
    for _ in 0..4 {
        let _ = wait_for(local.engine.record(&Request::new(&attempt))).unwrap();
    }
    assert!(local.check(&[("user", "bob")]).is_allowed());
    let fifth = wait_for(local.engine.record(&Request::new(&attempt))).unwrap();
    assert_eq!(decided_by(&fifth), Some("account"), "though the address was denied from the third on");
}

#[test]
fn what_was_reserved_is_given_back_under_the_limits_of_now() {
    // Another limit of a bucket is another rate, so it is not certain which units still count.
    for (strategy, left) in [("fixed_window", 20), ("absolute", 20), ("token_bucket", 19)] {
        let rules = |limit: u64| {
            format!(
                "rules: [{{id: r, scope: user, strategy: {{{strategy}: {{limit: {limit}, window: 1d}}}}}}]"
            )
        };
        let local = Local::new(&rules(10));
        let ann = [("user", "ann")];
        let mut reserved = wait_for(local.engine.reserve(&Request::new(&ann), &a_minute())).unwrap();
        local.engine.replace(super::rules(&rules(100)));
        assert!(local.check_for(&ann, 80).is_allowed());
        assert_eq!(local.left(&ann), [("r".to_owned(), 19)], "{strategy}");
        assert!(wait_for(reserved.release()).is_complete());
        assert_eq!(local.left(&ann), [("r".to_owned(), left)], "{strategy}");
    }
}
