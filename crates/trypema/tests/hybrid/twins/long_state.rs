//! Leases of a key whose state has some hundred buckets, and is changed in place.

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::strategy::{LeaseParams, LeasedUnits};
use trypema_testkit::blocking::{connect, limiter};
use trypema_testkit::model::{AbsoluteModel, WindowLimit};
use trypema_testkit::random::Random;
use trypema_testkit::redis::Server;

use super::Original;
use super::mirror::Mirror;
use super::steps::{From, Step, Verb};

const STEPS: usize = 6_000;
const START_US: u64 = 1_600_000_000_000_000;

/// Up to some 200 buckets of 12 bytes.
const LIMIT: WindowLimit = WindowLimit { rate: 1_500.0, window_s: 10, group_ms: 10 };

/// Mostly a lease, which gives back something of one of those before it.
fn verb(random: &mut Random, granted: &[LeasedUnits]) -> Verb {
    if random.once_in(8) {
        return Verb::Take(random.below(3));
    }
    let newest = granted.iter().rev().take(30).nth(random.below(4) as usize * random.below(10) as usize);
    let back = newest.map_or_else(LeasedUnits::default, |back| LeasedUnits {
        units: random.below(back.units + 2),
        ..*back
    });
    let (need, want, length_us) = (random.below(2), random.below(80), random.below(125_000));
    let from = From { instance: random.below(3), live_for_us: 3_000_000 };
    Verb::Lease { ask: LeaseParams { need, want, length_us, unspent: back, reported: 0 }, from }
}

/// Mostly a few milliseconds; at times much of the window, or more than all of it.
fn pause_us(random: &mut Random) -> u64 {
    match random.below(600) {
        0 => random.below(30_000_000),
        1..4 => random.below(9_000_000),
        4..20 => random.below(1_000_000),
        _ => random.below(50_000),
    }
}

fn play(server: &Server, limits: &RateLimiter, clock: &ManualClock) {
    let strategy = std::marker::PhantomData;
    let mut original =
        Original::<AbsoluteModel> { clock, limits, receipts: Vec::new(), is_reset: false, strategy };
    let mut mirror = Mirror::<AbsoluteModel>::default();
    let (mut random, mut now_us, mut longest) = (Random::seeded(6), START_US, 0);
    let mut control = server.control().unwrap();
    for number in 0..STEPS {
        now_us += pause_us(&mut random);
        let step = Step { now_us, limit: LIMIT, verb: verb(&mut random, &mirror.granted) };
        let actual = original.play("long", &step);
        assert_eq!(actual, mirror.play(&step, false), "step {number}: {step}");
        let bytes = control.command(&["STRLEN", "trypema:{long}:absolute"]).unwrap().integer();
        longest = longest.max(bytes.unwrap());
    }
    assert!(longest > 2_000, "the state had {longest} bytes at most");
}

#[test]
fn leases_of_a_long_state() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let limits = limiter(&connect(&server.url()), "trypema", &clock).build().unwrap();
    play(&server, &limits, &clock);
}
