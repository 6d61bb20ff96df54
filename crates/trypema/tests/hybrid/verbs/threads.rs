//! Many threads on several instances in real time: the whole limit is admitted, once.

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema_testkit::blocking::{connect, key, runtime, wait_for};
use trypema_testkit::redis::Server;
use trypema_testkit::subject::HybridStrategy;

const INSTANCES: usize = 3;
const THREADS: usize = 4;
const CAPACITY: u64 = 20_000;

/// The window does not end during a test.
const WINDOW: Duration = Duration::from_secs(366 * 86_400);

/// Long, because the machine may be busy with other tests.
const DEADLINE: Duration = Duration::from_secs(20);

fn instance(server: &Server) -> Arc<RateLimiter> {
    Arc::new(RateLimiter::builder().redis(connect(&server.url())).redis_deadline(DEADLINE).build().unwrap())
}

/// Takes through every operation until denied. Returns the number of admitted units.
fn take_until_denied<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit) -> u64 {
    let (ann, mut admitted) = (key("ann"), 0);
    for call in 0.. {
        if call % 7 == 0 {
            // A refunded reservation does not count as admitted.
            let reserved = wait_for(S::hybrid(rl).take_with_receipt(&ann, limit, 1)).unwrap();
            if let Some(receipt) = reserved.receipt {
                // A bucket may refund less than the unit, because it has refilled since.
                assert!(wait_for(S::hybrid(rl).refund(&ann, limit, &receipt)).unwrap() <= 1, "{}", S::NAME);
            }
        }
        let decision = match S::hybrid(rl).try_take(&ann, limit, 1) {
            Some(decision) => S::core(&decision),
            None => S::core(&wait_for(S::hybrid(rl).take(&ann, limit, 1)).unwrap()),
        };
        if !decision.is_allowed() {
            break;
        }
        admitted += 1;
    }
    admitted
}

#[test]
fn all_there_is_is_admitted_once() {
    fn is_admitted_once<S: HybridStrategy>() {
        let server = Server::start().unwrap();
        let limit = S::limit(CAPACITY, WINDOW);
        let instances: Vec<Arc<RateLimiter>> = (0..INSTANCES).map(|_| instance(&server)).collect();
        instances.iter().for_each(|rl| drop(runtime().spawn(rl.hybrid().keep_in_sync())));
        let mut admitted: u64 = std::thread::scope(|scope| {
            let start = |index: usize| {
                let (rl, limit) = (&instances[index % INSTANCES], &limit);
                scope.spawn(move || take_until_denied::<S>(rl, limit))
            };
            let threads: Vec<_> = (0..INSTANCES * THREADS).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        instances.iter().for_each(|rl| wait_for(rl.hybrid().release()));
        drop(instances);
        assert!(admitted <= CAPACITY, "{}: {admitted}", S::NAME);
        admitted +=
            wait_for(S::redis(&instance(&server)).take_up_to(&key("ann"), &limit, CAPACITY)).unwrap().units;
        assert!(admitted <= CAPACITY, "{}: {admitted}", S::NAME);
        // A lease in flight during the release of its instance may be lost.
        assert!(admitted * 10 >= CAPACITY * 9, "{}: only {admitted}", S::NAME);
    }

    for_every_exact!(is_admitted_once);
}
