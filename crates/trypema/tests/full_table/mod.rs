//! A concurrency limit whose key has as many holders as a key may have, on any provider.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::time::Duration;

use trypema::ConcurrencyLimit;
use trypema::clock::ManualClock;
use trypema::strategy::Concurrency;
use trypema_testkit::verbs::Verbs;

/// The maximum number of holders of a key, whatever its limit.
const HOLDERS: u64 = 4_096;

/// Many more units than holders.
const UNITS: u64 = 1_000_000;

const HOLD: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_micros(1);

/// Fills the table of the key `ann`, and shows that nothing but a debit enters it then, and that debits do not
/// lengthen it. `entries` returns the number of its entries, if the provider shows it.
pub(crate) fn is_bounded<V: Verbs<Concurrency>>(
    limiter: &V,
    clock: &ManualClock,
    entries: impl Fn() -> Option<u64>,
) {
    let limit = ConcurrencyLimit::new(UNITS, HOLD).unwrap();
    let take = |cost| limiter.take("ann", &limit, cost);
    for holder in 0..HOLDERS {
        assert!(take(1).is_allowed(), "holder {holder}");
        clock.advance(TICK);
    }
    assert!(entries().is_none_or(|entries| entries == HOLDERS));

    let denied = take(1);
    assert_eq!((denied.is_allowed(), denied.remaining()), (false, 0));
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(limiter.take_up_to("ann", &limit, 5).units, 0);
    assert!(!limiter.take_postpaid("ann", &limit, 5).is_allowed());
    assert_eq!(take(UNITS + 1).retry_after(), None);
    assert!(take(0).is_allowed());

    for _ in 0..50 {
        clock.advance(TICK);
        let debited = limiter.debit("ann", &limit, 2);
        assert!(debited.is_allowed());
        assert_eq!((debited.remaining(), debited.reset_after()), (0, HOLD), "it expires like any other");
    }
    assert!(entries().is_none_or(|entries| entries == HOLDERS), "{:?} entries", entries());

    // One microsecond before the first holder expires, and when it does.
    clock.advance(HOLD - (HOLDERS as u32 + 50 + 1) * TICK);
    assert!(!take(1).is_allowed());
    clock.advance(TICK);
    assert!(take(1).is_allowed());
    assert_eq!(limiter.refund_units("ann", &limit, UNITS), HOLDERS - 1 + 100 + 1, "no unit was lost");
    assert_eq!(take(0).remaining(), UNITS);
}
