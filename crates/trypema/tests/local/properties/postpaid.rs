//! The bounds of postpaid takes: only the last admission of an interval can exceed the limit.

use trypema_testkit::differential::{Changes, Step, Verb, Walk};
use trypema_testkit::model::{
    AbsoluteModel, Bucket, ConcurrencyModel, FixedWindowModel, SlidingWindowModel, SuppressedModel,
    TokenBucketModel,
};
use trypema_testkit::random::Random;
use trypema_testkit::subject::{LocalStrategy, LocalSubject};

const TRACES: u64 = 400;

/// The largest cost, so that overdrafts are paid within a trace.
const MOST: u64 = 1_000;

/// Admitted units, by elapsed time: a clock that steps back adds none.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    passed_us: u64,
    now_us: u64,
    units: u64,
    is_postpaid: bool,
}

impl Admitted {
    /// The most units in an interval that ends with this admission, if a limit allows `limit` of them.
    fn bound(&self, limit: u128) -> u128 {
        if self.is_postpaid && limit > 0 { limit - 1 + u128::from(self.units) } else { limit }
    }
}

/// Plays ordinary and postpaid takes under one limit. Returns the admissions of one key.
fn admitted<M: LocalStrategy>(seed: u64, changes: Changes) -> (M::Limit, Vec<Admitted>) {
    let mut subject = LocalSubject::<M>::default();
    let mut walk = Walk::<M>::changing(seed, changes);
    let mut random = Random::seeded(seed);
    let mut limit = None;
    let (mut passed_us, mut last_us) = (0, u64::MAX);
    let mut list = Vec::new();
    while let Some(step) = walk.next_step() {
        passed_us += step.now_us.saturating_sub(last_us);
        last_us = step.now_us;
        let limit = limit.get_or_insert_with(|| step.limit.clone()).clone();
        let units = match step.verb {
            Verb::Take(cost) | Verb::Peek(cost) | Verb::TakeUpTo(cost) => cost.min(MOST),
            _ => random.below(M::capacity(&limit).min(MOST) * 3 + 2),
        };
        let is_postpaid = random.once_in(2);
        let verb = if is_postpaid { Verb::TakePostpaid(units) } else { Verb::Take(units) };
        let step = Step { limit, key: "ann", verb, ..step };
        let reply = step.play(&mut subject);
        if units > 0 && reply.answer().is_some_and(|answer| answer.is_allowed) {
            list.push(Admitted { passed_us, now_us: step.now_us, units, is_postpaid });
        }
        walk.note(&step, &reply);
    }
    (limit.unwrap(), list)
}

/// Asserts the bound of every interval shorter than `window_us` that starts and ends with an admission.
fn assert_bounded(window_us: u64, limit: u64, list: &[Admitted]) {
    for (at, first) in list.iter().enumerate() {
        let mut units = 0;
        for last in list[at..].iter().take_while(|last| last.passed_us - first.passed_us < window_us) {
            units += u128::from(last.units);
            assert!(units <= last.bound(limit.into()), "{units} of {limit} up to {last:?}: {list:?}");
        }
    }
}

#[test]
fn absolute_and_suppressed_are_exceeded_by_the_last_of_a_window_only() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<AbsoluteModel>(seed, Changes::ClockAndLimits);
        assert_bounded(limit.window_s * 1_000_000, limit.capacity(), &list);
        let (limit, list) = admitted::<SuppressedModel>(seed, Changes::ClockAndLimits);
        assert_bounded(limit.soft.window_s * 1_000_000, limit.hard(), &list);
    }
}

#[test]
fn concurrency_is_exceeded_by_the_last_holder_only() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<ConcurrencyModel>(seed, Changes::ClockAndLimits);
        assert_bounded(limit.hold_us, limit.limit, &list);
    }
}

#[test]
fn token_buckets_are_exceeded_by_the_last_of_an_interval_only() {
    for seed in 0..TRACES {
        let (limits, list) = admitted::<TokenBucketModel>(seed, Changes::ClockAndLimits);
        for Bucket { capacity, refill_us } in limits {
            for (at, first) in list.iter().enumerate() {
                let mut units = 0;
                for last in &list[at..] {
                    units += u128::from(last.units);
                    let came_in = u128::from(capacity) * u128::from(last.passed_us - first.passed_us);
                    let most = last.bound(u128::from(capacity) + came_in / u128::from(refill_us));
                    assert!(units <= most, "seed {seed}: {units} of {most} up to {last:?}: {list:?}");
                }
            }
        }
    }
}

#[test]
fn fixed_windows_are_exceeded_by_their_last_call_only() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<FixedWindowModel>(seed, Changes::Forgetting);
        for same in list.chunk_by(|one, other| one.now_us / limit.window_us == other.now_us / limit.window_us)
        {
            assert_bounded(u64::MAX, limit.limit, same);
        }
    }
}

#[test]
fn sliding_windows_are_exceeded_by_the_call_that_overdraws_only() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<SlidingWindowModel>(seed, Changes::Forgetting);
        for same in list.chunk_by(|one, other| one.now_us / limit.window_us == other.now_us / limit.window_us)
        {
            assert_bounded(u64::MAX, limit.limit, same);
        }
    }
}
