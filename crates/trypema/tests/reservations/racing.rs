//! Sixteen callers that reserve, settle, release and abort at random, on every provider and under faults. The
//! bound of docs/guarantees.md holds: the units that were spent exceed the limit by no more than what was spent
//! beyond the estimates; and never more slots are held than there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use trypema::TrypemaError;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, OnDrop, Request, Reservation, ReserveOptions, SettledStatus};
use trypema_testkit::blocking::{connect, limiter, runtime, wait_for};
use trypema_testkit::random::Random;
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use super::{Scene, on_every_provider, rules};

const CALLERS: u64 = 16;
const ROUNDS: u64 = 40;
const LIMIT: u64 = 1_500;
/// The number of faults before the callers end.
const TURNS: u64 = 12;
const SLOTS: u64 = 5;
const HOLD: Duration = Duration::from_secs(60);

/// On a Cluster, the counters are in different slots.
const RULES: &str = "
units: [tokens]
rules:
  - {id: slots, scope: global, strategy: {concurrency: {limit: 5, hold: 60s}}}
  - {id: tokens, scope: global, unit: tokens, strategy: {fixed_window: {limit: 1500, window: 30d}}}
";

const OF_ANN: [(&str, &str); 1] = [("user", "ann")];

/// What the callers did together.
#[derive(Debug, Default)]
struct Tally {
    /// The units that were really spent.
    spent: AtomicU64,
    /// Those beyond the estimates.
    beyond: AtomicU64,
    /// Estimates that may or may not have been counted: their callers were told nothing.
    uncertain: AtomicU64,
    /// The slots that callers hold, and the most that they held together.
    inside: AtomicU64,
    most_inside: AtomicU64,
    denied: AtomicU64,
    /// The calls that failed.
    failed: AtomicU64,
    /// The faults that have been caused.
    turns: AtomicU64,
}

impl Tally {
    fn enter(&self) {
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.most_inside.fetch_max(inside, SeqCst);
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, SeqCst);
    }

    fn spend(&self, estimate: u64, actual: u64) {
        self.spent.fetch_add(actual, SeqCst);
        self.beyond.fetch_add(actual.saturating_sub(estimate), SeqCst);
    }

    /// Checks the bound, and that the store has counted what was spent.
    fn check(&self, provider: &str, left: u64) {
        let [spent, beyond, uncertain] =
            [&self.spent, &self.beyond, &self.uncertain].map(|count| count.load(SeqCst));
        assert!(spent <= LIMIT + beyond, "{provider}: {self:?}");
        assert!(self.most_inside.load(SeqCst) <= SLOTS, "{provider}: {self:?}");
        let least_left = LIMIT.saturating_sub(spent + uncertain);
        assert!(
            (least_left..=LIMIT.saturating_sub(spent)).contains(&left),
            "{provider}: {left} left, {self:?}"
        );
        assert!(self.denied.load(SeqCst) > 0 && spent > LIMIT / 20, "{provider}: {self:?}");
    }
}

/// The units left of a rule.
fn left_of(engine: &Engine, id: &str) -> u64 {
    let costs = [("tokens", 0), ("requests", 0)];
    let explained = wait_for(engine.explain(&Request::new(&OF_ANN).with_costs(&costs))).unwrap();
    explained.applying().find(|rule| rule.decision.rule.id == id).unwrap().left
}

fn held(engine: &Engine) -> usize {
    let holders = |key| wait_for(engine.holders(key)).unwrap().unwrap().len();
    holders("slots") + holders("tokens")
}

/// Lets other callers work while this one holds its slot.
async fn hold(random: &mut Random) {
    for _ in 0..random.below(4) {
        tokio::task::yield_now().await;
    }
}

