//! Keys that share a state because the table is full, in one call: the result is stricter for them, never
//! looser.

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema_testkit::random::Random;

use crate::all_or_nothing::asked::{Asked, checks, six};

const CAPACITY: u64 = 10;
const WINDOW: Duration = Duration::from_secs(366 * 86_400);
/// More names than shards, so that some share a state.
const NAMES: [&str; 8] = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"];

/// Units that one key of a call spends count for other keys that share its state, even within the call.
#[test]
fn a_request_of_keys_that_share_a_state_admits_each_of_them_no_more_than_its_capacity() {
    for limit in six(CAPACITY, WINDOW, 1.0) {
        let rl = RateLimiter::builder().max_keys(1).build().unwrap();
        let take = |asked: &[Asked]| rl.local().take_all(&checks(asked)).unwrap().is_allowed;
        assert!(take(&[Asked::new("resident", &limit, 1)]));
        for large in NAMES {
            let others = NAMES.iter().filter(|name| **name != large);
            let mut asked: Vec<Asked> = others.map(|name| Asked::new(name, &limit, 1)).collect();
            asked.push(Asked::new(large, &limit, 0));
            let mut admitted = 0;
            loop {
                // Takes everything that is left for this key, and one unit for each of the others.
                let left =
                    rl.local().peek_all(&checks(&asked)).unwrap().decisions[NAMES.len() - 1].remaining();
                asked[NAMES.len() - 1].cost = left;
                if left == 0 || !take(&asked) {
                    break;
                }
                admitted += left;
                asked[NAMES.len() - 1].cost = 0;
            }
            let strategy = limit.strategy();
            assert!(admitted <= CAPACITY, "{large} was admitted {admitted} of {CAPACITY} by {strategy}");
        }
    }
}

/// Keys with different limits share a state: one key starts with units that were spent under the other limit.
#[test]
fn a_request_of_keys_with_different_limits_admits_each_of_them_no_more_than_its_capacity() {
    for (short, long) in six(CAPACITY, WINDOW / 2, 1.0).into_iter().zip(six(CAPACITY, WINDOW, 1.0)) {
        for (small, large) in NAMES.iter().flat_map(|small| NAMES.iter().map(move |large| (small, large))) {
            for [one, other] in [[&short, &long], [&long, &short]].into_iter().filter(|_| small != large) {
                let rl = RateLimiter::builder().max_keys(1).build().unwrap();
                let take = |asked: &[Asked]| rl.local().take_all(&checks(asked)).unwrap().is_allowed;
                assert!(take(&[Asked::new("resident", other, 1)]));
                let both = [Asked::new(small, one, 2), Asked::new(large, other, CAPACITY - 1)];
                let mut admitted = if take(&both) { CAPACITY - 1 } else { 0 };
                while take(&[both[1].costing(1)]) {
                    admitted += 1;
                }
                assert!(admitted <= CAPACITY, "{admitted} of {CAPACITY} were admitted by {}", one.strategy());
            }
        }
    }
}

/// A key starts with the shared state under another limit that expires last. Its own call may change which
/// state that is.
#[test]
fn a_request_that_changes_what_counts_longest_admits_no_more_than_the_capacity() {
    let [short, middle, long] =
        [90, 95, 100].map(|seconds| six(CAPACITY, Duration::from_secs(seconds), 1.0)[0].clone());
    let mut random = Random::seeded(5);
    for _ in 0..1_000 {
        let clock = Arc::new(ManualClock::default());
        let rl = RateLimiter::builder().max_keys(1).clock(clock.clone()).build().unwrap();
        let take = |asked: &[Asked]| rl.local().take_all(&checks(asked)).unwrap().is_allowed;
        let [one, other, small, large] = [(); 4].map(|()| random.pick(&NAMES));
        if small == large {
            continue;
        }
        // The random names often share states, but not always.
        assert!(take(&[Asked::new("resident", &long, 1)]));
        assert!(take(&[Asked::new(other, &short, 1)]));
        assert!(take(&[Asked::new(one, &long, 1)]));
        assert!(take(&[Asked::new(other, &short, 2)]));
        clock.advance(Duration::from_secs(20));
        let both = [Asked::new(small, &short, 1), Asked::new(large, &middle, CAPACITY - 3)];
        let mut admitted = if take(&both) { CAPACITY - 3 } else { 0 };
        while take(&[both[1].costing(1)]) {
            admitted += 1;
        }
        assert!(admitted <= CAPACITY, "{admitted} of {CAPACITY} were admitted");
    }
}

/// Keys that fit into the table share nothing, even if they are in the same shard.
#[test]
fn a_request_of_many_new_keys_admits_each_of_them_its_capacity() {
    for limit in six(CAPACITY, WINDOW, 1.0) {
        for max_keys in [None, Some(10_000)] {
            let builder = RateLimiter::builder();
            let builder = match max_keys {
                Some(max_keys) => builder.max_keys(max_keys),
                None => builder,
            };
            let rl = builder.build().unwrap();
            for request in 0..10 {
                let key = |number| format!("{request} {number}");
                let asked: Vec<Asked> =
                    (0..64).map(|number| Asked::new(&key(number), &limit, CAPACITY)).collect();
                assert!(rl.local().take_all(&checks(&asked)).unwrap().is_allowed, "{}", limit.strategy());
            }
        }
    }
}

/// A key whose state has expired is removed during its own call and falls back to the shared state. The
/// decision must match the recorded state.
#[test]
fn a_key_that_is_swept_within_its_own_request_admits_no_more_than_its_capacity() {
    let [short, long] =
        [Duration::from_secs(1), Duration::from_secs(60)].map(|window| six(CAPACITY, window, 1.0)[4].clone());
    for _ in 0..20 {
        let clock = Arc::new(ManualClock::default());
        let rl = RateLimiter::builder().max_keys(1).clock(clock.clone()).build().unwrap();
        let take = |asked: &[Asked]| rl.local().take_all(&checks(asked)).unwrap().is_allowed;
        assert!(take(&[Asked::new("ann", &short, 1)]));
        let others = || NAMES.iter().filter(|name| **name != "ann");
        // One unit is left in every shared state.
        for name in others() {
            let usage = rl.local().peek_all(&checks(&[Asked::new(name, &long, 0)])).unwrap();
            assert!(take(&[Asked::new(name, &long, usage.decisions[0].remaining() - 1)]));
        }
        clock.advance(Duration::from_secs(2));
        let mut asked = vec![Asked::new("ann", &short, CAPACITY)];
        asked.extend(others().map(|name| Asked::new(name, &long, 0)));
        let mut admitted = if take(&asked) { CAPACITY } else { 0 };
        while take(&[Asked::new("ann", &short, 1)]) {
            admitted += 1;
        }
        assert!(admitted <= CAPACITY, "{admitted} of {CAPACITY} were admitted");
    }
}
