//! Units that are reserved together can be refunded together, once.

use std::time::Duration;

use super::asked::{Asked, six};
use super::provider::Provider;

const CAPACITY: u64 = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// One check of each strategy. One of the costs is 0.
fn asked(keys: &[String; 5]) -> Vec<Asked> {
    let limits = six(CAPACITY, WINDOW, 2.0);
    let cost = |position: usize| [3, 1, 2, 0, 5, 4][position];
    let key = |position: usize| &keys[position % keys.len()];
    (0..6).map(|position| Asked::new(key(position), &limits[position], cost(position))).collect()
}

/// Subtracts the cost of each check from its units in `before`.
fn less(before: &[u64], asked: &[Asked]) -> Vec<u64> {
    before.iter().zip(asked).map(|(left, asked)| left - asked.cost).collect()
}

pub(crate) fn are_good_once(provider: &impl Provider, keys: &[String; 5]) {
    fn units_of<P: Provider>(_: &P, receipts: &[Option<P::Receipt>]) -> Vec<Option<u64>> {
        receipts.iter().map(|receipt| receipt.as_ref().map(P::units)).collect()
    }
    let asked = asked(keys);
    assert!(provider.take_all(&asked).unwrap().is_allowed);
    let before = provider.left(&asked);
    assert_eq!(before, less(&[CAPACITY; 6], &asked));

    let reserved = provider.take_all_with_receipts(&asked).unwrap();
    assert!(reserved.is_allowed);
    let expected: Vec<_> = asked.iter().map(|asked| (asked.cost > 0).then_some(asked.cost)).collect();
    assert_eq!(units_of(provider, &reserved.receipts), expected);
    assert_eq!(provider.left(&asked), less(&before, &asked));
    provider.refund_all(&asked, &reserved.receipts);
    assert_eq!(provider.left(&asked), before, "all of it is back");
    provider.refund_all(&asked, &reserved.receipts);
    assert_eq!(provider.left(&asked), before, "a second time changes nothing");

    let again = provider.take_all_with_receipts(&asked).unwrap();
    provider.refund_all(&asked, &reserved.receipts);
    assert_eq!(provider.left(&asked), less(&before, &asked), "old receipts do not give back what is new");
    provider.refund_all(&asked[..2], &again.receipts[..2]);
    let mut left = less(&before, &asked);
    left[..2].copy_from_slice(&before[..2]);
    assert_eq!(provider.left(&asked), left, "some of them can be given back alone");
    provider.refund_all(&asked, &again.receipts);
    assert_eq!(provider.left(&asked), before, "and the others later");
}

/// Only an allowed `take_all_with_receipts` returns receipts.
pub(crate) fn are_of_what_was_reserved(provider: &impl Provider, keys: &[String; 5]) {
    let mut asked = asked(keys);
    assert!(provider.take_all(&asked).unwrap().receipts.is_empty(), "nobody asked for receipts");
    let before = provider.left(&asked);
    let peeked = provider.peek_all(&asked).unwrap();
    assert!(peeked.is_allowed && peeked.receipts.is_empty(), "nothing was taken: {peeked:?}");
    assert_eq!(provider.left(&asked), before);

    asked[5].cost = CAPACITY + 1;
    let denied = provider.take_all_with_receipts(&asked).unwrap();
    assert!(!denied.is_allowed && denied.receipts.is_empty(), "{denied:?}");
    asked.pop();
    assert_eq!(provider.left(&asked), before[..5]);

    let nothing: Vec<Asked> = asked.iter().map(|asked| asked.costing(0)).collect();
    let reserved = provider.take_all_with_receipts(&nothing).unwrap();
    assert!(reserved.is_allowed && reserved.receipts.len() == nothing.len(), "{reserved:?}");
    assert!(reserved.receipts.iter().all(Option::is_none), "{reserved:?}");
    provider.refund_all(&nothing, &reserved.receipts);
    assert_eq!(provider.left(&asked), before[..5]);
}

/// A receipt belongs to one key: used with a check of another key, it refunds nothing.
pub(crate) fn are_good_for_their_own_key(provider: &impl Provider, keys: &[String; 5]) {
    let limits = six(CAPACITY, WINDOW, 2.0);
    for limit in &limits {
        let asked = [&keys[0], &keys[1], &keys[2]].map(|key| Asked::new(key, limit, 3));
        let reserved = provider.take_all_with_receipts(&asked).unwrap();
        let mut moved = reserved.receipts.clone();
        moved.rotate_left(1);
        let before = provider.left(&asked);
        provider.refund_all(&asked, &moved);
        assert_eq!(provider.left(&asked), before, "{}", limit.strategy());
        provider.refund_all(&asked, &reserved.receipts);
        assert_eq!(provider.left(&asked), less(&[CAPACITY + 3; 3], &asked), "{}", limit.strategy());
    }
}

/// A receipt from before a reset refunds nothing. A receipt from after the reset refunds its units.
pub(crate) fn are_void_after_a_reset(provider: &impl Provider, keys: &[String; 5]) {
    let limits = six(CAPACITY, WINDOW, 2.0);
    for limit in &limits {
        let asked = [&keys[0], &keys[1]].map(|key| Asked::new(key, limit, 3));
        let old = provider.take_all_with_receipts(&asked).unwrap();
        assert!(asked.iter().all(|asked| provider.reset(asked)));
        let new = provider.take_all_with_receipts(&asked).unwrap();
        provider.refund_all(&asked, &old.receipts);
        assert_eq!(provider.left(&asked), [CAPACITY - 3; 2], "{}", limit.strategy());
        provider.refund_all(&asked, &new.receipts);
        assert_eq!(provider.left(&asked), [CAPACITY; 2], "{}", limit.strategy());
    }
}
