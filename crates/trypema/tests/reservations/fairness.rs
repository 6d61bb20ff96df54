//! Waiting for several counters at once: nobody is overtaken at a counter that is all it waits for, and nobody waits
//! behind a request that another counter denies.
//!
//! Random requests wait in this process, on a driven clock. Woken waiters are polled in random order. The checks
//! use only the units that are held and the order of arrival.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use trypema::clock::{Clock, ManualClock, Timestamp};
use trypema::observer::{Event, Observer};
use trypema::rules::{Engine, Request, Reservation, ReserveOptions};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::wait_for;
use trypema_testkit::random::Random;

use super::rules;

const SEEDS: u64 = 400;

/// A seed whose waiter lost its retry, because another one was ahead of it for a moment.
const FOUND: [u64; 1] = [18_252];

const STEPS: u64 = 150;

/// The pause of a waiter between two tries, in this process.
const PAUSE: Duration = Duration::from_secs(1);

/// Tries after which every waiter is where it belongs: one may lead to another.
const ROUNDS: usize = 12;

/// The limits of the counters, by rule.
const LIMITS: [(&str, u64); 4] = [("all", 5), ("tenants", 4), ("users", 2), ("tokens", 100)];

type Reserving = Pin<Box<dyn Future<Output = Result<Reservation, TrypemaError>>>>;

/// A request: the units that it needs of each counter.
type Demand = BTreeMap<String, u64>;

struct Waiter {
    /// The order of arrival.
    number: u64,
    demand: Demand,
    deadline: Timestamp,
    future: Reserving,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts the tries to reserve.
#[derive(Debug, Default)]
struct Tries(AtomicU64);

impl Observer for Tries {
    fn decided(&self, event: &Event<'_>) {
        self.0.fetch_add(u64::from(event.key == "all"), Ordering::Relaxed);
    }
}

struct Scene {
    name: String,
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    tries: Arc<Tries>,
    /// In the order of their arrival.
    waiters: Vec<Waiter>,
    held: Vec<(String, Demand)>,
    used: Demand,
    arrived: u64,
    admitted_after_waiting: u64,
    timed_out: u64,
}

impl Scene {
    fn new(name: String, yaml: &str) -> Self {
        let (clock, tries) = (Arc::new(ManualClock::default()), Arc::new(Tries::default()));
        let limiter = RateLimiter::builder().clock(clock.clone()).observer(tries.clone()).build().unwrap();
        Self {
            name,
            engine: Arc::new(Engine::local(Arc::new(limiter), rules(yaml))),
            clock,
            tries,
            waiters: Vec::new(),
            held: Vec::new(),
            used: Demand::new(),
            arrived: 0,
            admitted_after_waiting: 0,
            timed_out: 0,
        }
    }

    /// Lets a request arrive, which waits up to `patience`.
    fn arrive(&mut self, set: AttributeSet, patience: Duration) {
        let (engine, demand) = (Arc::clone(&self.engine), set.demand());
        let options = ReserveOptions::new(Duration::from_secs(3600)).unwrap().waiting(patience);
        let future = async move {
            let user = set.user.map(|user| ("user", user));
            let tenant = set.tenant.map(|tenant| ("tenant", tenant));
            let attributes: Vec<(&str, &str)> = user.into_iter().chain(tenant).collect();
            let costs = [("requests", set.requests), ("tokens", set.tokens)];
            engine.reserve(&Request::new(&attributes).with_costs(&costs), &options).await
        };
        self.waiters.push(Waiter {
            number: self.arrived,
            demand,
            deadline: self.clock.now() + patience,
            future: Box::pin(future),
            woken: Arc::new(Woken(AtomicBool::new(true))),
        });
        self.arrived += 1;
        self.poll(self.waiters.len() - 1);
    }

    /// Polls a waiter, and checks the outcome if it has one.
    fn poll(&mut self, index: usize) {
        let waiter = &mut self.waiters[index];
        let was_waiting = !waiter.woken.0.swap(false, Ordering::Relaxed) || waiter.number + 1 < self.arrived;
        let waker = Waker::from(Arc::clone(&waiter.woken));
        let polled = waiter.future.as_mut().poll(&mut Context::from_waker(&waker));
        let Poll::Ready(reserved) = polled else { return };
        let waiter = self.waiters.remove(index);
        let reserved = reserved.unwrap();
        if !reserved.is_allowed() {
            assert!(self.clock.now() >= waiter.deadline, "{}: {} was denied early", self.name, waiter.number);
            self.timed_out += 1;
            return;
        }
        self.assert_overtakes_nobody(&waiter);
        self.admitted_after_waiting += u64::from(was_waiting);
        for (counter, units) in &waiter.demand {
            *self.used.entry(counter.clone()).or_default() += units;
        }
        self.held.push((reserved.into_text().unwrap(), waiter.demand));
    }

    /// Polls woken waiters in random order, until none is woken.
    fn run(&mut self, random: &mut Random) {
        while self.poll_one(random) {}
    }

