//! Refunds after changes of the limit: what a refund leaves is never less than what the other calls spent.
//!
//! The oracle is a second state that records only the other calls that were admitted. The first state must never have
//! more left, at any time and under any of the limits. Another call precedes each one that is refunded later, so that
//! both states are in the same windows.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::time::Duration;

use trypema::clock::Timestamp;
use trypema::strategy::{
    Absolute, Call, FixedWindow, Recorded, Refund, SlidingWindow, Strategy, TokenBucket,
};
use trypema::{
    AbsoluteLimit, CalendarStart, CalendarWindow, FixedWindowLimit, RateGroupSizeMs, RateLimit,
    SlidingWindowLimit, TokenBucketLimits, TokenLimit, WindowSizeSeconds,
};
use trypema_testkit::random::Random;

const SEEDS: u64 = 4_000;
const STEPS: u64 = 30;

/// On a multiple of ten minutes.
const START_US: u64 = 1_600_000_200_000_000;

/// Pauses between calls, in microseconds.
const PAUSES: [u64; 12] = [
    0,
    0,
    1,
    400_000,
    1_000_000,
    1_500_000,
    4_000_000,
    10_000_000,
    35_000_000,
    90_000_000,
    1_800_000_000,
    40_000_000_000,
];

struct Taken {
    units: u64,
    recorded: Recorded,
}

/// A state, and the same without the units that are to be refunded.
struct Scene<S: Strategy> {
    state: S::State,
    others: S::State,
    taken: Vec<Taken>,
    refunded: u64,
}

fn take<S: Strategy>(limit: &S::Limit, state: &mut S::State, call: Call) -> Option<Taken> {
    let outcome = S::decide(limit, state, call);
    S::commit(limit, state, call, &outcome);
    let recorded = Recorded { at: S::recorded_at(limit, &outcome, call), origin: S::origin(state) };
    let units = S::recorded_units(limit, &outcome, call);
    (S::is_admitted(&outcome) && call.cost > 0).then_some(Taken { units, recorded })
}

/// Writes a state without counting anything, as a take does.
fn touch<S: Strategy>(limit: &S::Limit, state: &mut S::State, now: Timestamp) {
    if !matches!(S::NAME, FixedWindow::NAME | SlidingWindow::NAME) {
        return forget::<S>(limit, state, now);
    }
    if let Some(Taken { units, recorded }) = take::<S>(limit, state, Call::new(now, 1).debit()) {
        let refund = Refund { now, units, recorded: Some(recorded) };
        assert_eq!(S::refund(limit, state, refund), units, "{} refunds at once", S::NAME);
    }
}

/// Writes a state as a refund does. It is no change for windows.
fn forget<S: Strategy>(limit: &S::Limit, state: &mut S::State, now: Timestamp) {
    S::refund(limit, state, Refund { now, units: 0, recorded: None });
}

/// Denies a call: a state from the future is repaired then.
fn deny<S: Strategy>(limit: &S::Limit, state: &mut S::State, now: Timestamp) {
    assert!(take::<S>(limit, state, Call::new(now, u64::MAX)).is_none());
}

impl<S: Strategy> Scene<S> {
    fn play(&mut self, random: &mut Random, limit: &S::Limit, now: Timestamp) -> String {
        let cost = random.pick(&[1, 2, 7, 20, 50, 100]);
        match random.below(8) {
            0..=3 => format!("another takes {cost}: {}", self.take_by_another(limit, now, cost)),
            4 | 5 => {
                let stamp = now + Duration::from_micros(random.pick(&[0, 0, 0, 500_000]));
                if !self.take_by_another(limit, now, 1) {
                    return "nothing is left".to_owned();
                }
                let taken = take::<S>(limit, &mut self.state, Call::new(now, cost).with_stamp(stamp));
                match taken.is_some() {
                    true => touch::<S>(limit, &mut self.others, now),
                    false => deny::<S>(limit, &mut self.others, now),
                }
                let told = format!("takes {cost}: {:?}", taken.as_ref().map(|taken| taken.recorded));
                self.taken.extend(taken);
                told
            }
            _ => {
                let count = self.taken.len() as u64;
                if count == 0 {
                    return String::new();
                }
                let Taken { units, recorded } = self.taken.swap_remove(random.below(count) as usize);
                // As every provider does.
                if recorded.at.as_micros() + S::retention_us(limit) <= now.as_micros() {
                    return "too late".to_owned();
                }
                // The rest was spent, and stays counted: that is no less than what the oracle counts.
                let units = if random.once_in(3) { units / 2 } else { units };
                let refund = Refund { now, units, recorded: Some(recorded) };
                let before = format!("{:?}", self.state);
                let refunded = S::refund(limit, &mut self.state, refund);
                self.refunded += refunded;
                if before != format!("{:?}", self.state) {
                    forget::<S>(limit, &mut self.others, now);
                }
                format!("{units} of {recorded:?} are refunded: {refunded}")
            }
        }
    }