/// A caller without faults: each call is answered.
async fn call(engine: Arc<Engine>, tally: Arc<Tally>, seed: u64) {
    let mut random = Random::seeded(seed);
    for round in 0..ROUNDS {
        let (estimate, actual) = (random.below(9), random.below(12));
        let costs = [("tokens", estimate)];
        let request = Request::new(&OF_ANN).with_costs(&costs);
        let on_drop = random.pick(&[OnDrop::Settle, OnDrop::Release]);
        let mut options = ReserveOptions::new(HOLD).unwrap().on_drop(on_drop);
        if random.once_in(3) {
            options = options.with_id(format!("{seed} {round}")).unwrap();
        }
        if random.once_in(12) {
            // Leaves while the request is under way.
            tally.uncertain.fetch_add(estimate, SeqCst);
            let options = options.on_drop(OnDrop::Release);
            let polls = random.between(1, 3);
            let mut reserving = std::pin::pin!(engine.reserve(&request, &options));
            for _ in 0..polls {
                let polled =
                    std::future::poll_fn(|context| std::task::Poll::Ready(reserving.as_mut().poll(context)));
                if polled.await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            continue;
        }
        let reservation = engine.reserve(&request, &options).await.unwrap();
        if !reservation.is_allowed() {
            tally.denied.fetch_add(1, SeqCst);
            continue;
        }
        tally.enter();
        hold(&mut random).await;
        tally.leave();
        end(&engine, &tally, reservation, &mut random, [estimate, actual], on_drop).await;
    }
}

async fn end(
    engine: &Engine,
    tally: &Tally,
    mut reservation: Reservation,
    random: &mut Random,
    [estimate, actual]: [u64; 2],
    on_drop: OnDrop,
) {
    match random.below(5) {
        0 => {
            assert!(reservation.release().await.is_complete());
        }
        1 => {
            drop(reservation);
            tally.spend(estimate, if on_drop == OnDrop::Settle { estimate } else { 0 });
        }
        2 => {
            // Two servers settle it.
            let text = reservation.into_text().unwrap();
            let costs = [("tokens", actual)];
            let (one, other) = tokio::join!(engine.settle(&text, &costs), engine.settle(&text, &costs));
            let is_settled = |status: &SettledStatus| matches!(status, SettledStatus::Settled { .. });
            let settled = |rules: Vec<trypema::rules::SettledRule>| {
                rules.iter().filter(|rule| is_settled(&rule.status)).count()
            };
            assert_eq!(settled(one.unwrap().rules) + settled(other.unwrap().rules), 2, "each counter once");
            tally.spend(estimate, actual);
        }
        _ => {
            assert!(reservation.settle(&[("tokens", actual)]).await.unwrap().is_complete());
            tally.spend(estimate, actual);
        }
    }
}

#[test]
fn sixteen_callers_keep_the_bound_on_every_provider() {
    on_every_provider(RULES, |Scene { provider, engine, clock, .. }| {
        let tally = Arc::new(Tally::default());
        let callers: Vec<_> =
            (0..CALLERS).map(|seed| runtime().spawn(call(engine.clone(), tally.clone(), seed))).collect();
        callers.into_iter().for_each(|caller| wait_for(caller).unwrap());
        // What was dropped is settled by tasks. Only requests that were left keep their units.
        let is_settled = || {
            let left = left_of(engine, "tokens");
            let spent = tally.spent.load(SeqCst);
            left + spent + tally.uncertain.load(SeqCst) >= LIMIT || left == 0
        };
        wait_until("dropped reservations to be settled", is_settled).unwrap();
        clock.advance(HOLD);
        tally.check(provider, left_of(engine, "tokens"));
        assert_eq!((left_of(engine, "slots"), held(engine)), (SLOTS, 0), "{provider}: all slots are free");
    });
}

/// A caller that repeats each call under its id until it is answered.
async fn call_until_answered(engine: Arc<Engine>, tally: Arc<Tally>, seed: u64) {
    let mut random = Random::seeded(seed);
    for round in 0.. {
        if tally.turns.load(SeqCst) >= TURNS {
            return;
        }
        let (estimate, actual) = (random.below(16), random.below(20));
        let costs = [("tokens", estimate)];
        let request = Request::new(&OF_ANN).with_costs(&costs);
        let options = ReserveOptions::new(HOLD).unwrap().on_drop(OnDrop::Keep);
        let options = options.with_id(format!("{seed} {round}")).unwrap();
        let mut has_failed = false;
        let reservation = loop {
            match engine.reserve(&request, &options).await {
                Ok(reservation) => break reservation,
                Err(error) => assert!(matches!(error, TrypemaError::RedisError(_)), "{error}"),
            }
            has_failed = true;
            tally.failed.fetch_add(1, SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        if !reservation.is_allowed() {
            // A try whose reply was lost may be executed after this one.
            tally.uncertain.fetch_add(if has_failed { estimate } else { 0 }, SeqCst);
            tally.denied.fetch_add(1, SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        tally.enter();
        // Long enough that faults occur.
        tokio::time::sleep(Duration::from_millis(random.below(12))).await;
        tally.leave();
        let text = reservation.into_text().unwrap();
        let is_failed = |status: &SettledStatus| matches!(status, SettledStatus::Failed(_));
        loop {
            let settled = engine.settle(&text, &[("tokens", actual)]).await.unwrap();
            assert!(!settled.rules.iter().any(|rule| rule.status == SettledStatus::NotOutstanding));
            if !settled.rules.iter().any(|rule| is_failed(&rule.status)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tally.spend(estimate, actual);
    }
}

/// Runs the callers while `disturb` is called again and again.
fn under_faults(server: &Server, url: &str, provider: &str, disturb: impl Fn(u64) + Send + Sync) {
    let clock = Arc::new(ManualClock::default());
    let builder = limiter(&connect(url), provider, &clock).redis_deadline(Duration::from_millis(500));
    let rl = Arc::new(builder.build().unwrap());
    let engine = Arc::new(match provider {
        "hybrid" => Engine::hybrid(rl, rules(RULES)),
        _ => Engine::redis(rl, rules(RULES)),
    });
    let (tally, is_done) = (Arc::new(Tally::default()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                if is_done.load(SeqCst) {
                    break;
                }
                disturb(turn);
                tally.turns.fetch_add(1, SeqCst);
            }
        });
        let callers: Vec<_> = (0..CALLERS)
            .map(|seed| runtime().spawn(call_until_answered(engine.clone(), tally.clone(), seed)))
            .collect();
        let ended: Vec<_> = callers.into_iter().map(wait_for).collect();
        is_done.store(true, SeqCst);
        ended.into_iter().for_each(Result::unwrap);
    });
    let direct = Arc::new(limiter(&connect(&server.url()), provider, &clock).build().unwrap());
    let engine = Engine::redis(direct, rules(RULES));
    assert!(tally.failed.load(SeqCst) > 20, "{provider}: {tally:?}");
    // A slot of a request whose reply was lost is free after its hold.
    clock.advance(HOLD);
    tally.check(provider, left_of(&engine, "tokens"));
    assert_eq!((left_of(&engine, "slots"), held(&engine)), (SLOTS, 0), "{provider}: all slots are free");
}

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

#[test]
fn the_bound_holds_while_connections_are_cut() {
    for provider in ["redis", "hybrid"] {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        under_faults(&server, &proxy.url(), provider, |turn| {
            pause(30);
            match turn % 4 {
                0 => proxy.cut(),
                1 => proxy.cut_on_reply(),
                2 => proxy.drop_replies(),
                _ => {
                    server.control().unwrap().command(&["SCRIPT", "FLUSH"]).unwrap();
                }
            }
            pause(10);
            proxy.heal();
            pause(60);
        });
    }
}

/// The server writes everything to disk before it replies.
#[test]
fn the_bound_holds_while_redis_is_killed() {
    for provider in ["redis", "hybrid"] {
        let durable = Server::builder().set("appendonly", "yes").set("appendfsync", "always");
        let server = durable.start().unwrap();
        under_faults(&server, &server.url(), provider, |turn| {
            pause(100);
            if turn < TURNS {
                server.kill_9().unwrap();
                server.restart().unwrap();
            }
        });
    }
}
