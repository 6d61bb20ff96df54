//! Several instances and the Redis provider on one key: together they never exceed the limit.

use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::{Clock, Timestamp};
use trypema::strategy::{Absolute, FixedWindow, SlidingWindow, Suppressed, TokenBucket};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::random::Random;
use trypema_testkit::redis::wait_until;
use trypema_testkit::subject::HybridStrategy;

use super::journal::{Admitted, Journal, Judge};
use super::scene::{Scene, WINDOW, call_until_leased, held, release, take, try_take, used};

#[test]
fn two_instances_admit_all_there_is_and_no_more() {
    fn admit_all<S: HybridStrategy>() {
        let scene = Scene::start();
        let (instances, limit) = ([scene.instance(), scene.instance()], S::limit(100, WINDOW));
        let take = |rl| u64::from(take::<S>(rl, "ann", &limit, 1).is_allowed());
        let admitted: u64 = (0..150).map(|_| instances.iter().map(take).sum::<u64>()).sum();
        assert_eq!(admitted, 100, "{}", S::NAME);
        assert!(instances.iter().all(|rl| held::<S>(rl, "ann") == 0), "{}", S::NAME);
    }

    for_every_exact!(admit_all);
}

/// The first instance does not lease everything if another instance leases too.
#[test]
fn an_instance_leaves_others_their_share() {
    fn shares<S: HybridStrategy>() {
        let scene = Scene::start();
        let (one, other, limit) = (scene.instance(), scene.instance(), S::limit(100, WINDOW));
        call_until_leased::<S>(&one, "ann", &limit);
        call_until_leased::<S>(&other, "ann", &limit);
        // The first instance has enough demand to use the whole limit.
        for _ in 0..40 {
            assert!(take::<S>(&one, "ann", &limit, 1).is_allowed(), "{}", S::NAME);
        }
        let (mine, free) = (held::<S>(&one, "ann"), 100 - used::<S>(&one, "ann", &limit));
        assert!(mine <= (mine + free) / 2 + 1, "{} holds {mine} and left {free}", S::NAME);
    }

    for_every_leased!(shares);
}

/// An instance learns of a reset from the reply to its next lease request, at most one interval later.
#[test]
fn a_reset_reaches_other_instances_within_an_interval() {
    fn reaches<S: HybridStrategy>() {
        let scene = Scene::start();
        let (one, other, limit) = (scene.instance(), scene.instance(), S::limit(1_000, WINDOW));
        runtime().spawn(one.hybrid().keep_in_sync());
        wait_until("the loop to run", || one.hybrid().stats().instances.is_some()).unwrap();
        call_until_leased::<S>(&one, "ann", &limit);
        let before = held::<S>(&one, "ann");
        assert!(wait_for(S::hybrid(&other).reset(&key("ann"))).unwrap(), "{}", S::NAME);
        assert_eq!(held::<S>(&one, "ann"), before, "{}: nobody has told it yet", S::NAME);
        scene.clock.advance(S::hybrid(&one).bound(&limit).interval);
        assert!(try_take::<S>(&one, "ann", &limit, 1).is_some_and(|decision| decision.is_allowed()));
        wait_until("the next lease", || used::<S>(&other, "ann", &limit) > 0).unwrap();
        let is_counted = || held::<S>(&one, "ann") <= used::<S>(&other, "ann", &limit);
        wait_until("what was forgotten to be held no longer", is_counted).unwrap();
    }

    for_every_leased!(reaches);
}

#[test]
fn what_is_released_can_be_taken_at_once() {
    fn can_be_taken<S: HybridStrategy>() {
        let scene = Scene::start();
        let (one, other, limit) = (scene.instance(), scene.instance(), S::limit(100, WINDOW));
        let taken = call_until_leased::<S>(&one, "ann", &limit);
        assert!(held::<S>(&one, "ann") > 0);
        release(&one);
        assert_eq!(held::<S>(&one, "ann"), 0, "{}", S::NAME);
        assert_eq!(used::<S>(&other, "ann", &limit), taken, "{}", S::NAME);
        assert!(take::<S>(&other, "ann", &limit, 100 - taken).is_allowed(), "{}", S::NAME);
        assert!(!take::<S>(&one, "ann", &limit, 101).is_allowed(), "{}", S::NAME);
    }

    for_every_leased!(can_be_taken);
}

