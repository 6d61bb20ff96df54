//! The accuracy of fleets in comparison with one exact limiter, and the number of messages they need.

use std::time::Duration;

use trypema::HardLimitFactor;
use trypema::strategy::{
    Absolute, AbsoluteLimit, FixedWindow, FixedWindowLimit, SlidingWindow, SlidingWindowLimit, Suppressed,
    SuppressedLimit, TokenBucket, TokenBucketLimits, TokenLimit,
};
use trypema_testkit::simulator::fleet::{
    Favourite, Fleet, HasInvariant, Journal, Measures, Network, Traffic,
};

const SECOND_US: u64 = 1_000_000;

/// Latencies as between machines in one data centre.
const NETWORK: Network =
    Network { fastest_us: 150, slowest_us: 1_000, lost_requests: 0, lost_replies: 0, unsent: 0 };

/// The simulation of one strategy.
struct Run {
    strategy: &'static str,
    /// The admissions of the fleet, and those of one exact limiter under the same traffic.
    fleet: Journal,
    exact: Journal,
    measures: Measures,
}

impl Run {
    fn of<S: HasInvariant>(limit: &S::Limit, traffic: &Traffic) -> Self {
        let fleet = Fleet::<S>::new(limit.clone()).instances(traffic.instances as usize).network(NETWORK);
        let fleet = Fleet { sample_us: 10_000, ..fleet }.run(traffic.offers());
        assert_eq!(S::invariant(limit).violation_in(&fleet.of_key(0)), None, "{} under {limit:?}", S::NAME);
        let exact = fleet.decided_exactly::<S>(limit);
        let measures = Measures::of::<S>(limit, &fleet);
        Self { strategy: S::NAME, fleet, exact, measures }
    }

    /// The admissions of the fleet between two times, as a share of the exact limiter's.
    fn share_between(&self, first_s: u64, end_s: u64) -> f64 {
        let start_us = Fleet::<Absolute>::START_US;
        let [fleet, exact] = [&self.fleet, &self.exact].map(|journal| {
            journal.of_key(0).between(start_us + first_s * SECOND_US, start_us + end_s * SECOND_US)
        });
        fleet as f64 / exact as f64
    }
}

/// Simulates each strategy with this capacity and window.
fn runs(capacity: u64, seconds: u64, traffic: &Traffic) -> [Run; 5] {
    let window = Duration::from_secs(seconds);
    let absolute = AbsoluteLimit::per_window(capacity, window).unwrap();
    let suppressed = SuppressedLimit::above(absolute, HardLimitFactor::default());
    let bucket = TokenBucketLimits::from(TokenLimit::new(capacity, window).unwrap());
    [
        Run::of::<Absolute>(&absolute, traffic),
        Run::of::<Suppressed>(&suppressed, traffic),
        Run::of::<TokenBucket>(&bucket, traffic),
        Run::of::<FixedWindow>(&FixedWindowLimit::new(capacity, window).unwrap(), traffic),
        Run::of::<SlidingWindow>(&SlidingWindowLimit::new(capacity, window).unwrap(), traffic),
    ]
}

#[test]
fn sixteen_instances_at_forty_times_their_limit() {
    for run in runs(500, 5, &Traffic::steady(20_000.0, 16, 60)) {
        if run.strategy == "absolute" {
            assert_eq!(run.fleet.of_key(0).worst_window(5 * SECOND_US), 500);
        }
        // The initial burst of the suppressed strategy still affects its second window, and less so in a
        // fleet than in one exact limiter.
        let first_s = if run.strategy == "suppressed" { 10 } else { 0 };
        let share = run.share_between(first_s, 60);
        assert!(share >= 0.98, "{}: {share}", run.strategy);
        assert!(run.measures.fairness >= 0.98, "{}: {:?}", run.strategy, run.measures);
    }
}

#[test]
fn twenty_instances_just_under_their_limit_ask_rarely() {
    for seconds in [10, 60] {
        let capacity = 20_000 * seconds * 102 / 100;
        for run in runs(capacity, seconds, &Traffic::steady(20_000.0, 20, seconds * 3 / 2)) {
            let (strategy, measures) = (run.strategy, run.measures);
            // The token bucket has shorter intervals: 163 per window instead of 140.
            let least = if strategy == "token_bucket" { 40.0 } else { 50.0 };
            assert!(measures.calls_per_message() >= least, "{strategy} in {seconds} s: {measures:?}");
            assert!(measures.wrong_share() <= 0.02, "{strategy} in {seconds} s: {measures:?}");
            // Twice the duration of a lease, as a share of the window: the bound that `HybridBound` states
            // for unavailable units.
            let lease_us = (seconds * SECOND_US / 128).min(SECOND_US) * 5 / 4;
            let bound = capacity * 2 * lease_us / (seconds * SECOND_US);
            assert!(measures.most_held <= bound, "{strategy} in {seconds} s: {measures:?}, {bound} at most");
        }
    }
}

/// Near the limit, leases get smaller and instances request more often, but requests are still admitted.
#[test]
fn twenty_instances_at_their_limit_are_hardly_denied() {
    for run in runs(200_000, 10, &Traffic::steady(20_000.0, 20, 20)) {
        let (strategy, measures) = (run.strategy, run.measures);
        assert!(measures.wrong_share() <= 0.02, "{strategy}: {measures:?}");
    }
}

/// A bucket loses units that are refunded too late. The losses must not accumulate.
#[test]
fn a_bucket_that_is_nearly_used_up_stays_open_for_minutes() {
    let limits = TokenBucketLimits::from(TokenLimit::new(204_000, Duration::from_secs(10)).unwrap());
    let run = Run::of::<TokenBucket>(&limits, &Traffic::steady(20_000.0, 20, 90));
    assert!(run.measures.wrong_share() <= 0.01, "{:?}", run.measures);
    assert!(run.measures.calls_per_message() >= 40.0, "{:?}", run.measures);
}

#[test]
fn when_most_calls_move_to_another_instance_the_limit_moves_along() {
    let favourites =
        [0, 1].map(|instance| Favourite { from_us: 20 * SECOND_US * instance, instance: instance as u32 });
    for (capacity, seconds) in [(500, 5), (5_000, 10)] {
        let traffic = Traffic { favourites: favourites.to_vec(), ..Traffic::steady(5_000.0, 4, 40) };
        for run in runs(capacity, seconds, &traffic) {
            let share = run.share_between(20, 20 + seconds);
            assert!(share >= 0.98, "{}: {share}", run.strategy);
        }
    }
}
