//! Leased units may be spent at any time until they are counted. No limit is exceeded, whenever that is.

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::{Clock, ManualClock};
use trypema_testkit::model::{AbsoluteModel, Bucket, FixedWindowModel, Model, TokenBucketModel};
use trypema_testkit::random::Random;
use trypema_testkit::subject::LocalStrategy;

const TRACES: u64 = 500;
const STEPS: u64 = 40;

/// Units that a holder may spend between two times, both inclusive.
#[derive(Debug, Clone, Copy)]
struct Lease {
    granted_us: u64,
    until_us: u64,
    units: u64,
}

/// Takes leases of all durations, some longer than the limit's history.
fn leases<M: LocalStrategy>(limit: &M::Limit, random: &mut Random) -> Vec<Lease> {
    let clock = Arc::new(ManualClock::default());
    let limits = RateLimiter::builder().clock(clock.clone()).build().unwrap();
    let limiter = limits.local().limiter::<M::Strategy>();
    let core = M::limit(limit);
    let longest_us = M::spans_us(limit).into_iter().max().unwrap();
    let mut list = Vec::new();
    for _ in 0..STEPS {
        let forward_us = random.pick(&[0, 1, longest_us / 7, longest_us / 2, longest_us]);
        clock.advance(Duration::from_micros(random.below(forward_us + 1)));
        let lease_us = random.pick(&[0, 1, longest_us / 10, longest_us, 3 * longest_us]);
        let cost = random.between(1, M::capacity(limit).max(1));
        let reservation = limiter.take_with_receipt_for("ann", &core, cost, Duration::from_micros(lease_us));
        if let Some(receipt) = reservation.receipt {
            let granted_us = clock.now().as_micros();
            // Without a lease, units are spent immediately. A token bucket then dates the receipt by the time
            // at which those units are refilled.
            let until_us = if lease_us == 0 { granted_us } else { receipt.recorded_at().as_micros() };
            list.push(Lease { granted_us, until_us, units: receipt.units() });
        }
    }
    list
}

/// The largest number of units that can be spent from `first_us` to `last_us`, both inclusive.
fn most_between(first_us: u64, last_us: u64, list: &[Lease]) -> u64 {
    let touching = list.iter().filter(|lease| lease.granted_us <= last_us && lease.until_us >= first_us);
    touching.map(|lease| lease.units).sum()
}

#[test]
fn absolute_leases_never_pass_the_capacity() {
    for seed in 0..TRACES {
        let mut random = Random::seeded(seed);
        let limit = AbsoluteModel::random_limit(&mut random);
        let list = leases::<AbsoluteModel>(&limit, &mut random);
        for Lease { until_us, .. } in &list {
            let most = most_between(*until_us, until_us + limit.window_s * 1_000_000 - 1, &list);
            assert!(
                most <= limit.capacity(),
                "seed {seed}: {most} after {until_us} under {limit:?}: {list:?}"
            );
        }
    }
}

#[test]
fn token_bucket_leases_never_pass_what_came_in() {
    for seed in 0..TRACES {
        let mut random = Random::seeded(seed);
        let limits = TokenBucketModel::random_limit(&mut random);
        let list = leases::<TokenBucketModel>(&limits, &mut random);
        let starts = list.iter().flat_map(|lease| [lease.granted_us, lease.until_us]);
        for first_us in starts {
            for last_us in list.iter().map(|lease| lease.granted_us).filter(|last_us| *last_us >= first_us) {
                let most = u128::from(most_between(first_us, last_us, &list));
                for Bucket { capacity, refill_us } in &limits {
                    let came_in =
                        u128::from(*capacity) * u128::from(last_us - first_us) / u128::from(*refill_us);
                    let allowed = u128::from(*capacity) + came_in;
                    assert!(
                        most <= allowed,
                        "seed {seed}: {most} of {allowed} from {first_us} to {last_us} under {limits:?}: {list:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn fixed_window_leases_end_with_their_window() {
    for seed in 0..TRACES {
        let mut random = Random::seeded(seed);
        let limit = FixedWindowModel::random_limit(&mut random);
        let list = leases::<FixedWindowModel>(&limit, &mut random);
        for lease in &list {
            let window = lease.granted_us / limit.window_us;
            assert_eq!(lease.until_us / limit.window_us, window, "seed {seed}: {lease:?} under {limit:?}");
            let first_us = window * limit.window_us;
            let most = most_between(first_us, first_us + limit.window_us - 1, &list);
            assert!(most <= limit.limit, "seed {seed}: {most} under {limit:?}: {list:?}");
        }
    }
}
