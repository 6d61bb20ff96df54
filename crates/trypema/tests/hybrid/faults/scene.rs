//! Instances on a manual clock that reach Redis through a fault proxy.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{Clock, ManualClock, SystemClock};
use trypema::redis::{OnFailure, RedisFailure};
use trypema::{Decision, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, key, limiter, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};
use trypema_testkit::subject::HybridStrategy;

/// The deadline of each Redis call. Calls wait for it often, and a busy machine must rarely miss it.
pub(crate) const DEADLINE: Duration = Duration::from_millis(500);

/// The time by which a call may exceed its deadline on a busy machine.
pub(crate) const ALLOWANCE: Duration = Duration::from_secs(5);

pub(crate) const CAPACITY: u64 = 120;
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// The interval between lease requests.
pub(crate) const SYNC: Duration = Duration::from_millis(100);

/// Longer than any lease at this interval, and much shorter than the window.
pub(crate) const A_LEASE: Duration = Duration::from_millis(180);

/// The number of consecutive denials after which a limit counts as exhausted. A suppressed limit may deny one
/// request and admit the next.
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

    /// An instance that reaches Redis through the proxy.
    pub(crate) fn instance(&self, on_failure: OnFailure) -> RateLimiter {
        let builder = limiter(&connect(&self.proxy.url()), "trypema", &self.clock).sync_interval(SYNC);
        builder.redis_deadline(DEADLINE).on_redis_failure(on_failure).build().unwrap()
    }

    /// Ends every network fault and waits until `rl` reaches Redis again.
    pub(crate) fn heal(&self, rl: &RateLimiter) {
        self.proxy.heal();
        // Cutting the connections also discards delayed and lost replies.
        self.proxy.cut();
        wait_until_reached(rl);
    }

    /// The units that Redis has counted, read without the proxy and without any instance's memory.
    pub(crate) fn used<S: HybridStrategy>(&self, limit: &S::Limit) -> u64 {
        let rl = limiter(&connect(&self.server.url()), "trypema", &self.clock).build().unwrap();
        let usage = S::core(&wait_for(S::redis(&rl).usage(&key("ann"), limit)).unwrap());
        usage.limit() - usage.remaining()
    }

    /// Advances the clock until nothing that was taken before still counts.
    pub(crate) fn pass_windows(&self) {
        self.clock.advance(WINDOW * 3);
    }
}

/// Resets the unused key `nobody` until that succeeds. A reset always needs Redis.
pub(crate) fn wait_until_reached(rl: &RateLimiter) {
    let is_reached = || wait_for(rl.redis().fixed_window().reset(&key("nobody"))).is_ok();
    wait_until("Redis to be reached", is_reached).unwrap();
}

/// The most units that a limit of [`CAPACITY`] may admit.
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

/// Takes single units until the instance holds a lease. Returns the number taken.
pub(crate) fn call_until_leased<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit) -> u64 {
    for taken in 1..=8 {
        assert!(take::<S>(rl, limit, 1).unwrap().is_allowed(), "{}", S::NAME);
        if held::<S>(rl) > 0 {
            return taken;
        }
    }
    panic!("{} is not leased", S::NAME);
}

/// Spends the leased units without Redis. Returns their number.
pub(crate) fn spend_held<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit) -> u64 {
    let held = held::<S>(rl);
    for _ in 0..held {
        let decision = take::<S>(rl, limit, 1).unwrap();
        assert!(decision.is_allowed() && !decision.is_substitute(), "{} {decision:?}", S::NAME);
    }
    held
}

/// Takes single units until the limit denies them. Returns the number admitted.
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
