//! Large states in Redis: as exact as small ones, with bounded size and time.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod lockstep;
mod size;

use trypema_testkit::blocking::connect;
use trypema_testkit::model::{
    AbsoluteModel, AbuseModel, AttemptLimit, SheddingLimit, SuppressedModel, Tier, WhileBlocked, WindowLimit,
};
use trypema_testkit::random::Random;
use trypema_testkit::redis::Server;

use lockstep::Lockstep;

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3_600 * SECOND_US;

/// The size of a bucket in a state, in bytes.
const BUCKET: i64 = 12;

fn stored_bytes(server: &Server, strategy: &str) -> i64 {
    let name = format!("wide:{{ann}}:{strategy}");
    server.control().unwrap().command(&["STRLEN", &name]).unwrap().integer().unwrap()
}

/// A window of 100 s in groups of 5 ms: 20,000 buckets.
fn wide(rate: f64) -> WindowLimit {
    WindowLimit { rate, window_s: 100, group_ms: 5 }
}

#[test]
fn twenty_thousand_buckets_and_back_answer_as_the_local_provider_does() {
    let server = Server::start().unwrap();
    let mut pair = Lockstep::<AbsoluteModel>::on(&connect(&server.url()));
    let (limit, tighter, wider) = (wide(220.0), wide(100.0), WindowLimit { window_s: 200, ..wide(250.0) });
    let mut random = Random::seeded(1);
    for step in 0..23_000 {
        pair.advance(5_000);
        if step % 10 == 0 {
            pair.take_with_receipt(&limit, 1);
        } else {
            pair.take(&limit, 1);
        }
        // Random operations as well, at several sizes and once the state has its full length.
        if matches!(step, 50..60 | 6_200..6_230 | 20_500..20_530 | 22_950..22_980) {
            pair.anything(&mut random, [&limit, &tighter, &wider]);
        }
    }
    assert!(stored_bytes(&server, "absolute") > 20_000 * BUCKET);
    // Shrinks the state again, in steps that empty it within about twenty calls.
    for _ in 0..40 {
        pair.advance(random.below(12) * SECOND_US);
        pair.anything(&mut random, [&limit, &tighter, &wider]);
        pair.take(&limit, 1);
    }
    pair.advance(300 * SECOND_US);
    pair.take(&limit, 1);
}

/// Tests every number of buckets before a pause: the fast path of the script must not read beyond the bytes
/// that it has loaded.
#[test]
fn a_pause_after_any_number_of_buckets_is_answered_as_the_local_provider_does() {
    let server = Server::start().unwrap();
    let connection = connect(&server.url());
    let limit = WindowLimit { rate: 1_000.0, window_s: 10, group_ms: 10 };
    let mut pair = Lockstep::<AbsoluteModel>::on(&connection);
    for buckets in 60..160 {
        for _ in 0..buckets {
            pair.advance(10_000);
            pair.take(&limit, 1);
        }
        // All buckets but the last are a window old.
        pair.advance(10 * SECOND_US - 10_000);
        pair.take(&limit, 1);
        pair.advance(20 * SECOND_US);
    }
}

#[test]
fn two_long_series_of_suppressed_answer_as_the_local_provider_does() {
    let server = Server::start().unwrap();
    let mut pair = Lockstep::<SuppressedModel>::on(&connect(&server.url()));
    let shedding = |rate| SheddingLimit { soft: wide(rate), hard_limit_factor: 2.0 };
    let (limit, tighter, wider) = (shedding(70.0), shedding(40.0), shedding(150.0));
    let mut random = Random::seeded(2);
    for step in 0..21_500 {
        pair.advance(5_000);
        if step % 10 == 0 {
            pair.take_with_receipt(&limit, 1);
        } else {
            pair.take(&limit, 1);
        }
        if matches!(step, 50..60 | 6_200..6_230 | 20_500..20_530) {
            pair.anything(&mut random, [&limit, &tighter, &wider]);
        }
    }
    assert!(stored_bytes(&server, "suppressed") > (20_000 + 6_000) * BUCKET);
    for _ in 0..40 {
        pair.advance(random.below(12) * SECOND_US);
        pair.anything(&mut random, [&limit, &tighter, &wider]);
        pair.take(&limit, 1);
    }
}

/// Counts beyond 48 bits need a wider encoding: compares the providers before such counts exist, while they
/// do, and afterwards.
#[test]
fn capacities_beyond_48_bits_answer_as_the_local_provider_does() {
    let server = Server::start().unwrap();
    let mut pair = Lockstep::<AbsoluteModel>::on(&connect(&server.url()));
    let huge = |rate| WindowLimit { rate, window_s: 366 * 86_400, group_ms: 1 };
    let (limit, tighter, wider) = (huge(1e8), huge(5e7), huge(9.9e7));
    let mut random = Random::seeded(3);
    for _ in 0..6 {
        for _ in 0..400 {
            pair.advance(random.below(6 * HOUR_US));
            let cost = match random.below(60) {
                0 => 1 << 48,
                1 => (1 << 48) - 1,
                2 => random.below(1 << 51),
                _ => random.below(1 << 38),
            };
            pair.take_with_receipt(&limit, cost);
            if random.once_in(8) {
                pair.anything(&mut random, [&limit, &tighter, &wider]);
            }
        }
        assert!(stored_bytes(&server, "absolute") > 300 * (BUCKET + 1), "buckets of the wider kind");
        pair.advance(random.below(300 * 24 * HOUR_US));
    }
}

#[test]
fn ten_thousand_attempts_answer_as_the_local_provider_does() {
    let server = Server::start().unwrap();
    let mut pair = Lockstep::<AbuseModel>::on(&connect(&server.url()));
    let tier = |threshold| Tier { window_us: HOUR_US, threshold, block_us: HOUR_US / 2 };
    let limit_of = |threshold| AttemptLimit {
        temp: tier(threshold),
        long: tier(10_000),
        while_blocked: WhileBlocked::Count,
    };
    let (limit, tighter, wider) = (limit_of(10_000), limit_of(9_000), limit_of(9_999));
    let mut random = Random::seeded(4);
    for _ in 0..10_200 {
        pair.advance(1_000);
        pair.take_with_receipt(&limit, 1);
    }
    assert!(stored_bytes(&server, "abuse") > 9_990 * BUCKET);
    for _ in 0..20 {
        pair.advance(1_000);
        pair.anything(&mut random, [&limit, &tighter, &wider]);
    }
    for _ in 0..30 {
        pair.advance(random.below(HOUR_US / 4));
        pair.anything(&mut random, [&limit, &tighter, &wider]);
        pair.take(&limit, 1);
    }
}
