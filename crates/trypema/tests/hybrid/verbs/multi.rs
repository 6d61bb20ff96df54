//! Several checks that are taken all or nothing, whether Redis or a lease decides each.

use trypema::strategy::{Absolute, FixedWindow, TokenBucket};
use trypema::{Check, Limit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::random::Random;
use trypema_testkit::subject::HybridStrategy;

use super::scene::{Scene, WINDOW, call_until_leased, held, release, used};

const CAPACITY: u64 = 100;

/// A leased key, and a key that Redis decides.
struct Pair {
    rl: RateLimiter,
    hot: Limit,
    cold: Limit,
    taken: u64,
    scene: Scene,
}

impl Pair {
    fn start() -> Self {
        let scene = Scene::start();
        let rl = scene.instance();
        let limit = Absolute::limit(CAPACITY, WINDOW);
        let taken = call_until_leased::<Absolute>(&rl, "hot", &limit);
        let (hot, cold) = (Limit::from(limit), Limit::from(FixedWindow::limit(CAPACITY, WINDOW)));
        Self { rl, hot, cold, taken, scene }
    }

    fn checks(&self, hot: u64, cold: u64) -> [Check<'_>; 2] {
        [Check::new("hot", &self.hot, hot), Check::new("cold", &self.cold, cold)]
    }

    fn take(&self, hot: u64, cold: u64) -> bool {
        wait_for(self.rl.hybrid().take_all(&self.checks(hot, cold))).unwrap().is_allowed
    }

    /// Releases all leases. Returns the units that Redis counts for both keys.
    fn used(&self) -> [u64; 2] {
        release(&self.rl);
        [
            used::<Absolute>(&self.rl, "hot", &Absolute::limit(CAPACITY, WINDOW)),
            used::<FixedWindow>(&self.rl, "cold", &FixedWindow::limit(CAPACITY, WINDOW)),
        ]
    }
}

#[test]
fn both_are_spent() {
    let pair = Pair::start();
    let before = held::<Absolute>(&pair.rl, "hot");
    assert!(pair.take(2, 5));
    assert_eq!(held::<Absolute>(&pair.rl, "hot"), before - 2, "out of the lease");
    assert_eq!(pair.used(), [pair.taken + 2, 5]);
}

#[test]
fn neither_is_spent_if_redis_denies_one() {
    let pair = Pair::start();
    let before = held::<Absolute>(&pair.rl, "hot");
    assert!(!pair.take(1, CAPACITY + 1));
    assert_eq!(held::<Absolute>(&pair.rl, "hot"), before);
    assert_eq!(pair.used(), [pair.taken, 0]);
}

#[test]
fn neither_is_spent_if_the_leased_one_is_denied() {
    let pair = Pair::start();
    for hot in [CAPACITY, 3 * CAPACITY] {
        for _ in 0..3 {
            assert!(!pair.take(hot, 1));
        }
    }
    assert_eq!(pair.used(), [pair.taken, 0]);
}

/// Nothing is spent, so the check that would be admitted reports what is left: whether Redis, a lease or a remembered
/// denial decides the other one.
#[test]
fn a_denied_request_reports_what_is_left() {
    let pair = Pair::start();
    let left = || {
        let usage = wait_for(pair.rl.hybrid().peek_all(&pair.checks(0, 0))).unwrap();
        usage.decisions[0].remaining()
    };
    for _ in 0..2 {
        let before = left();
        let denied = wait_for(pair.rl.hybrid().take_all(&pair.checks(1, CAPACITY + 1))).unwrap();
        assert!(denied.decisions[0].is_allowed() && !denied.decisions[1].is_allowed());
        assert_eq!(denied.decisions[0].remaining(), before);
    }
    for hot in [CAPACITY, CAPACITY, 3 * CAPACITY] {
        let denied = wait_for(pair.rl.hybrid().take_all(&pair.checks(hot, 1))).unwrap();
        assert!(!denied.decisions[0].is_allowed() && denied.decisions[1].is_allowed());
        assert_eq!(denied.decisions[1].remaining(), CAPACITY, "{hot}");
    }
}

#[test]
fn neither_is_spent_if_redis_is_gone() {
    let pair = Pair::start();
    let before = held::<Absolute>(&pair.rl, "hot");
    pair.scene.server.kill_9().unwrap();
    let failed = wait_for(pair.rl.hybrid().take_all(&pair.checks(1, 1))).unwrap_err();
    assert!(matches!(failed, TrypemaError::RedisError(_)), "{failed}");
    assert_eq!(held::<Absolute>(&pair.rl, "hot"), before);
}

#[test]
fn receipts_give_everything_back_once() {
    let pair = Pair::start();
    let checks = pair.checks(2, 7);
    let reserved = wait_for(pair.rl.hybrid().take_all_with_receipts(&checks)).unwrap();
    assert!(reserved.is_allowed && reserved.receipts.iter().all(Option::is_some));
    for _ in 0..2 {
        wait_for(pair.rl.hybrid().refund_all(&checks, &reserved.receipts)).unwrap();
    }
    assert_eq!(pair.used(), [pair.taken, 0]);
    let denied = wait_for(pair.rl.hybrid().take_all_with_receipts(&pair.checks(1, CAPACITY + 1))).unwrap();
    assert!(!denied.is_allowed && denied.receipts.iter().all(Option::is_none));
}

#[test]
fn a_postpaid_check_is_spent_in_redis_beside_a_lease() {
    let pair = Pair::start();
    let before = held::<Absolute>(&pair.rl, "hot");
    let take = |hot: u64| {
        let [hot, cold] = pair.checks(hot, 3 * CAPACITY);
        wait_for(pair.rl.hybrid().take_all(&[hot, cold.postpaid()])).unwrap().is_allowed
    };
    assert!(!take(CAPACITY), "the leased one is denied");
    assert_eq!(used::<FixedWindow>(&pair.rl, "cold", &FixedWindow::limit(CAPACITY, WINDOW)), 0);
    assert!(take(1));
    assert_eq!(held::<Absolute>(&pair.rl, "hot"), before - 1, "out of the lease");
    assert!(!take(1), "nothing is left");
    assert_eq!(held::<Absolute>(&pair.rl, "hot"), before - 1);
    assert_eq!(pair.used(), [pair.taken + 1, CAPACITY]);
}

/// Neither leases nor remembered denials apply to postpaid checks and debits.
#[test]
fn postpaid_checks_and_debits_are_always_decided_by_redis() {
    let pair = Pair::start();
    let before = held::<Absolute>(&pair.rl, "hot");
    let [hot, cold] = pair.checks(1, 1).map(Check::postpaid);
    assert!(wait_for(pair.rl.hybrid().peek_all(&[hot])).unwrap().is_allowed);
    assert!(wait_for(pair.rl.hybrid().take_all(&[hot])).unwrap().is_allowed);
    assert_eq!(held::<Absolute>(&pair.rl, "hot"), before, "not out of the lease");

    let limit = FixedWindow::limit(CAPACITY, WINDOW);
    let windows = pair.rl.hybrid().fixed_window();
    let debited = wait_for(windows.debit(&key("cold"), &limit, 2 * CAPACITY)).unwrap();
    assert!(debited.is_allowed() && debited.remaining() == 0, "{debited:?}");
    assert!(!wait_for(windows.take_postpaid(&key("cold"), &limit, 1)).unwrap().is_allowed());
    assert!(!wait_for(pair.rl.hybrid().take_all(&[cold])).unwrap().is_allowed);
    let calls = pair.scene.calls();
    assert!(!wait_for(pair.rl.hybrid().take_all(&[cold])).unwrap().is_allowed);
    assert_eq!(pair.scene.calls(), calls + 1, "the denial was not remembered");
    // Another instance resets the key, of which this one knows nothing.
    assert!(wait_for(pair.rl.redis().fixed_window().reset(&key("cold"))).unwrap());
    assert!(wait_for(pair.rl.hybrid().take_all(&[cold])).unwrap().is_allowed);
    assert_eq!(pair.used(), [pair.taken + 1, 1]);
}

#[test]
fn looking_spends_nothing() {
    let pair = Pair::start();
    let seen = wait_for(pair.rl.hybrid().peek_all(&pair.checks(1, 1))).unwrap();
    assert!(seen.is_allowed);
    let remaining: Vec<u64> = seen.decisions.iter().map(|decision| decision.remaining()).collect();
    assert_eq!(remaining, [CAPACITY - pair.taken - 1, CAPACITY - 1]);
    assert!(!wait_for(pair.rl.hybrid().peek_all(&pair.checks(1, CAPACITY + 1))).unwrap().is_allowed);
    assert_eq!(pair.used(), [pair.taken, 0]);
}

#[test]
fn a_key_cannot_be_asked_for_twice() {
    let pair = Pair::start();
    let [hot, _] = pair.checks(1, 1);
    let failed = wait_for(pair.rl.hybrid().take_all(&[hot, hot])).unwrap_err();
    assert!(matches!(failed, TrypemaError::InvalidChecks { .. }), "{failed}");
    assert!(
        wait_for(pair.rl.hybrid().take_all(&[])).unwrap().is_allowed,
        "of nothing there is always enough"
    );
}

/// Two instances take from both keys until one is exhausted: each call takes from both or from none.
#[test]
fn what_is_taken_together_is_the_same_of_both() {
    for seed in 0..4 {
        let scene = Scene::start();
        let instances = [scene.instance(), scene.instance()];
        let limits = [
            Limit::from(FixedWindow::limit(CAPACITY, WINDOW)),
            Limit::from(TokenBucket::limit(2 * CAPACITY, WINDOW)),
        ];
        let mut random = Random::seeded(seed);
        let (mut both, mut alone) = (0, 0);
        for _ in 0..400 {
            let (rl, cost) = (&instances[random.below(2) as usize], random.between(1, 3));
            let checks = [Check::new("ann", &limits[0], cost), Check::new("ann", &limits[1], cost)];
            // Sometimes from the second key alone, so that both keys deny at times.
            let count = if random.once_in(4) { 1 } else { 2 };
            let taken = wait_for(rl.hybrid().take_all(&checks[2 - count..])).unwrap();
            let units = if taken.is_allowed { cost } else { 0 };
            if count == 2 { both += units } else { alone += units }
        }
        instances.iter().for_each(release);
        let rl = &instances[0];
        assert_eq!(
            used::<FixedWindow>(rl, "ann", &FixedWindow::limit(CAPACITY, WINDOW)),
            both,
            "seed {seed}"
        );
        let tokens = used::<TokenBucket>(rl, "ann", &TokenBucket::limit(2 * CAPACITY, WINDOW));
        assert_eq!(tokens, both + alone, "seed {seed}");
        assert!(both > CAPACITY / 2 && both <= CAPACITY, "seed {seed}: {both}");
    }
}
