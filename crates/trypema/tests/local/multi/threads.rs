//! Many threads that lock many shards: no deadlock, and each key admits exactly its capacity.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use trypema::{Limit, RateLimiter};
use trypema_testkit::random::Random;

use crate::all_or_nothing::asked::{Asked, checks, six};

const THREADS: u64 = 8;
const REQUESTS: u64 = 4_000;
/// Few names, so that threads contend.
const NAMES: [&str; 5] = ["ann", "bob", "cid", "dan", "eve"];
/// All threads together request several times this number of units per key.
const CAPACITY: u64 = 2_000;
/// The window does not end during the test.
const WINDOW: Duration = Duration::from_secs(366 * 86_400);
/// Threads that take longer than this are deadlocked.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every state, one per key and strategy, with the units admitted to it.
struct Scene {
    rl: RateLimiter,
    states: Vec<(Asked, AtomicU64)>,
    /// The maximum cost of a check.
    most: u64,
}

impl Scene {
    fn new(rl: RateLimiter, most: u64) -> Self {
        // With a factor of 1, suppressed never decides by chance.
        let limits = six(CAPACITY, WINDOW, 1.0);
        let states = NAMES.iter().flat_map(|name| limits.iter().map(|limit| Asked::new(name, limit, 1)));
        Self { rl, states: states.map(|asked| (asked, AtomicU64::new(0))).collect(), most }
    }

    /// Makes one call with up to six checks, in random order.
    fn ask(&self, random: &mut Random) {
        let mut chosen: Vec<usize> = Vec::new();
        for _ in 0..random.between(1, 6) {
            let state = random.below(self.states.len() as u64) as usize;
            if !chosen.contains(&state) {
                chosen.push(state);
            }
        }
        let mut costing = |state: &usize| self.states[*state].0.costing(random.between(1, self.most));
        let asked: Vec<Asked> = chosen.iter().map(&mut costing).collect();
        let local = self.rl.local();
        let answer = match random.below(4) {
            0 => local.take_all_with_receipts(&checks(&asked)).unwrap(),
            _ => local.take_all(&checks(&asked)).unwrap(),
        };
        // Half of the reservations are refunded, but none of attempts: while one was held, another thread's
        // denied attempt may have blocked its key, and a refund does not lift a block.
        let counts_attempts = asked.iter().any(|asked| matches!(asked.limit, Limit::Abuse(_)));
        let may_refund = answer.is_allowed && !answer.receipts.is_empty() && !counts_attempts;
        if may_refund && random.once_in(2) {
            return local.refund_all(&checks(&asked), &answer.receipts);
        }
        for (state, asked) in chosen.iter().zip(&asked).filter(|_| answer.is_allowed) {
            self.states[*state].1.fetch_add(asked.cost, Ordering::Relaxed);
        }
    }

    fn take_what_is_left(&self) {
        for (asked, admitted) in &self.states {
            while self.rl.local().take_all(&checks(std::slice::from_ref(asked))).unwrap().is_allowed {
                admitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Runs all threads until they end.
fn run(scene: &Arc<Scene>) {
    let (ended, ends) = mpsc::channel();
    for thread in 0..THREADS {
        let (scene, ended) = (Arc::clone(scene), ended.clone());
        std::thread::spawn(move || {
            let mut random = Random::seeded(thread);
            (0..REQUESTS).for_each(|_| scene.ask(&mut random));
            ended.send(()).unwrap();
        });
    }
    for _ in 0..THREADS {
        ends.recv_timeout(PATIENCE).expect("no thread waits for another for ever");
    }
}

#[test]
fn requests_that_overlap_in_any_order_admit_exactly_the_capacity() {
    // Each cost is 1: the abuse strategy counts denied attempts, so a larger cost could keep units from
    // others.
    let scene = Arc::new(Scene::new(RateLimiter::builder().build().unwrap(), 1));
    run(&scene);
    let before: Vec<u64> =
        scene.states.iter().map(|(_, admitted)| admitted.load(Ordering::Relaxed)).collect();
    scene.take_what_is_left();
    for ((asked, admitted), before) in scene.states.iter().zip(before) {
        assert!(before > 0, "{asked:?} was never admitted");
        assert_eq!(admitted.load(Ordering::Relaxed), CAPACITY, "{asked:?}");
    }
}

/// Keys that share a state because the table is full may be admitted less than their capacity, never more.
#[test]
fn requests_of_keys_without_room_admit_no_more_than_the_capacity() {
    let scene = Arc::new(Scene::new(RateLimiter::builder().max_keys(2).build().unwrap(), 40));
    run(&scene);
    scene.take_what_is_left();
    for (asked, admitted) in &scene.states {
        let admitted = admitted.load(Ordering::Relaxed);
        assert!(admitted <= CAPACITY, "{admitted} of {CAPACITY} were admitted for {asked:?}");
    }
}
