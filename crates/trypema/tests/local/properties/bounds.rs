//! The bounds on admissions of each strategy, checked over all pairs of admitted calls.

use trypema_testkit::differential::{Changes, Reply, Step, Verb, Walk};
use trypema_testkit::model::{
    AbsoluteModel, AlignedLimit, Bucket, ConcurrencyModel, FixedWindowModel, HoldLimit, SheddingLimit,
    SlidingWindowModel, SuppressedModel, TokenBucketModel, WindowLimit,
};
use trypema_testkit::random::Random;
use trypema_testkit::subject::{Detail, LocalStrategy, LocalSubject, Subject};

const TRACES: u64 = 400;

/// Admitted units, by elapsed time: a clock that steps back adds none.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    passed_us: u64,
    now_us: u64,
    units: u64,
}

/// Plays takes only, under one limit. Returns the admissions of one key.
fn admitted<M: LocalStrategy>(seed: u64, changes: Changes) -> (M::Limit, Vec<Admitted>) {
    let mut subject = LocalSubject::<M>::default();
    let mut walk = Walk::<M>::changing(seed, changes);
    let mut limit = None;
    let (mut passed_us, mut last_us) = (0, u64::MAX);
    let mut list = Vec::new();
    while let Some(step) = walk.next_step() {
        passed_us += step.now_us.saturating_sub(last_us);
        last_us = step.now_us;
        let limit = limit.get_or_insert_with(|| step.limit.clone()).clone();
        let cost = match step.verb {
            Verb::Take(cost) | Verb::Peek(cost) | Verb::TakeUpTo(cost) | Verb::RefundUnits(cost) => cost,
            Verb::Reserve { cost, .. } => cost,
            Verb::TakePostpaid(cost) | Verb::ReservePostpaid(cost) | Verb::Debit(cost) => cost,
            Verb::Refund(_) | Verb::Reset | Verb::Forget => 1,
        };
        let step = Step { limit, key: "ann", verb: Verb::Take(cost), ..step };
        let reply = step.play(&mut subject);
        if reply.answer().is_some_and(|answer| answer.is_allowed) {
            list.push(Admitted { passed_us, now_us: step.now_us, units: cost });
        }
        walk.note(&step, &reply);
    }
    (limit.unwrap(), list)
}

/// The largest number of units admitted in any interval of `window_us`.
fn most_in(window_us: u64, list: &[Admitted]) -> u64 {
    let from = |first: &Admitted| {
        let later = list.iter().filter(move |other| other.passed_us >= first.passed_us);
        let within = later.take_while(|other| other.passed_us - first.passed_us < window_us);
        within.map(|other| other.units).sum()
    };
    list.iter().map(from).max().unwrap_or(0)
}

#[test]
fn absolute_admits_its_capacity_in_any_window() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<AbsoluteModel>(seed, Changes::ClockAndLimits);
        let WindowLimit { window_s, .. } = limit;
        let most = most_in(window_s * 1_000_000, &list);
        assert!(most <= limit.capacity(), "seed {seed}: {most} under {limit:?}: {list:?}");
    }
}

#[test]
fn suppressed_never_passes_its_hard_limit() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<SuppressedModel>(seed, Changes::ClockAndLimits);
        let most = most_in(limit.soft.window_s * 1_000_000, &list);
        assert!(most <= limit.hard(), "seed {seed}: {most} under {limit:?}: {list:?}");
    }
}

