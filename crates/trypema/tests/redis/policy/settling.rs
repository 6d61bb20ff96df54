//! `OnFailure::Local`: a share is admitted locally and charged to Redis once it is reachable again.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::RedisLimiter;
use trypema::strategy::Wire;
use trypema::{FixedWindowLimit, RateLimiter};
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use super::{HASTY, Orphan, among, limiter, peek, take, wait_until_asked};
use crate::faults::limits::{CAPACITY, Claim, for_every_strategy};

/// Tries to take a unit `tries` times. Returns the number admitted.
fn admitted<S: Wire>(limiter: &RedisLimiter<S>, limit: &S::Limit, tries: u64) -> u64 {
    let is_admitted = |_: &u64| {
        let decision = take(limiter, limit, 1);
        assert!(decision.is_substitute(), "{} {decision:?}", S::NAME);
        decision.is_allowed()
    };
    (0..tries).filter(is_admitted).count() as u64
}

/// The units that Redis has counted. A busy machine may miss a short deadline, so this waits for its answer.
fn used<S: Wire>(limiter: &RedisLimiter<S>, limit: &S::Limit) -> u64 {
    let mut used = None;
    wait_until("Redis to answer", || {
        let usage = peek(limiter, limit, 0);
        used = (!usage.is_substitute()).then(|| usage.limit() - usage.remaining());
        used.is_some()
    })
    .unwrap();
    used.unwrap()
}

/// An outage: a share is admitted while it lasts, and afterwards Redis has counted it.
struct Outage<'a> {
    orphan: &'a Orphan,
    share: u64,
}

impl Claim for Outage<'_> {
    fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
        for _ in 0..10 * CAPACITY {
            let foreseen = peek(limiter, limit, 1);
            assert!(foreseen.is_allowed() && foreseen.is_substitute(), "a peek spends nothing: {}", S::NAME);
        }
        let admitted = admitted(limiter, limit, 2 * CAPACITY);
        // Suppressed may admit up to twice its limit by chance.
        let most = if S::NAME == "suppressed" { 2 * self.share } else { self.share };
        assert!((self.share..=most).contains(&admitted), "{} admitted {admitted}", S::NAME);

        self.orphan.bring_back();
        for _ in 0..3 {
            assert_eq!(used(limiter, limit), admitted, "{} settles once", S::NAME);
        }
        assert!(!take(limiter, limit, 1).is_substitute());
        assert_eq!(used(limiter, limit), admitted + 1, "{}", S::NAME);
        self.orphan.server.kill_9().unwrap();
    }
}

#[test]
fn a_share_is_admitted_and_settled() {
    let orphan = Orphan::with(among(4));
    for_every_strategy(&orphan.rl, &Outage { orphan: &orphan, share: CAPACITY / 4 });
}

#[test]
fn one_call_is_admitted_however_many_share() {
    let orphan = Orphan::with(among(1_000));
    for_every_strategy(&orphan.rl, &Outage { orphan: &orphan, share: 1 });
}

#[test]
fn never_stays_never_and_the_whole_fits() {
    struct Fits;

    impl Claim for Fits {
        fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
            assert!(take(limiter, limit, CAPACITY).is_allowed(), "{}", S::NAME);
            assert!(take(limiter, limit, CAPACITY * 100).is_never(), "{}", S::NAME);
        }
    }

    for_every_strategy(&Orphan::with(among(4)).rl, &Fits);
}

/// A limiter with `OnFailure::Local` behind a proxy.
struct Proxied {
    _server: Server,
    proxy: FaultProxy,
    rl: RateLimiter,
}

impl Proxied {
    fn start(deadline: Duration) -> Self {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let rl = limiter((connect(&proxy.url()), deadline), among(1), &Arc::default());
        Self { _server: server, proxy, rl }
    }
}

/// Connection attempts that hang have sent nothing, so all local admissions are still to be charged.
#[test]
fn what_was_admitted_while_dials_hang_is_settled() {
    struct Settles<'a>(&'a Proxied);

    impl Claim for Settles<'_> {
        fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
            let Self(Proxied { proxy, rl, .. }) = self;
            proxy.cut();
            proxy.freeze();
            let admitted = admitted(limiter, limit, CAPACITY / 2);
            assert_eq!(admitted, CAPACITY / 2, "{}", S::NAME);
            proxy.heal();
            wait_until_asked(rl);
            assert_eq!(used(limiter, limit), admitted, "{}", S::NAME);
        }
    }

    let proxied = Proxied::start(HASTY);
    for_every_strategy(&proxied.rl, &Settles(&proxied));
}

/// A caller that is dropped during settlement does not lose the units to be charged.
#[test]
fn a_caller_that_goes_away_while_settling_loses_nothing() {
    let proxied = Proxied::start(Duration::from_secs(2));
    let Proxied { proxy, rl, .. } = &proxied;
    let (limiter, limit) = (rl.redis().fixed_window(), ample());
    proxy.cut();
    proxy.freeze();
    // While the circuit breaker is open, calls are admitted locally at once. Then a call waits for a
    // connection attempt that hangs, and is dropped.
    let (ann, patience) = (key("ann"), Duration::from_millis(100));
    let mut admitted = 0;
    loop {
        match wait_for(async { tokio::time::timeout(patience, limiter.take(&ann, &limit, 1)).await }) {
            Ok(decision) => admitted += u64::from(decision.unwrap().is_allowed()),
            Err(_) if admitted > 0 => break,
            Err(_) => {}
        }
    }
    proxy.heal();
    wait_until_asked(rl);
    let used = used(limiter, &limit);
    assert!(used >= admitted, "{used} used of {admitted} admitted");
}

/// Settlement is part of the call and shares its deadline.
#[test]
fn settling_shares_the_deadline() {
    let deadline = Duration::from_secs(4);
    let proxied = Proxied::start(deadline);
    let Proxied { proxy, rl, .. } = &proxied;
    let (limiter, limit) = (rl.redis().fixed_window(), ample());
    proxy.freeze();
    assert_eq!(admitted(limiter, &limit, 1), 1);
    proxy.heal();
    proxy.delay(deadline * 3 / 4);
    let start = SystemClock.now();
    take(limiter, &limit, 1);
    let took = Duration::from_micros(SystemClock.now().as_micros() - start.as_micros());
    // With a deadline of its own, each of the two would wait for its reply, for six seconds together.
    assert!(took < deadline * 11 / 8, "took {took:?} of {deadline:?}");
}

/// A limit that is never reached.
fn ample() -> FixedWindowLimit {
    FixedWindowLimit::new(1 << 40, Duration::from_secs(100 * 86_400)).unwrap()
}
