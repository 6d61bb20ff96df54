//! Tests that laws allow exactly what is within them.

use super::*;
use crate::simulator::fleet::journal::{Admission, Granted};

fn journal(admissions: &[(u64, u64)]) -> KeyJournal {
    KeyJournal {
        admissions: admissions
            .iter()
            .map(|(at_us, units)| Admission { at_us: *at_us, units: *units })
            .collect(),
        ..KeyJournal::default()
    }
}

fn forgetting(at_us: u64, units: u64, journal: KeyJournal) -> KeyJournal {
    KeyJournal { forgotten: vec![Forgotten { at_us, key: 0, units }], ..journal }
}

fn is_kept(law: &Law, journal: &KeyJournal) -> bool {
    law.broken_by(journal).is_none()
}

#[test]
fn sliding_counts_every_interval() {
    let law = Law::Sliding { capacity: 10, window_us: 100 };
    assert!(is_kept(&law, &journal(&[(0, 5), (50, 5), (100, 5), (150, 5)])));
    assert!(!is_kept(&law, &journal(&[(0, 5), (50, 5), (99, 1)])), "one interval of 100 holds eleven");
    assert!(!is_kept(&law, &journal(&[(0, 11)])));
}

#[test]
fn refilled_counts_what_came_in() {
    let law = Law::Refilled(vec![Refill { capacity: 10, refill_us: 100 }]);
    assert!(is_kept(&law, &journal(&[(0, 10), (50, 5), (60, 1)])));
    assert!(!is_kept(&law, &journal(&[(0, 10), (50, 5), (59, 1)])), "a microsecond early");
    assert!(is_kept(&law, &journal(&[(0, 1), (1_000, 10)])));
    assert!(!is_kept(&law, &journal(&[(0, 1), (1_000, 11)])), "more than full it never is");
}

#[test]
fn aligned_counts_from_multiples() {
    let law = Law::Aligned { limit: 10, window_us: 100 };
    assert!(is_kept(&law, &journal(&[(99, 10), (100, 10)])));
    assert!(!is_kept(&law, &journal(&[(100, 10), (199, 1)])));
}

#[test]
fn estimated_lets_the_window_before_fade() {
    let law = Law::Estimated { limit: 10, window_us: 100 };
    assert!(is_kept(&law, &journal(&[(0, 10), (150, 5)])));
    assert!(!is_kept(&law, &journal(&[(0, 10), (149, 5)])), "a microsecond early");
    assert!(is_kept(&law, &journal(&[(0, 10), (200, 10)])), "two windows ago is forgotten");
}

#[test]
fn held_counts_at_one_time_and_allows_no_lease() {
    let law = Law::Held { limit: 10, hold_us: 100 };
    assert!(is_kept(&law, &journal(&[(0, 5), (50, 5), (100, 5), (150, 5)])));
    assert!(!is_kept(&law, &journal(&[(0, 5), (50, 5), (99, 1)])), "a microsecond before the first expire");
    let granted = |until_us| KeyJournal {
        grants: vec![Granted { at_us: 0, key: 0, limit: 0, units: 1, until_us }],
        ..journal(&[(0, 1)])
    };
    assert!(is_kept(&law, &granted(0)));
    assert!(!is_kept(&law, &granted(1)), "a lease");
}

#[test]
fn what_was_forgotten_is_allowed_once_and_only_around_it() {
    for law in [
        Law::Sliding { capacity: 10, window_us: 100 },
        Law::Refilled(vec![Refill { capacity: 10, refill_us: 100 }]),
        Law::Aligned { limit: 10, window_us: 100 },
        Law::Estimated { limit: 10, window_us: 100 },
        Law::Held { limit: 10, hold_us: 100 },
    ] {
        let again = journal(&[(10, 10), (10, 10)]);
        assert!(!is_kept(&law, &again), "{law:?}");
        assert!(is_kept(&law, &forgetting(10, 10, again.clone())), "{law:?}");
        assert!(!is_kept(&law, &forgetting(10, 9, again)), "{law:?}");
        let later = journal(&[(10, 10), (1_000_010, 11)]);
        assert!(!is_kept(&law, &forgetting(10, 10, later)), "{law:?}");
    }
}

#[test]
fn of_two_limits_the_one_in_use_counts() {
    let laws = [10, 20].map(|capacity| Law::Sliding { capacity, window_us: 100 });
    let grant = |at_us, limit| Granted { at_us, key: 0, limit, units: 1, until_us: at_us };
    let granted = |limits: [usize; 2], admissions: &[(u64, u64)]| KeyJournal {
        grants: vec![grant(0, limits[0]), grant(1_000, limits[1])],
        ..journal(admissions)
    };
    let twenty_then_ten = [(0, 20), (1_000, 10)];
    assert_eq!(Law::any_broken_by(&laws, &granted([1, 0], &twenty_then_ten)), None);
    assert!(Law::any_broken_by(&laws, &granted([0, 1], &twenty_then_ten)).is_some());
    assert!(Law::any_broken_by(&laws, &granted([1, 0], &[(0, 20), (1_000, 11)])).is_some());
}
