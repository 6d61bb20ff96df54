use std::cell::Cell;
use std::time::Duration;

use trypema::{AbsoluteLimit, RateGroupSizeMs, RateLimit, RateLimiter, WindowSizeSeconds};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Simulates many users behind three instances, each with its own limiter.
fn crowd(seed: u64) -> Record {
    let clock = Arc::new(ManualClock::default());
    let limiters: Vec<RateLimiter> = (0..3)
        .map(|_| {
            let builder = RateLimiter::builder().clock(clock.clone());
            builder.build().unwrap()
        })
        .collect();
    let limit = AbsoluteLimit::new(
        RateLimit::try_from(2.0).unwrap(),
        WindowSizeSeconds::try_from(10).unwrap(),
        RateGroupSizeMs::try_from(10).unwrap(),
    );
    let load =
        Load { spacing: Spacing::Poisson, keys: Keys::Zipf { count: 20, exponent: 1.0 }, ..Load::even(40.0) };
    let mut simulation = Simulation::new(clock, seed);
    for limiter in &limiters {
        simulation.add_client(load, move |key| {
            let decision = limiter.local().absolute().take(key, &limit, 1);
            decision.is_allowed()
        });
    }
    simulation.run_for(MINUTE)
}

#[test]
fn the_same_seed_gives_the_same_record_and_another_does_not() {
    assert_eq!(crowd(5), crowd(5));
    assert_ne!(crowd(5), crowd(6));
}

#[test]
fn instances_with_limiters_of_their_own_admit_a_limit_each() {
    let record = crowd(1);
    for client in 0..3 {
        let hottest = &record.clients[client][0];
        assert_eq!(hottest.worst_window(10), 20);
    }
    assert!(record.of_key(0).worst_window(10) > 50);
}

#[test]
fn parts_add_up_to_the_total() {
    let record = crowd(2);
    let sum =
        |parts: &mut dyn Iterator<Item = Series>| parts.map(|part| part.admitted_at().len()).sum::<usize>();
    let total = record.total().admitted_at().len();
    assert!(total > 0);
    assert_eq!(sum(&mut (0..3).map(|client| record.of_client(client))), total);
    assert_eq!(sum(&mut (0..20).map(|key| record.of_key(key))), total);
    assert!(record.of_client(3).admitted_at().is_empty());
}

#[test]
fn calls_see_the_time_they_are_due() {
    let clock = Arc::new(ManualClock::default());
    let start = clock.now();
    let calls = Cell::new(0);
    let mut simulation = Simulation::new(clock.clone(), 1);
    simulation.add_client(Load::even(4.0), |_| {
        let expected = start + Duration::from_millis(250 * calls.get());
        assert_eq!(clock.now(), expected);
        calls.set(calls.get() + 1);
        calls.get() >= 3
    });
    let total = simulation.run_for(Duration::from_millis(1_500)).total();
    let tally = |admitted| Tally { offered: 4, admitted };
    assert_eq!(total.per_second(), [tally(2), tally(4)]);
    assert_eq!(calls.get(), 8);
}
