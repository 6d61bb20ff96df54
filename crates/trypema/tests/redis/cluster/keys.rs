//! Keys of arbitrary bytes: each has its own counter, and all Redis keys of one subject are in one slot.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::redis::RedisLimiter;
use trypema::strategy::Leasable;
use trypema::{Check, Decision, Limit};
use trypema_testkit::blocking::{self, Blocking, connect, wait_for};
use trypema_testkit::redis::Cluster;
use trypema_testkit::verbs::{Lease, Verbs};

use crate::strategies::{Limits, Visit, each};

/// More units than all keys take together.
const CAPACITY: u64 = 5_000;

/// Keys that a naive encoding would confuse or split across slots.
fn odd_keys() -> Vec<String> {
    let short = [
        "a",
        "a ",
        " a",
        " ",
        "  ",
        "{",
        "}",
        "{}",
        "}{",
        "{a}",
        "a}",
        "{a",
        "}a{",
        "{{a}}",
        "{a}b",
        "b{a}",
        "%",
        "%%",
        "%7B",
        "%7D",
        "%25",
        "%257B",
        "%7Ba%7D",
        "a%7D",
        "{}a",
        "a{}",
        "a}{b",
        "a{b",
        "a}b",
        "ab",
        "ключ",
        "ключ}",
        "鍵",
        "é",
        "e\u{301}",
        "\u{1F511}",
        "\0",
        "\r\n",
        "a\nb",
        "\"",
        "\\",
        "*",
        "[a]",
        "?",
        "",
        ":",
        "::1",
        "user:123",
        "2001:db8:1:2::/64",
        "a:{b}:tokens",
        "%empty",
        "a%sha256-b",
    ];
    let long = ["x", "{", "}", "%"].map(|last| format!("{}{last}", "x".repeat(254)));
    let others = ["{".repeat(255), "}".repeat(255), "%".repeat(255), "é".repeat(127), "x:".repeat(5_120)];
    short.into_iter().map(str::to_owned).chain(long).chain(others).collect()
}

#[test]
fn keys_that_differ_in_any_byte_never_share_a_counter() {
    let cluster = Cluster::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let rl = blocking::limiter(&connect(&cluster.url()), "odd", &clock).build().unwrap();
    each(&rl, &Limits::of(CAPACITY, Duration::from_secs(60)), &mut OddKeys(odd_keys()));
}

struct OddKeys(Vec<String>);

impl Visit for OddKeys {
    fn visit<S: Leasable + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
        let redis = Blocking(limiter);
        let left = |name: &str| S::core(&redis.peek(name, limit, 0)).remaining();
        for (name, cost) in self.0.iter().zip(1..) {
            assert!(S::core(&redis.take(name, limit, cost)).is_allowed());
        }
        for (name, cost) in self.0.iter().zip(1..) {
            assert_eq!(left(name), CAPACITY - cost, "{} {name:?}", S::NAME);
        }
        for (name, cost) in self.0.iter().zip(1..) {
            let lease = Lease { cost: 7, lease: Duration::ZERO };
            let (_, receipt) = redis.take_with_receipt_for(name, limit, lease);
            assert_eq!(left(name), CAPACITY - cost - 7, "{} {name:?}", S::NAME);
            assert_eq!(redis.refund(name, limit, receipt.as_ref().unwrap()), 7);
            assert_eq!(left(name), CAPACITY - cost, "{} {name:?}", S::NAME);
        }
        for (index, name) in self.0.iter().enumerate() {
            assert!(redis.reset(name), "{} {name:?}", S::NAME);
            assert_eq!(left(name), CAPACITY);
            let next = self.0.get(index + 1).map(|next| left(next));
            assert_eq!(next.unwrap_or(0), next.map_or(0, |_| CAPACITY - index as u64 - 2));
        }
    }
}

#[test]
fn checks_are_spent_together_in_one_slot_and_across_slots() {
    let cluster = Cluster::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let rl = blocking::limiter(&connect(&cluster.url()), "all", &clock).build().unwrap();
    let limits = Limits::of(10, Duration::from_secs(60));
    let (window, bucket) = (Limit::from(limits.fixed_window), Limit::from(limits.token_bucket));
    let ask = |(key, limit), cost| Check::new(key, limit, cost);
    let left = |checks: &[Check<'_>]| -> Vec<u64> {
        let usage: Vec<_> = checks.iter().map(|check| Check { cost: 0, ..*check }).collect();
        wait_for(rl.redis().peek_all(&usage)).unwrap().decisions.iter().map(Decision::remaining).collect()
    };
    // The states of one key share a slot; those of two keys do not.
    for others in [("ann}", &bucket), ("bob", &window)] {
        let take = |cost| wait_for(rl.redis().take_all(&[ask(("ann}", &window), 3), ask(others, cost)]));
        let both = [ask(("ann}", &window), 0), ask(others, 0)];
        let before = left(&both);
        assert!(take(4).unwrap().is_allowed);
        let after = [before[0] - 3, before[1] - 4];
        assert_eq!(left(&both), after);
        let denied = take(7).unwrap();
        assert_eq!([0, 1].map(|index| denied.decisions[index].is_allowed()), [true, false]);
        assert!(!denied.is_allowed);
        assert_eq!(left(&both), after);
    }
}