    /// Polls one of the woken waiters. Returns whether there was one.
    fn poll_one(&mut self, random: &mut Random) -> bool {
        let woken: Vec<usize> = (0..self.waiters.len())
            .filter(|index| self.waiters[*index].woken.0.load(Ordering::Relaxed))
            .collect();
        if woken.is_empty() {
            return false;
        }
        self.poll(random.pick(&woken));
        true
    }

    fn release(&mut self, index: usize) {
        let (text, demand) = self.held.swap_remove(index);
        for (counter, units) in &demand {
            *self.used.get_mut(counter).unwrap() -= units;
        }
        assert!(wait_for(self.engine.release(&text)).unwrap().is_settled(), "{}", self.name);
    }

    /// The counters that have too few units left for a demand.
    fn denying<'d>(&self, demand: &'d Demand) -> BTreeSet<&'d str> {
        let limit_of = |counter: &str| {
            let rule = counter.split('|').next();
            LIMITS.iter().find(|(name, _)| rule == Some(name)).unwrap().1
        };
        let is_denying = |(counter, units): &(&'d String, &u64)| {
            self.used.get(*counter).copied().unwrap_or(0) + **units > limit_of(counter)
        };
        demand.iter().filter(is_denying).map(|(counter, _)| counter.as_str()).collect()
    }

    /// Asserts that nobody who came earlier could have been admitted in place of a request, and that nobody waits for
    /// only one counter, which the request uses, too.
    fn assert_overtakes_nobody(&self, admitted: &Waiter) {
        let (mut kept, mut denied_before) = (BTreeSet::new(), BTreeSet::new());
        for earlier in self.waiters.iter().filter(|waiter| waiter.number < admitted.number) {
            let denying = self.denying(&earlier.demand);
            let is_kept = |counter: &&str| kept.contains(counter) || denied_before.contains(counter);
            let behind: BTreeSet<&str> = counters(earlier).filter(is_kept).collect();
            match denying.iter().chain(behind.difference(&denying)).collect::<Vec<_>>()[..] {
                [] => kept.extend(counters(earlier)),
                [only] if denying.contains(only) => _ = kept.insert(only),
                _ => {}
            }
            denied_before.extend(denying);
        }
        let taken: Vec<&str> = counters(admitted).filter(|counter| kept.contains(counter)).collect();
        assert!(taken.is_empty(), "{}: {} overtook others at {taken:?}", self.name, admitted.number);
    }

    /// Asserts that nobody waits who fits, and whose counters deny none of those who came earlier.
    fn assert_nobody_waits_in_vain(&self) {
        let mut denied_before = BTreeSet::new();
        for waiter in &self.waiters {
            let denying = self.denying(&waiter.demand);
            let is_free =
                denying.is_empty() && !counters(waiter).any(|counter| denied_before.contains(counter));
            assert!(!is_free, "{}: {} waits although it fits: {:?}", self.name, waiter.number, waiter.demand);
            denied_before.extend(denying);
        }
    }

    /// Asserts that after some tries nobody waits who fits, except behind one that waits for only one counter.
    fn assert_nobody_waits_in_vain_for_long(&mut self, random: &mut Random) {
        for _ in 0..ROUNDS {
            self.clock.advance(PAUSE);
            self.run(random);
        }
        let mut kept = BTreeSet::new();
        for waiter in &self.waiters {
            let denying = self.denying(&waiter.demand);
            let is_kept = |counter: &&str| kept.contains(counter);
            let behind: BTreeSet<&str> = counters(waiter).filter(is_kept).collect();
            let is_free = denying.is_empty() && behind.is_empty();
            assert!(!is_free, "{}: {} waits for long: {:?}", self.name, waiter.number, waiter.demand);
            if denying.union(&behind).count() == 1 {
                kept.extend(denying);
            }
        }
    }
}

fn counters(waiter: &Waiter) -> impl Iterator<Item = &str> {
    waiter.demand.keys().map(String::as_str)
}

/// The attributes and costs of a request.
#[derive(Debug, Clone, Copy)]
struct AttributeSet {
    user: Option<&'static str>,
    tenant: Option<&'static str>,
    requests: u64,
    tokens: u64,
}

impl AttributeSet {
    fn draw(random: &mut Random) -> Self {
        let user = random.pick(&["ann", "ben", "cid", "dan"]);
        let tenant = random.pick(&["acme", "blue"]);
        Self {
            user: (!random.once_in(4)).then_some(user),
            tenant: (!random.once_in(4)).then_some(tenant),
            requests: random.pick(&[1, 1, 1, 2]),
            tokens: random.pick(&[1, 10, 40, 90]),
        }
    }

    fn demand(self) -> Demand {
        let mut demand = Demand::from([("all".to_owned(), self.requests)]);
        if let Some(user) = self.user {
            demand.insert(format!("users|user={user}"), self.requests);
        }
        if let Some(tenant) = self.tenant {
            demand.insert(format!("tenants|tenant={tenant}"), self.requests);
            demand.insert(format!("tokens|tenant={tenant}"), self.tokens);
        }
        demand
    }
}

