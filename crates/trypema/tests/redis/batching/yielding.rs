//! Callers that have used up their Tokio budget: they yield and continue after that.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use trypema::RateLimiter;
use trypema_testkit::blocking::{key, runtime};
use trypema_testkit::redis::Server;

use super::{limiter, long_window};
use crate::all_or_nothing::asked::{Asked, checks};

/// Tokio's cooperative budget: the number of steps after which all resources of a task return pending.
const BUDGET: usize = 128;
/// The time after which a caller without a reply is considered lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// Takes single and multiple keys with each of the last few units of the budget left, down to none.
async fn take_with_little_left(rl: Arc<RateLimiter>) -> u64 {
    let limit = long_window(1_000);
    let asked = ["ann", "bob"].map(|name| Asked::new(name, &limit.into(), 1));
    let mut left = 0;
    for used in (BUDGET - 4)..=BUDGET {
        tokio::task::yield_now().await;
        for _ in 0..used {
            tokio::task::coop::consume_budget().await;
        }
        rl.redis().take_all(&checks(&asked)).await.unwrap();
        for _ in 0..used {
            tokio::task::coop::consume_budget().await;
        }
        left = rl.redis().fixed_window().take(&key("ann"), &limit, 1).await.unwrap().remaining();
    }
    left
}

/// Runs the callers on a runtime thread, and on a thread in `block_on`, where Tokio forces a yield by waking
/// the task immediately.
#[test]
fn a_caller_that_has_to_yield_is_answered_after_that() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let (answered, answers) = mpsc::channel();
    let (other, other_rl) = (answered.clone(), Arc::clone(&rl));
    runtime().spawn(async move {
        let left = take_with_little_left(other_rl).await;
        other.send(left).unwrap();
    });
    assert_eq!(answers.recv_timeout(PATIENCE).expect("a spawned caller is answered"), 1_000 - 10);
    std::thread::spawn(move || {
        let left = runtime().block_on(take_with_little_left(rl));
        answered.send(left).unwrap();
    });
    assert_eq!(answers.recv_timeout(PATIENCE).expect("a blocked caller is answered"), 1_000 - 20);
}
