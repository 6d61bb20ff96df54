//! Tests that invariants allow exactly what is within them.

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

fn is_kept(invariant: &Invariant, journal: &KeyJournal) -> bool {
    invariant.violation_in(journal).is_none()
}

#[test]
fn sliding_counts_every_interval() {
    let invariant = Invariant::Sliding { capacity: 10, window_us: 100 };
    assert!(is_kept(&invariant, &journal(&[(0, 5), (50, 5), (100, 5), (150, 5)])));
    assert!(!is_kept(&invariant, &journal(&[(0, 5), (50, 5), (99, 1)])), "one interval of 100 holds eleven");
    assert!(!is_kept(&invariant, &journal(&[(0, 11)])));
}

#[test]
fn refilled_counts_what_came_in() {
    let invariant = Invariant::Refilled(vec![Refill { capacity: 10, refill_us: 100 }]);
    assert!(is_kept(&invariant, &journal(&[(0, 10), (50, 5), (60, 1)])));
    assert!(!is_kept(&invariant, &journal(&[(0, 10), (50, 5), (59, 1)])), "a microsecond early");
    assert!(is_kept(&invariant, &journal(&[(0, 1), (1_000, 10)])));
    assert!(!is_kept(&invariant, &journal(&[(0, 1), (1_000, 11)])), "more than full it never is");
}

#[test]
fn aligned_counts_from_multiples() {
    let invariant = Invariant::Aligned { limit: 10, window_us: 100 };
    assert!(is_kept(&invariant, &journal(&[(99, 10), (100, 10)])));
    assert!(!is_kept(&invariant, &journal(&[(100, 10), (199, 1)])));
}

#[test]
fn estimated_lets_the_window_before_fade() {
    let invariant = Invariant::Estimated { limit: 10, window_us: 100 };
    assert!(is_kept(&invariant, &journal(&[(0, 10), (150, 5)])));
    assert!(!is_kept(&invariant, &journal(&[(0, 10), (149, 5)])), "a microsecond early");
    assert!(is_kept(&invariant, &journal(&[(0, 10), (200, 10)])), "two windows ago is forgotten");
}

#[test]
fn held_counts_at_one_time_and_allows_no_lease() {
    let invariant = Invariant::Held { limit: 10, hold_us: 100 };
    assert!(is_kept(&invariant, &journal(&[(0, 5), (50, 5), (100, 5), (150, 5)])));
    assert!(
        !is_kept(&invariant, &journal(&[(0, 5), (50, 5), (99, 1)])),
        "a microsecond before the first expire"
    );
    let granted = |until_us| KeyJournal {
        grants: vec![Granted { at_us: 0, key: 0, limit: 0, units: 1, until_us }],
        ..journal(&[(0, 1)])
    };
    assert!(is_kept(&invariant, &granted(0)));
    assert!(!is_kept(&invariant, &granted(1)), "a lease");
}

#[test]
fn what_was_forgotten_is_allowed_once_and_only_around_it() {
    for invariant in [
        Invariant::Sliding { capacity: 10, window_us: 100 },
        Invariant::Refilled(vec![Refill { capacity: 10, refill_us: 100 }]),
        Invariant::Aligned { limit: 10, window_us: 100 },
        Invariant::Estimated { limit: 10, window_us: 100 },
        Invariant::Held { limit: 10, hold_us: 100 },
    ] {
        let again = journal(&[(10, 10), (10, 10)]);
        assert!(!is_kept(&invariant, &again), "{invariant:?}");
        assert!(is_kept(&invariant, &forgetting(10, 10, again.clone())), "{invariant:?}");
        assert!(!is_kept(&invariant, &forgetting(10, 9, again)), "{invariant:?}");
        let later = journal(&[(10, 10), (1_000_010, 11)]);
        assert!(!is_kept(&invariant, &forgetting(10, 10, later)), "{invariant:?}");
    }
}

#[test]
fn of_two_limits_the_one_in_use_counts() {
    let invariants = [10, 20].map(|capacity| Invariant::Sliding { capacity, window_us: 100 });
    let grant = |at_us, limit| Granted { at_us, key: 0, limit, units: 1, until_us: at_us };
    let granted = |limits: [usize; 2], admissions: &[(u64, u64)]| KeyJournal {
        grants: vec![grant(0, limits[0]), grant(1_000, limits[1])],
        ..journal(admissions)
    };
    let twenty_then_ten = [(0, 20), (1_000, 10)];
    assert_eq!(Invariant::any_violation_in(&invariants, &granted([1, 0], &twenty_then_ten)), None);
    assert!(Invariant::any_violation_in(&invariants, &granted([0, 1], &twenty_then_ten)).is_some());
    assert!(Invariant::any_violation_in(&invariants, &granted([1, 0], &[(0, 20), (1_000, 11)])).is_some());
}