/// Returns rules with these limits, in random order.
fn draw_rules(random: &mut Random) -> String {
    let rule = |(id, limit): (&str, u64), priority: u64| {
        let scope = match id {
            "all" => "scope: global",
            "users" => "scope: user",
            "tenants" => "scope: tenant",
            _ => "scope: tenant, unit: tokens",
        };
        format!(
            "  - {{id: {id}, priority: {priority}, {scope}, strategy: {{concurrency: {{limit: {limit}, hold: 1h}}}}}}\n"
        )
    };
    let rules: String = LIMITS.into_iter().map(|limit| rule(limit, random.below(100))).collect();
    format!("units: [tokens]\nrules:\n{rules}")
}

#[test]
fn nobody_is_overtaken_and_nobody_waits_in_vain() {
    let (mut admitted, mut timed_out) = (0, 0);
    for seed in FOUND.into_iter().chain(0..SEEDS) {
        let mut random = Random::seeded(seed);
        let mut scene = Scene::new(format!("seed {seed}"), &draw_rules(&mut random));
        let mut steps = 0;
        for _ in 0..STEPS {
            steps += 1;
            match random.below(10) {
                0..4 => {
                    let patience = random.pick(&[5, 30, 600]);
                    scene.arrive(AttributeSet::draw(&mut random), Duration::from_secs(patience));
                }
                4..8 if !scene.held.is_empty() => {
                    let held = random.below(scene.held.len() as u64);
                    scene.release(held as usize);
                }
                8 if !scene.waiters.is_empty() => {
                    let cancelled = random.below(scene.waiters.len() as u64);
                    scene.waiters.remove(cancelled as usize);
                }
                9 => {
                    scene.clock.advance(Duration::from_millis(random.pick(&[1, 400, 5_000])));
                    steps += scene.waiters.len() as u64;
                }
                _ => {}
            }
            if random.once_in(2) {
                scene.run(&mut random);
                scene.assert_nobody_waits_in_vain();
            } else {
                scene.poll_one(&mut random);
            }
        }
        let tries = scene.tries.0.load(Ordering::Relaxed);
        assert!(tries <= 3 * steps, "{}: {tries} tries in {steps} steps", scene.name);
        scene.assert_nobody_waits_in_vain_for_long(&mut random);
        (admitted, timed_out) = (admitted + scene.admitted_after_waiting, timed_out + scene.timed_out);
    }
    assert!(admitted > 10 * SEEDS && timed_out > SEEDS, "{admitted} admitted, {timed_out} timed out");
}

/// Two hundred users wait for slots of their own, and for those that all share. What others release is not for them.
#[test]
fn a_release_makes_few_waiters_try() {
    const WAITERS: usize = 200;
    const RELEASES: usize = 100;
    let all = WAITERS + RELEASES;
    let yaml = format!(
        "rules:\n  - {{id: all, scope: global, strategy: {{concurrency: {{limit: {all}, hold: 1h}}}}}}\n  - {{id: users, scope: \
         user, strategy: {{concurrency: {{limit: 1, hold: 1h}}}}}}"
    );
    let (clock, tries) = (Arc::new(ManualClock::default()), Arc::new(Tries::default()));
    let limiter = RateLimiter::builder().clock(clock).observer(tries.clone()).build().unwrap();
    let engine = Arc::new(Engine::local(Arc::new(limiter), rules(&yaml)));
    let options = ReserveOptions::new(Duration::from_secs(3600)).unwrap();
    let reserve = |user: String, patience: u64| -> Reserving {
        let (engine, options) = (Arc::clone(&engine), options.clone().waiting(Duration::from_secs(patience)));
        Box::pin(async move { engine.reserve(&Request::new(&[("user", &user)]), &options).await })
    };
    let mut held: Vec<Reservation> =
        (0..all).map(|user| wait_for(reserve(format!("user {user}"), 0)).unwrap()).collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut waiters: Vec<Reserving> = (0..WAITERS).map(|user| reserve(format!("user {user}"), 600)).collect();
    let mut poll_all = |waiters: &mut Vec<Reserving>| {
        waiters.retain_mut(|waiter| waiter.as_mut().poll(&mut context).is_pending());
    };
    poll_all(&mut waiters);
    let before = tries.0.load(Ordering::Relaxed);
    for _ in 0..RELEASES {
        drop(held.pop());
        poll_all(&mut waiters);
    }
    assert_eq!(waiters.len(), WAITERS);
    let tried = tries.0.load(Ordering::Relaxed) - before;
    assert!(tried <= (WAITERS + RELEASES) as u64, "{tried} tries after {RELEASES} releases");
    drop(held);
    poll_all(&mut waiters);
    assert_eq!(waiters.len(), 0, "everybody has a slot now");
}
