//! Concurrent callers whose checks overlap, in any order.

use std::time::Duration;

use trypema_testkit::random::Random;

use super::asked::{Asked, six};
use super::provider::Provider;

const WINDOW: Duration = Duration::from_secs(60);
const CALLERS: u64 = 64;
const WAVES: u64 = 10;

/// Each key has spent exactly the units of the admitted callers, and the remaining units can still be taken.
pub(crate) fn spent_is_what_was_admitted(provider: &impl Provider, keys: &[String; 5]) {
    // The abuse strategy is left out because it counts its own denials. Suppressed has a factor of 1, so that
    // it does not decide by chance.
    let whole: Vec<Asked> = keys
        .iter()
        .enumerate()
        .map(|(position, key)| Asked::new(key, &six(capacity(position), WINDOW, 1.0)[position], 1))
        .collect();
    let (mut random, mut admitted, mut denied) = (Random::seeded(7), vec![0; keys.len()], 0);
    for _ in 0..WAVES {
        let callers: Vec<Vec<Asked>> = (0..CALLERS).map(|_| some_of(&whole, &mut random)).collect();
        for (caller, answer) in callers.iter().zip(provider.take_all_at_once(&callers)) {
            denied += u64::from(!answer.is_allowed);
            for asked in caller.iter().filter(|_| answer.is_allowed) {
                let position = keys.iter().position(|key| *key == asked.key).unwrap();
                admitted[position] += asked.cost;
            }
        }
        let left: Vec<u64> =
            (0..keys.len()).map(|position| capacity(position) - admitted[position]).collect();
        assert_eq!(provider.left(&whole), left);
    }
    assert!(denied > 0 && admitted.iter().all(|units| *units > 0), "{denied} denied, {admitted:?} admitted");
    for (position, asked) in whole.iter().enumerate() {
        let left = capacity(position) - admitted[position];
        assert!(provider.take_all(&[asked.costing(left)]).unwrap().is_allowed, "{asked:?}");
        assert!(!provider.take_all(&[asked.costing(1)]).unwrap().is_allowed, "{asked:?}");
    }
}

fn capacity(position: usize) -> u64 {
    200 + 100 * position as u64
}

/// Picks a random subset of the checks, in random order, with random costs.
fn some_of(whole: &[Asked], random: &mut Random) -> Vec<Asked> {
    let mut from = whole.to_vec();
    let count = random.between(1, from.len() as u64);
    let pick = |_| {
        let picked = from.swap_remove(random.below(from.len() as u64) as usize);
        picked.costing(random.between(1, 4))
    };
    (0..count).map(pick).collect()
}