#[test]
fn token_buckets_admit_what_they_held_and_what_came_in() {
    for seed in 0..TRACES {
        let (limits, list) = admitted::<TokenBucketModel>(seed, Changes::ClockAndLimits);
        for Bucket { capacity, refill_us } in limits {
            for (at, first) in list.iter().enumerate() {
                let mut units = 0;
                for last in &list[at..] {
                    units += u128::from(last.units);
                    let came_in = u128::from(capacity) * u128::from(last.passed_us - first.passed_us);
                    let most = u128::from(capacity) + came_in / u128::from(refill_us);
                    assert!(
                        units <= most,
                        "seed {seed}: {units} of {most} under {capacity} per {refill_us} µs: {list:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn fixed_windows_admit_their_limit_per_aligned_window() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<FixedWindowModel>(seed, Changes::Forgetting);
        let window = |admitted: &Admitted| admitted.now_us / limit.window_us;
        for first in &list {
            let same = list.iter().filter(|other| window(other) == window(first));
            let units: u64 = same.map(|other| other.units).sum();
            assert!(units <= limit.limit, "seed {seed}: {units} under {limit:?}: {list:?}");
        }
    }
}

#[test]
fn sliding_windows_keep_their_estimate_within_the_limit() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<SlidingWindowModel>(seed, Changes::Forgetting);
        for at in 0..list.len() {
            let estimate = estimate(&limit, &list[..=at]);
            assert!(estimate <= limit.limit as f64, "seed {seed}: {estimate} under {limit:?}: {list:?}");
        }
    }
}

/// Nobody releases anything here, so what is admitted within one hold is held at one time.
#[test]
fn concurrency_holds_its_limit_at_any_time() {
    for seed in 0..TRACES {
        let (limit, list) = admitted::<ConcurrencyModel>(seed, Changes::ClockAndLimits);
        let most = most_in(limit.hold_us, &list);
        assert!(most <= limit.limit, "seed {seed}: {most} under {limit:?}: {list:?}");
    }
}

/// Units that a holder took and has not released.
struct Holder {
    receipt: usize,
    units: u64,
    until_us: u64,
}

#[test]
fn concurrency_holds_its_limit_whoever_releases() {
    for seed in 0..TRACES {
        let mut random = Random::seeded(seed);
        let limit = HoldLimit { limit: random.between(1, 12), hold_us: random.pick(&[2, 100, 60_000_000]) };
        let mut subject = LocalSubject::<ConcurrencyModel>::default();
        let (mut now_us, mut holders) = (1_600_000_000_000_000, Vec::<Holder>::new());
        for step in 0..200 {
            now_us += random.pick(&[0, 0, 1, limit.hold_us / 3]);
            subject.set_clock(now_us);
            if !holders.is_empty() && random.once_in(3) {
                let holder = holders.swap_remove(random.below(holders.len() as u64) as usize);
                let released = subject.refund("ann", &limit, holder.receipt);
                let expected = if holder.until_us > now_us { holder.units } else { 0 };
                assert_eq!(
                    released, expected,
                    "seed {seed}, step {step}: at {now_us} until {}",
                    holder.until_us
                );
                continue;
            }
            let units = random.between(1, limit.limit + 1);
            if let Some(receipt) = subject.take_with_receipt("ann", &limit, units, 0).receipt {
                holders.push(Holder { receipt, units, until_us: now_us + limit.hold_us });
            }
            let held: u64 = holders.iter().filter(|one| one.until_us > now_us).map(|one| one.units).sum();
            assert!(held <= limit.limit, "seed {seed}, step {step}: {held} are held under {limit:?}");
            let usage = subject.peek("ann", &limit, 0);
            assert_eq!(usage.remaining, limit.limit - held, "seed {seed}, step {step}: under {limit:?}");
        }
    }
}

/// The sliding window estimate directly after the last entry of `list`, without rounding.
fn estimate(limit: &AlignedLimit, list: &[Admitted]) -> f64 {
    let now_us = list.last().map_or(0, |last| last.now_us);
    let window = now_us / limit.window_us;
    let counted_in = |which: u64| -> u64 {
        let inside = list.iter().filter(|admitted| admitted.now_us / limit.window_us == which);
        inside.map(|admitted| admitted.units).sum()
    };
    let previous = if window == 0 { 0 } else { counted_in(window - 1) };
    let elapsed_share = (now_us % limit.window_us) as f64 / limit.window_us as f64;
    previous as f64 * (1.0 - elapsed_share) + counted_in(window) as f64
}

#[test]
fn suppressed_with_factor_one_equals_absolute() {
    for seed in 0..TRACES {
        let mut absolute = LocalSubject::<AbsoluteModel>::default();
        let mut suppressed = LocalSubject::<SuppressedModel>::default();
        let mut walk = Walk::<AbsoluteModel>::new(seed);
        while let Some(step) = walk.next_step() {
            let Step { now_us, limit, key, verb } = step.clone();
            let twin =
                Step { now_us, limit: SheddingLimit { soft: limit, hard_limit_factor: 1.0 }, key, verb };
            let expected = step.play(&mut absolute);
            let actual = twin.play(&mut suppressed);
            assert_eq!(undrawn(actual), expected, "seed {seed}: {step}");
            walk.note(&step, &expected);
        }
    }
}

/// Converts a reply of the suppressed strategy to one of the absolute strategy, unless it was decided by
/// chance.
fn undrawn(mut reply: Reply) -> Reply {
    let answer = match &mut reply {
        Reply::Answer(answer) => answer,
        Reply::UpTo(up_to) => &mut up_to.answer,
        Reply::Reserved(reserved) => &mut reserved.answer,
        Reply::GivenBack(_) | Reply::Done => return reply,
    };
    if answer.detail == (Detail::Suppressed { factor: None }) {
        answer.detail = Detail::Plain;
    }
    reply
}
