//! Invalid combinations of checks: they are rejected and spend nothing.

use std::time::Duration;

use trypema::{Decision, TrypemaError};

use super::asked::{Asked, six};
use super::provider::Provider;

const CAPACITY: u64 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of checks in one call.
const MOST: usize = 64;

/// Returns `count` checks of one strategy, each with its own key.
fn asked(count: usize) -> Vec<Asked> {
    let limit = &six(CAPACITY, WINDOW, 2.0)[4];
    (0..count).map(|number| Asked::new(&format!("number {number}"), limit, 1)).collect()
}

/// Every operation rejects the checks with `reason`, and nothing is spent.
fn is_refused(provider: &impl Provider, asked: &[Asked], reason: &str) {
    let before = provider.left(asked);
    let verbs = [provider.take_all(asked), provider.take_all_with_receipts(asked), provider.peek_all(asked)];
    for answer in verbs {
        let error = answer.unwrap_err();
        assert!(matches!(error, TrypemaError::InvalidChecks { .. }), "{error:?}");
        assert_eq!(error.to_string(), format!("invalid checks: {reason}"));
    }
    assert_eq!(provider.left(asked), before);
}

pub(crate) fn too_many(provider: &impl Provider) {
    is_refused(provider, &asked(MOST + 1), "65 checks in one request: at most 64 are allowed");
    is_refused(provider, &asked(1_000), "1000 checks in one request: at most 64 are allowed");
    assert_eq!(provider.left(&asked(MOST)), [CAPACITY; MOST]);
    let taken = provider.take_all(&asked(MOST)).unwrap();
    assert!(taken.is_allowed);
    let left: Vec<u64> = taken.decisions.iter().map(Decision::remaining).collect();
    assert_eq!(left, [CAPACITY - 1; MOST], "each is told its own");
    assert_eq!(provider.left(&asked(MOST)), [CAPACITY - 1; MOST]);
}

/// Two checks with the same key and strategy are rejected even if their limits differ, because they would
/// share one state.
pub(crate) fn the_same_key_twice(provider: &impl Provider, keys: &[String; 5]) {
    let repeated = "two checks use the same key and strategy";
    for (one, other) in six(CAPACITY, WINDOW, 2.0).iter().zip(&six(2 * CAPACITY, 2 * WINDOW, 3.0)) {
        for second in [one, other] {
            let twice = [(&keys[0], one), (&keys[1], one), (&keys[0], second)];
            let twice = twice.map(|(key, limit)| Asked::new(key, limit, 1));
            is_refused(provider, &twice, repeated);
        }
    }
    let each: Vec<Asked> =
        six(CAPACITY, WINDOW, 2.0).iter().map(|limit| Asked::new(&keys[0], limit, 4)).collect();
    for left in [CAPACITY - 4, CAPACITY - 8] {
        assert!(provider.take_all(&each).unwrap().is_allowed, "its states are apart");
        assert_eq!(provider.left(&each), [left; 6]);
    }
}

/// A call without checks is allowed.
pub(crate) fn none_at_all(provider: &impl Provider) {
    for answer in [provider.take_all(&[]), provider.take_all_with_receipts(&[]), provider.peek_all(&[])] {
        let answer = answer.unwrap();
        assert!(answer.is_allowed && answer.decisions.is_empty() && answer.receipts.is_empty(), "{answer:?}");
    }
    provider.refund_all(&[], &[]);
}