/// The capacity of the limit in the random runs.
const CAPACITY: u64 = 50;
const SHORT_WINDOW: Duration = Duration::from_secs(2);
const STEPS: u64 = 1_200;
const SEEDS: u64 = 4;

/// Random calls of three instances, through every operation that spends units.
struct Crowd<'a, S: HybridStrategy> {
    scene: &'a Scene,
    instances: Vec<RateLimiter>,
    limit: S::Limit,
    random: Random,
    journal: Journal,
}

impl<S: HybridStrategy> Crowd<'_, S> {
    fn call(&mut self) {
        let index = self.random.below(self.instances.len() as u64) as usize;
        let (rl, cost, ann) = (&self.instances[index], self.random.between(1, 3), key("ann"));
        let limit = &self.limit;
        let units = match self.random.below(12) {
            0..6 => cost * u64::from(take::<S>(rl, "ann", limit, cost).is_allowed()),
            6..8 => {
                let taken = try_take::<S>(rl, "ann", limit, cost);
                cost * u64::from(taken.is_some_and(|decision| decision.is_allowed()))
            }
            8 => {
                cost * u64::from(
                    S::core(&wait_for(S::redis(rl).take(&ann, limit, cost)).unwrap()).is_allowed(),
                )
            }
            9 => wait_for(S::hybrid(rl).take_up_to(&ann, limit, 3 * cost)).unwrap().units,
            _ => self.take_with_receipt(rl, cost),
        };
        let at_us = self.scene.clock.now().as_micros();
        self.journal.0.push(Admitted { at_us, units });
    }

    /// Reserves `cost` units and refunds even costs immediately. Returns the units spent.
    fn take_with_receipt(&self, rl: &RateLimiter, cost: u64) -> u64 {
        let ann = key("ann");
        let reserved = wait_for(S::hybrid(rl).take_with_receipt(&ann, &self.limit, cost)).unwrap();
        match reserved.receipt {
            Some(receipt) if cost.is_multiple_of(2) => {
                wait_for(S::hybrid(rl).refund(&ann, &self.limit, &receipt)).unwrap();
                0
            }
            Some(_) => cost,
            None => 0,
        }
    }

    fn pass_time(&mut self) {
        // Short steps make keys hot. Long pauses let leases expire.
        let most_us = match self.random.below(40) {
            0 => 600_000,
            1..4 => 20_000,
            4..20 => 1_000,
            _ => 1,
        };
        self.scene.clock.advance(Duration::from_micros(self.random.below(most_us)));
    }
}

fn never_over<S: HybridStrategy + Judge>() {
    for seed in 0..SEEDS {
        let scene = Scene::start();
        let mut random = Random::seeded(seed);
        let start_us = scene.clock.now().as_micros() + random.below(10_000_000);
        scene.clock.set(Timestamp::from_micros(start_us));
        let instances: Vec<RateLimiter> = (0..3).map(|_| scene.instance()).collect();
        if seed % 2 == 1 {
            instances.iter().for_each(|rl| drop(runtime().spawn(rl.hybrid().keep_in_sync())));
        }
        let limit = S::limit(CAPACITY, SHORT_WINDOW);
        let mut crowd = Crowd::<S> { scene: &scene, instances, limit, random, journal: Journal::default() };
        for _ in 0..STEPS {
            crowd.call();
            crowd.pass_time();
        }
        let leases: u64 = crowd.instances.iter().map(|rl| rl.hybrid().stats().leases_asked).sum();
        assert!(leases > 20, "{} seed {seed}: only {leases} leases", S::NAME);
        let verdict = S::judge(CAPACITY, SHORT_WINDOW, &crowd.journal);
        assert!(verdict.is_ok(), "{} seed {seed}: {verdict:?}", S::NAME);
    }
}

#[test]
fn absolute_is_never_over() {
    never_over::<Absolute>();
}

#[test]
fn suppressed_is_never_over() {
    never_over::<Suppressed>();
}

#[test]
fn token_bucket_is_never_over() {
    never_over::<TokenBucket>();
}

#[test]
fn sliding_window_is_never_over() {
    never_over::<SlidingWindow>();
}

#[test]
fn fixed_window_is_never_over() {
    never_over::<FixedWindow>();
}
