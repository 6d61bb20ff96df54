//! A receipt refunds one take, once.

use trypema_testkit::differential::KEYS;
use trypema_testkit::random::Random;
use trypema_testkit::subject::{LocalStrategy, LocalSubject, Subject};

use super::for_every_strategy;

const LIMITS: u64 = 200;

/// Runs `law` under many random limits with a positive capacity.
fn under_many_limits<M: LocalStrategy>(law: impl Fn(&mut LocalSubject<M>, &M::Limit, u64)) {
    for seed in 0..LIMITS {
        let limit = M::random_limit(&mut Random::seeded(seed));
        let capacity = M::capacity(&limit);
        if capacity > 0 {
            law(&mut LocalSubject::default(), &limit, capacity);
        }
    }
}

fn a_repeated_receipt_changes_nothing<M: LocalStrategy>() {
    under_many_limits::<M>(|subject, limit, capacity| {
        let receipt = subject.take_with_receipt(KEYS[0], limit, capacity, 0).receipt.unwrap();
        assert_eq!(subject.refund(KEYS[1], limit, receipt), 0, "{limit:?}: another key's receipt");
        assert_eq!(subject.refund(KEYS[0], limit, receipt), capacity, "{limit:?}: the first time");
        subject.take(KEYS[0], limit, capacity);
        assert_eq!(subject.refund(KEYS[0], limit, receipt), 0, "{limit:?}: the second time");
        assert_eq!(
            subject.peek(KEYS[0], limit, 0).remaining,
            0,
            "{limit:?}: what was taken since stays taken"
        );
    });
}

for_every_strategy!(a_repeated_receipt_changes_nothing);

fn a_receipt_from_before_a_reset_gives_nothing_back<M: LocalStrategy>() {
    under_many_limits::<M>(|subject, limit, capacity| {
        let receipt = subject.take_with_receipt(KEYS[0], limit, capacity, 0).receipt.unwrap();
        subject.reset(KEYS[0]);
        subject.take(KEYS[0], limit, capacity);
        assert_eq!(
            subject.refund(KEYS[0], limit, receipt),
            0,
            "{limit:?}: the take was forgotten with the key"
        );
    });
}

for_every_strategy!(a_receipt_from_before_a_reset_gives_nothing_back);
