//! Postpaid checks together with ordinary ones: all are spent or none.

use std::time::Duration;

use trypema::Limit;

use super::asked::{Asked, six};
use super::provider::Provider;

const CAPACITY: u64 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// More than any limit holds.
const LARGE: u64 = 3 * CAPACITY;

/// An ordinary check, and a postpaid one of each strategy that can be overdrawn.
fn pairs(keys: &[String; 5]) -> Vec<[Asked; 2]> {
    let ordinary = Asked::new(&keys[0], &six(CAPACITY, WINDOW, 1.0)[4], 1);
    let can_overdraw = |limit: &Limit| !matches!(limit, Limit::Abuse(_));
    let limits = six(CAPACITY, WINDOW, 1.0).into_iter().filter(can_overdraw);
    limits.map(|limit| [ordinary.clone(), Asked::new(&keys[1], &limit, LARGE).postpaid()]).collect()
}

/// A postpaid check overdraws its limit once. Then it denies the request, and nothing is spent.
pub(crate) fn overdraws_once(provider: &impl Provider, keys: &[String; 5]) {
    for (taken, asked) in (1..).zip(pairs(keys)) {
        assert!(provider.peek_all(&asked).unwrap().is_allowed);
        let allowed = provider.take_all(&asked).unwrap();
        assert!(allowed.is_allowed && allowed.decisions[1].remaining() == 0, "{allowed:?}");
        assert_eq!(provider.left(&asked), [CAPACITY - taken, 0], "{asked:?}");
        for cost in [LARGE, 1, 0] {
            let [ordinary, postpaid] = &asked;
            let again = [ordinary.clone(), postpaid.costing(cost).postpaid()];
            for denied in [provider.take_all(&again).unwrap(), provider.peek_all(&again).unwrap()] {
                assert!(!denied.is_allowed && denied.decisions[0].is_allowed(), "{denied:?}");
                assert!(denied.decisions[1].retry_after().is_some_and(|wait| !wait.is_zero()), "{denied:?}");
            }
        }
        assert_eq!(provider.left(&asked), [CAPACITY - taken, 0], "{asked:?}");
    }
}

/// If an ordinary check denies, the postpaid one records nothing.
pub(crate) fn records_nothing_if_another_denies(provider: &impl Provider, keys: &[String; 5]) {
    for [ordinary, postpaid] in pairs(keys) {
        let asked = [ordinary.costing(CAPACITY + 1), postpaid];
        for denied in [provider.take_all(&asked).unwrap(), provider.take_all_with_receipts(&asked).unwrap()] {
            assert!(!denied.is_allowed && denied.receipts.is_empty(), "{denied:?}");
            assert!(denied.decisions[1].is_allowed(), "as if it had been the only one: {denied:?}");
        }
        assert_eq!(provider.left(&asked), [CAPACITY, CAPACITY], "{asked:?}");
    }
}

/// A receipt refunds all that a postpaid check recorded, once.
pub(crate) fn is_refunded_by_its_receipt(provider: &impl Provider, keys: &[String; 5]) {
    for asked in pairs(keys) {
        assert!(provider.take_all(&[asked[1].costing(2)]).unwrap().is_allowed);
        let reserved = provider.take_all_with_receipts(&asked).unwrap();
        assert!(reserved.is_allowed && reserved.receipts.iter().all(Option::is_some), "{reserved:?}");
        assert_eq!(provider.left(&asked), [CAPACITY - 1, 0], "{asked:?}");
        for _ in 0..2 {
            provider.refund_all(&asked, &reserved.receipts);
            assert_eq!(provider.left(&asked), [CAPACITY, CAPACITY - 2], "{asked:?}");
        }
    }
}
