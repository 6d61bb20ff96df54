//! Drives a contender from many concurrent tasks and counts the outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::contender::Contender;

/// The number of calls after which a task yields. The hybrid provider's calls never wait, so its tasks would
/// starve the others.
const CALLS_BETWEEN_YIELDS: usize = 128;

/// A contender with the keys that it is called for.
pub trait Driven {
    /// Calls the contender from `in_flight` tasks for `duration`.
    fn drive(&self, runtime: &Runtime, in_flight: usize, duration: Duration) -> Tally;

    /// Calls the contender once, for the first key.
    fn call(&self, runtime: &Runtime);
}

pub struct Loaded<C: Contender> {
    contender: Arc<C>,
    keys: Arc<Vec<C::Key>>,
    order: Order,
}

/// The order in which a task calls its keys.
#[derive(Clone, Copy)]
enum Order {
    /// One after the other, so that each key is called as often as any other.
    InTurn,
    /// At random, so that tasks do not follow one another from key to key and wait for the same reply, and calls of a key come as
    /// unevenly as those of independent clients.
    Random,
}

/// The outcomes of the calls.
#[derive(Default)]
pub struct Tally {
    pub calls: u64,
    pub admitted: u64,
    /// The number of calls that failed, and the error of the last one.
    pub failed: u64,
    pub failure: String,
    pub took: Duration,
}

impl<C: Contender> Loaded<C> {
    pub fn new(contender: C, names: &[String]) -> Self {
        let keys = names.iter().map(|name| C::key(name)).collect();
        Self { contender: Arc::new(contender), keys: Arc::new(keys), order: Order::InTurn }
    }

    /// The same contender, called for keys in random order.
    pub fn in_random_order(self) -> Self {
        Self { order: Order::Random, ..self }
    }
}

impl<C: Contender> Driven for Loaded<C> {
    fn drive(&self, runtime: &Runtime, in_flight: usize, duration: Duration) -> Tally {
        if duration.is_zero() {
            return Tally::default();
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let tasks: Vec<_> = (0..in_flight)
            .map(|task| {
                let (contender, keys) = (Arc::clone(&self.contender), Arc::clone(&self.keys));
                // The tasks walk through the keys from evenly spaced positions.
                let first = task * keys.len() / in_flight;
                let walk = Walk { order: self.order, at: first, random: first as u64 + 1 };
                runtime.spawn(call_until(contender, (keys, walk), Arc::clone(&is_over)))
            })
            .collect();
        thread::sleep(duration);
        is_over.store(true, Ordering::Relaxed);
        let mut total = Tally::default();
        for task in tasks {
            total.add(runtime.block_on(task).expect("a task that ends"));
        }
        total.took = start.elapsed();
        total
    }

    fn call(&self, runtime: &Runtime) {
        runtime.block_on(self.contender.check(&self.keys[0])).expect("an answer");
    }
}

/// The way of one task through the keys.
struct Walk {
    order: Order,
    at: usize,
    /// The state of a xorshift generator, which is not 0.
    random: u64,
}

impl Walk {
    /// The next of so many keys.
    fn next(&mut self, keys: usize) -> usize {
        match self.order {
            Order::InTurn => self.at = if self.at + 1 == keys { 0 } else { self.at + 1 },
            Order::Random => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.at = (self.random % keys as u64) as usize;
            }
        }
        self.at
    }
}

async fn call_until<C: Contender>(
    contender: Arc<C>,
    (keys, mut walk): (Arc<Vec<C::Key>>, Walk),
    is_over: Arc<AtomicBool>,
) -> Tally {
    let mut tally = Tally::default();
    let mut at = walk.at;
    let mut until_yield = CALLS_BETWEEN_YIELDS;
    while !is_over.load(Ordering::Relaxed) {
        tally.count(contender.check(&keys[at]).await);
        at = walk.next(keys.len());
        until_yield -= 1;
        if until_yield == 0 {
            until_yield = CALLS_BETWEEN_YIELDS;
            tokio::task::yield_now().await;
        }
    }
    tally
}

impl Tally {
    fn count(&mut self, answer: Result<bool, String>) {
        self.calls += 1;
        match answer {
            Ok(is_admitted) => self.admitted += u64::from(is_admitted),
            Err(failure) => {
                self.failed += 1;
                self.failure = failure;
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.admitted += other.admitted;
        self.failed += other.failed;
        if other.failed > 0 {
            self.failure = other.failure;
        }
    }
}
