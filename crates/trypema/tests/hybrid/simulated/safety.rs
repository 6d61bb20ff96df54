//! Random fleets with faults: admissions exceed the limit at most by what the store itself lost.

use std::time::Duration;

use trypema::strategy::{Absolute, AbsoluteLimit};
use trypema_testkit::simulator::fleet::{Fleet, HasInvariant, LocalClock, Network, Offer, chaos};

/// The number of seeds in CI. `cargo xtask simulate hybrid --seeds N` runs more.
const SEEDS: u64 = 10_000;

/// The environment variable that selects a single seed.
const SEED: &str = "TRYPEMA_SEED";

#[test]
fn random_fleets_keep_the_law() {
    let only: Option<u64> = std::env::var(SEED).ok().map(|seed| seed.parse().unwrap());
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    let (mut admitted, mut admitted_here) = (0, 0);
    for seed in seeds {
        let played = chaos::play(seed);
        admitted += played.admitted as u64;
        admitted_here += played.admitted_here;
        if let Some(wrong) = played.wrong {
            panic!(
                "seed {seed}: {wrong}\nreplay it with\n  {SEED}={seed} cargo test -p trypema --test hybrid \
                 simulated::safety::random_fleets"
            );
        }
    }
    let is_leasing = admitted_here * 4 > admitted || only.is_some();
    assert!(is_leasing, "leases are hardly tried: {admitted_here} of {admitted} came out of one");
}

/// Checks that the safety check detects violations: on clocks that drift more than the allowed margin, leases
/// are spent for too long.
#[test]
fn clocks_beyond_the_provided_drift_are_caught() {
    let limit = AbsoluteLimit::per_window(100, Duration::from_secs(10)).unwrap();
    let broken_at = |gains_ppm: i64| {
        let slow = LocalClock { gains_ppm, ..LocalClock::PERFECT };
        let fleet = Fleet::<Absolute> { clocks: vec![slow], ..Fleet::new(limit) };
        // Takes a lease, spends the rest of it at the last moment, then takes as much as fits when the lease
        // leaves the window.
        let offer = |after_us| Offer { after_us, instance: 0, key: 0, cost: 1 };
        let (first, last, next) = (0..20, 0..40, 0..200);
        let offers = first.map(|n| offer(n * 50)).chain(last.map(|n| offer(150_000 + n * 50)));
        let offers = offers.chain(next.map(|n| offer(10_120_000 + n * 50)));
        let journal = fleet.network(Network::of_millis(0, 1)).run(offers);
        Absolute::invariant(&limit).violation_in(&journal.of_key(0))
    };
    assert_eq!(broken_at(-1_000), None);
    assert_ne!(broken_at(-500_000), None);
}
