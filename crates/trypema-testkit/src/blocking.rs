//! A blocking interface of the Redis provider, for tests that are not async.
#![allow(clippy::expect_used, reason = "a test whose Redis cannot be asked should stop right there")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Runtime;
use trypema::clock::{Clock, ManualClock, SystemClock, Timestamp};
use trypema::redis::{RedisConnection, RedisKey, RedisLimiter, RedisReceipt};
use trypema::strategy::{Strategy, Wire};
use trypema::{Granted, RateLimiter, RateLimiterBuilder};

use crate::verbs::{Lease, Reserved, Verbs};

/// The deadline of calls: long, because the machine may be busy with other tests.
const DEADLINE: Duration = Duration::from_secs(20);
/// The pause between two attempts to connect.
const BETWEEN_DIALS: Duration = Duration::from_millis(10);

/// Returns a runtime that all tests of a process share.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime")
    })
}

/// Waits for a future.
pub fn wait_for<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// Connects to `url`.
pub fn connect(url: &str) -> RedisConnection {
    wait_for(dial(url))
}

/// Connects to `url`, on any runtime. The library gives up after a second, which a busy machine may need to
/// schedule both sides, so this tries again.
///
/// # Panics
///
/// The server is not reached within the deadline of tests.
pub async fn dial(url: &str) -> RedisConnection {
    let deadline = SystemClock.now() + DEADLINE;
    loop {
        match RedisConnection::connect(url).await {
            Ok(connection) => return connection,
            Err(error) => assert!(SystemClock.now() < deadline, "{error}"),
        }
        // Blocks a thread of the runtime, but only while nothing else in the test could go on.
        std::thread::sleep(BETWEEN_DIALS);
    }
}

/// Returns a builder of a limiter on `connection`, with its own time and key prefix.
pub fn limiter(connection: &RedisConnection, prefix: &str, clock: &Arc<ManualClock>) -> RateLimiterBuilder {
    let prefix = RedisKey::try_from(prefix).expect("a prefix");
    let builder = RateLimiter::builder().redis(connection.clone()).redis_prefix(prefix);
    builder.redis_deadline(DEADLINE).clock(clock.clone())
}

/// A Redis limiter whose methods block.
#[derive(Debug)]
pub struct Blocking<'a, S: Strategy>(pub &'a RedisLimiter<S>);

/// Returns the key of this name.
pub fn key(name: &str) -> RedisKey {
    RedisKey::encode(name)
}

impl<S: Wire> Verbs<S> for Blocking<'_, S> {
    type Receipt = RedisReceipt;

    fn take<'l>(&self, name: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        wait_for(self.0.take(&key(name), limit, cost)).expect("a decision")
    }

    fn peek<'l>(&self, name: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        wait_for(self.0.peek(&key(name), limit, cost)).expect("a decision")
    }

    fn take_up_to<'l>(&self, name: &str, limit: &'l S::Limit, cost: u64) -> Granted<S::Decision<'l>> {
        wait_for(self.0.take_up_to(&key(name), limit, cost)).expect("a decision")
    }

    fn take_with_receipt_for<'l>(
        &self,
        name: &str,
        limit: &'l S::Limit,
        ask: Lease,
    ) -> Reserved<'l, S, RedisReceipt> {
        let reserved = wait_for(self.0.take_with_receipt_for(&key(name), limit, ask.cost, ask.lease))
            .expect("a decision");
        (reserved.decision, reserved.receipt)
    }

    fn take_postpaid<'l>(&self, name: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        wait_for(self.0.take_postpaid(&key(name), limit, cost)).expect("a decision")
    }

    fn take_postpaid_with_receipt<'l>(
        &self,
        name: &str,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Reserved<'l, S, RedisReceipt> {
        let reserved =
            wait_for(self.0.take_postpaid_with_receipt(&key(name), limit, cost)).expect("a decision");
        (reserved.decision, reserved.receipt)
    }

    fn debit<'l>(&self, name: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        wait_for(self.0.debit(&key(name), limit, cost)).expect("a decision")
    }

    fn refund(&self, name: &str, limit: &S::Limit, receipt: &RedisReceipt) -> u64 {
        wait_for(self.0.refund(&key(name), limit, receipt)).expect("an answer")
    }

    fn refund_units(&self, name: &str, limit: &S::Limit, units: u64) -> u64 {
        wait_for(self.0.refund_units(&key(name), limit, units)).expect("an answer")
    }

    fn reset(&self, name: &str) -> bool {
        wait_for(self.0.reset(&key(name))).expect("an answer")
    }

    fn recorded_at(receipt: &RedisReceipt) -> Timestamp {
        receipt.recorded_at()
    }
}