    /// Takes for another caller. Returns whether it was admitted.
    fn take_by_another(&mut self, limit: &S::Limit, now: Timestamp, cost: u64) -> bool {
        let call = Call::new(now, cost);
        let is_taken = take::<S>(limit, &mut self.state, call).is_some();
        match is_taken {
            true => drop(take::<S>(limit, &mut self.others, call.debit())),
            false => deny::<S>(limit, &mut self.others, now),
        }
        is_taken
    }

    /// Asserts that no limit has more left than without the refunded calls, now and later.
    fn check(&self, limits: &[S::Limit], now: Timestamp) -> Result<(), String> {
        for limit in limits {
            for ahead_us in [0, 1, 700_000, 3_000_000, 20_000_000, 1_000_000_000] {
                let call = Call::new(now + Duration::from_micros(ahead_us), 1_000_000);
                let (left, most) =
                    (S::available(limit, &self.state, call), S::available(limit, &self.others, call));
                if left > most {
                    return Err(format!("{left} are left under {limit:?} after {ahead_us} us, not {most}"));
                }
            }
        }
        Ok(())
    }
}

fn leaves_what_others_spent<S: Strategy>(limits: &[S::Limit]) {
    let mut refunded = 0;
    for seed in 0..SEEDS {
        let mut random = Random::seeded(seed);
        let mut scene = Scene::<S> {
            state: S::State::default(),
            others: S::State::default(),
            taken: Vec::new(),
            refunded: 0,
        };
        let mut played = String::new();
        let (mut now, mut limit) = (START_US + random.below(5_000_000_000), &limits[0]);
        for _ in 0..STEPS {
            now += random.pick(&PAUSES) * random.below(2);
            if random.once_in(4) {
                limit = &limits[random.below(limits.len() as u64) as usize];
            }
            let at = Timestamp::from_micros(now);
            let told = scene.play(&mut random, limit, at);
            writeln!(played, "{now} {told} under {limit:?}").unwrap();
            if let Err(more) = scene.check(limits, at) {
                panic!("{} seed {seed}: {more}:\n{played}{:?}\n{:?}", S::NAME, scene.state, scene.others);
            }
        }
        refunded += scene.refunded;
    }
    assert!(refunded > SEEDS, "only {refunded} units were refunded");
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn fixed_windows() {
    let fixed = |limit, seconds| FixedWindowLimit::new(limit, seconds * SECOND).unwrap();
    leaves_what_others_spent::<FixedWindow>(&[
        fixed(100, 10),
        fixed(60, 10),
        fixed(100, 3_600),
        fixed(100, 3),
    ]);
}

#[test]
fn calendar_windows() {
    let days = |limit, zone| {
        let window = CalendarWindow::new(zone, CalendarStart::Day { hour: 0, minute: 0 }).unwrap();
        FixedWindowLimit::calendar(limit, window).unwrap()
    };
    let hours = FixedWindowLimit::new(100, 3_600 * SECOND).unwrap();
    leaves_what_others_spent::<FixedWindow>(&[
        days(100, "Europe/Berlin"),
        days(100, "UTC"),
        days(80, "Asia/Tokyo"),
        hours,
    ]);
}

#[test]
fn sliding_windows() {
    let sliding = |limit, seconds| SlidingWindowLimit::new(limit, seconds * SECOND).unwrap();
    leaves_what_others_spent::<SlidingWindow>(&[
        sliding(100, 10),
        sliding(60, 10),
        sliding(100, 20),
        sliding(100, 3),
        sliding(100, 3_600),
    ]);
}

#[test]
fn token_buckets() {
    let bucket = |capacity, seconds| TokenLimit::new(capacity, seconds * SECOND).unwrap();
    leaves_what_others_spent::<TokenBucket>(&[
        bucket(100, 100).into(),
        bucket(20, 20).into(),
        bucket(100, 3_600).into(),
        // The same unit, refilled at other rates.
        bucket(97, 30).into(),
        bucket(89, 30).into(),
        TokenBucketLimits::new([bucket(100, 100), bucket(50, 10)]).unwrap(),
        TokenBucketLimits::new([bucket(50, 10), bucket(100, 100)]).unwrap(),
    ]);
}

#[test]
fn absolute() {
    let absolute = |units: u32, seconds: u32| {
        AbsoluteLimit::new(
            RateLimit::try_from(f64::from(units) / f64::from(seconds)).unwrap(),
            WindowSizeSeconds::try_from(u64::from(seconds)).unwrap(),
            RateGroupSizeMs::try_from(100).unwrap(),
        )
    };
    let limits = [absolute(100, 10), absolute(60, 10), absolute(100, 40), absolute(100, 2)];
    leaves_what_others_spent::<Absolute>(&limits);
}
