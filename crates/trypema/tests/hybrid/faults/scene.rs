//! Instances on a driven clock, whose way to Redis can be harmed.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{Clock, ManualClock, SystemClock};
use trypema::redis::{OnFailure, RedisFailure};
use trypema::{Decision, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, key, limiter, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};
use trypema_testkit::subject::HybridStrategy;

/// What Redis is given for an answer.
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);

/// How much later than that an answer may be on a busy machine.
pub(crate) const ALLOWANCE: Duration = Duration::from_secs(2);

pub(crate) const CAPACITY: u64 = 120;
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// How often instances ask for leases.
pub(crate) const SYNC: Duration = Duration::from_millis(100);

/// Longer than any lease that is asked for so often, by far shorter than the window.
pub(crate) const A_LEASE: Duration = Duration::from_millis(180);

/// A suppressed limit denies some calls that the next may pass; so many in a row are the end.
const DENIALS: u64 = 40;

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) proxy: FaultProxy,
    pub(crate) clock: Arc<ManualClock>,
}

impl Scene {
    pub(crate) fn start() -> Self {
        Self::on(Server::start().unwrap())
    }

    pub(crate) fn on(server: Server) -> Self {
        let proxy = FaultProxy::start(server.addr()).unwrap();
        Self { server, proxy, clock: Arc::new(ManualClock::default()) }
    }

    /// An instance whose way leads through the proxy.
    pub(crate) fn instance(&self, on_failure: OnFailure) -> RateLimiter {
        let builder = limiter(&connect(&self.proxy.url()), "trypema", &self.clock).sync_interval(SYNC);
        builder.redis_deadline(DEADLINE).on_redis_failure(on_failure).build().unwrap()
    }

    /// Ends every fault of the network and waits until `rl` reaches Redis again.
    pub(crate) fn heal(&self, rl: &RateLimiter) {
        self.proxy.heal();
        // Whatever was held back or lost goes with its connection.
        self.proxy.cut();
        wait_until_reached(rl);
    }

    /// What Redis counts, asked past the proxy and past what instances remember.
    pub(crate) fn used<S: HybridStrategy>(&self, limit: &S::Limit) -> u64 {
        let rl = limiter(&connect(&self.server.url()), "trypema", &self.clock).build().unwrap();
        let usage = S::core(&wait_for(S::redis(&rl).usage(&key("ann"), limit)).unwrap());
        usage.limit() - usage.remaining()
    }

    /// Time passes until nothing that was ever counted counts.
    pub(crate) fn pass_windows(&self) {
        self.clock.advance(WINDOW * 3);
    }
}

/// A reset is never decided without Redis, and `nobody` is no key of any test.
pub(crate) fn wait_until_reached(rl: &RateLimiter) {
    let is_reached = || wait_for(rl.redis().fixed_window().reset(&key("nobody"))).is_ok();
    wait_until("Redis to be reached", is_reached).unwrap();
}

/// What is admitted at most under a limit of [`CAPACITY`].
pub(crate) fn most<S: HybridStrategy>() -> u64 {
    if S::NAME == "suppressed" { 2 * CAPACITY } else { CAPACITY }
}

pub(crate) fn take<S: HybridStrategy>(
    rl: &RateLimiter,
    limit: &S::Limit,
    cost: u64,
) -> Result<Decision, RedisFailure> {
    let started = SystemClock.now().as_micros();
    let taken = wait_for(S::hybrid(rl).take(&key("ann"), limit, cost));
    let took = Duration::from_micros(SystemClock.now().as_micros() - started);
    assert!(took < DEADLINE + ALLOWANCE, "{} took {took:?}", S::NAME);
    match taken {
        Ok(decision) => Ok(S::core(&decision)),
        Err(TrypemaError::RedisError(failure)) => Err(failure),
        Err(other) => panic!("{} {other}", S::NAME),
    }
}

pub(crate) fn held<S: HybridStrategy>(rl: &RateLimiter) -> u64 {
    S::hybrid(rl).held(&key("ann"))
}

/// Takes single units until the instance holds some; how many it took.
pub(crate) fn heat<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit) -> u64 {
    for taken in 1..=8 {
        assert!(take::<S>(rl, limit, 1).unwrap().is_allowed(), "{}", S::NAME);
        if held::<S>(rl) > 0 {
            return taken;
        }
    }
    panic!("{} is not leased", S::NAME);
}

/// Spends what is held, without Redis; how much that was.
pub(crate) fn spend_held<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit) -> u64 {
    let held = held::<S>(rl);
    for _ in 0..held {
        let decision = take::<S>(rl, limit, 1).unwrap();
        assert!(decision.is_allowed() && !decision.is_substitute(), "{} {decision:?}", S::NAME);
    }
    held
}

/// Takes single units until no more are to be had; how many there were.
pub(crate) fn take_all<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit) -> u64 {
    let (mut admitted, mut denied) = (0, 0);
    while denied < DENIALS {
        if take::<S>(rl, limit, 1).unwrap().is_allowed() {
            (admitted, denied) = (admitted + 1, 0);
        } else {
            denied += 1;
        }
        assert!(admitted <= 10 * CAPACITY, "{} never ends", S::NAME);
    }
    admitted
}
