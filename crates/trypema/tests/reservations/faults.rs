//! Lost replies, repeated calls, and servers that end between a reservation and its settlement.

use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::redis::OnFailure;
use trypema::rules::{Engine, OnDrop, Request, Reservation, ReserveOptions, SettledStatus, Settlement};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, limiter, runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use super::{a_minute, rules};

const RULES: &str = "
units: [tokens]
rules:
  - {id: slots, scope: user, strategy: {concurrency: {limit: 2, hold: 20s}}}
  - {id: tokens, scope: user, unit: tokens, strategy: {fixed_window: {limit: 100, window: 1d}}}
";

const ANN: [(&str, &str); 1] = [("user", "ann")];

pub(crate) type NewEngine = fn(Arc<RateLimiter>, trypema::rules::RuleSet) -> Engine;

pub(crate) const SHARED: [(&str, NewEngine); 2] = [("redis", Engine::redis), ("hybrid", Engine::hybrid)];

/// A server behind a proxy, an engine that calls it through the proxy, and one that calls it directly.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) proxy: FaultProxy,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) direct: Arc<Engine>,
}

impl Scene {
    pub(crate) fn new(new: NewEngine) -> Self {
        Self::with_policy(new, OnFailure::Fail)
    }

    pub(crate) fn with_policy(new: NewEngine, policy: OnFailure) -> Self {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let clock = Arc::new(ManualClock::default());
        let engine = |url: &str, deadline| {
            let rl = limiter(&connect(url), "faults", &clock).redis_deadline(deadline);
            let rl = rl.on_redis_failure(policy).build().unwrap();
            Arc::new(new(Arc::new(rl), rules(RULES)))
        };
        let through = engine(&proxy.url(), Duration::from_millis(400));
        let direct = engine(&server.url(), Duration::from_secs(20));
        // The connection is there before the first fault.
        wait_for(through.holders("slots|user=ann")).unwrap();
        Self { engine: through, direct, server, proxy, clock }
    }

    pub(crate) fn heal(&self) {
        self.proxy.heal();
        let is_there = || wait_for(self.engine.holders("slots|user=ann")).is_ok();
        wait_until("Redis to be called again", is_there).unwrap();
    }

    pub(crate) fn left(&self) -> [u64; 2] {
        let costs = [("tokens", 0), ("requests", 0)];
        let explained = wait_for(self.direct.explain(&Request::new(&ANN).with_costs(&costs))).unwrap();
        ["slots", "tokens"]
            .map(|id| explained.applying().find(|rule| rule.decision.rule.id == id).unwrap().left)
    }
}

pub(crate) fn reserve(engine: &Arc<Engine>, options: &ReserveOptions) -> Result<Reservation, TrypemaError> {
    let costs = [("tokens", 30)];
    wait_for(engine.reserve(&Request::new(&ANN).with_costs(&costs), &options.clone().on_drop(OnDrop::Keep)))
}

/// Every way in which a request is executed and its caller is not told.
pub(crate) const LOSSES: [fn(&FaultProxy); 2] = [FaultProxy::drop_replies, FaultProxy::cut_on_reply];

#[test]
fn a_settlement_whose_reply_was_lost_is_made_once() {
    for ((provider, new), lose) in SHARED.into_iter().flat_map(|shared| LOSSES.map(|lose| (shared, lose))) {
        let scene = Scene::new(new);
        let text = reserve(&scene.engine, &a_minute().with_id("mine").unwrap()).unwrap().into_text().unwrap();
        lose(&scene.proxy);
        let lost = wait_for(scene.engine.settle(&text, &[("tokens", 10)])).unwrap();
        let is_failed = |status: &SettledStatus| matches!(status, SettledStatus::Failed(_));
        assert!(lost.rules.iter().all(|rule| is_failed(&rule.status)), "{provider}: {lost:?}");
        scene.heal();
        let again = wait_for(scene.engine.settle(&text, &[("tokens", 10)])).unwrap();
        assert!(again.rules.iter().all(|rule| rule.status == SettledStatus::SettledBefore), "{again:?}");
        assert_eq!(scene.left(), [2, 90], "{provider}: settled once");
    }
}

#[test]
fn another_server_settles_the_reservation_of_one_that_ended() {
    for (provider, new) in SHARED {
        let Scene { server, proxy, clock, engine, direct } = Scene::new(new);
        let text = reserve(&engine, &a_minute()).unwrap().into_text().unwrap();
        proxy.refuse();
        drop(engine);
        server.control().unwrap().command(&["SCRIPT", "FLUSH"]).unwrap();
        assert_eq!(
            wait_for(direct.renew(&text, Duration::from_secs(60))).unwrap(),
            Some(Duration::from_secs(20))
        );
        let settled = wait_for(direct.settle(&text, &[("tokens", 45)])).unwrap();
        assert!(settled.is_complete(), "{provider}: {settled:?}");
        let scene = Scene { engine: Arc::clone(&direct), direct, server, proxy, clock };
        assert_eq!(scene.left(), [2, 55], "{provider}");
    }
}

/// A restart without persistence loses counters and tables together: what is settled afterwards is not known, and
/// refunds nothing.
#[test]
fn a_restart_forgets_reservations_with_their_counters() {
    for (provider, new) in SHARED {
        let scene = Scene::new(new);
        let text = reserve(&scene.engine, &a_minute()).unwrap().into_text().unwrap();
        scene.server.kill_9().unwrap();
        let lost = wait_for(scene.engine.settle(&text, &[])).unwrap();
        assert!(!lost.is_complete() && lost.rules.len() == 2, "{provider}: {lost:?}");
        scene.server.restart().unwrap();
        scene.heal();
        let direct_is_there = || wait_for(scene.direct.holders("slots|user=ann")).is_ok();
        wait_until("Redis to be called again", direct_is_there).unwrap();
        let unknown = wait_for(scene.engine.settle(&text, &[("tokens", 0)])).unwrap();
        assert!(unknown.rules.iter().all(|rule| rule.status == SettledStatus::NotOutstanding), "{unknown:?}");
        assert_eq!(scene.left(), [2, 100], "{provider}");
    }
}

/// The text of a reservation survives its value. So does the value itself: it can settle again after a failure.
#[test]
fn a_failed_settlement_is_repeated_with_the_same_value() {
    for ((provider, new), lose) in SHARED.into_iter().flat_map(|shared| LOSSES.map(|lose| (shared, lose))) {
        let scene = Scene::new(new);
        let mut reservation = reserve(&scene.engine, &a_minute()).unwrap();
        scene.proxy.refuse();
        let failed = wait_for(reservation.settle(&[("tokens", 10)])).unwrap();
        assert!(!failed.is_settled() && failed.rules.len() == 2, "{provider}: {failed:?}");
        assert!(reservation.text().is_some(), "{provider}: still outstanding");
        scene.heal();
        assert_eq!(scene.left(), [1, 70], "{provider}");
        lose(&scene.proxy);
        let lost = wait_for(reservation.settle(&[("tokens", 10)])).unwrap();
        assert!(!lost.is_settled(), "{provider}: {lost:?}");
        scene.heal();
        let again = wait_for(reservation.settle(&[("tokens", 10)])).unwrap();
        assert!(again.rules.iter().all(|rule| rule.status == SettledStatus::NotOutstanding), "{again:?}");
        assert_eq!((scene.left(), reservation.text()), ([2, 90], None), "{provider}: settled once");
        assert_eq!(wait_for(reservation.release()), Settlement::default(), "{provider}");
    }
}

#[test]
fn a_failed_settlement_is_tried_again_when_its_value_is_dropped() {
    for (provider, new) in SHARED {
        let scene = Scene::new(new);
        let mut reservation = reserve(&scene.engine, &a_minute()).unwrap();
        scene.proxy.refuse();
        assert!(!wait_for(reservation.settle(&[("tokens", 10)])).unwrap().is_settled(), "{provider}");
        scene.heal();
        drop(reservation);
        wait_until("the settlement", || scene.left() == [2, 90]).unwrap();
    }
}

/// Also at the costs of a release or a settlement that has failed before.
#[test]
fn a_dropped_reservation_is_settled_after_an_outage() {
    type End = fn(&mut Reservation);
    let ends: [(End, [u64; 2]); 3] = [
        (|_| (), [2, 70]),
        (|reservation| assert!(!wait_for(reservation.release()).is_settled()), [2, 100]),
        (
            |reservation| assert!(!wait_for(reservation.settle(&[("tokens", 45)])).unwrap().is_settled()),
            [2, 55],
        ),
    ];
    let cases = SHARED.into_iter().flat_map(|shared| ends.map(|end| (shared, end)));
    for ((provider, new), (end, expected)) in cases {
        let scene = Scene::new(new);
        let request = Request::new(&ANN).with_costs(&[("tokens", 30)]);
        let mut reservation = wait_for(scene.engine.reserve(&request, &a_minute())).unwrap();
        scene.proxy.refuse();
        end(&mut reservation);
        drop(reservation);
        wait_until("the first failure", || scene.clock.next_wake().is_some()).unwrap();
        scene.heal();
        assert_eq!(scene.left(), [1, 70], "{provider}: not settled yet");
        // The task has a connection of its own runtime, which it does not dial twice at once.
        let is_settled = || {
            scene.clock.advance(Duration::from_millis(250));
            scene.left() == expected
        };
        wait_until("the settlement", is_settled).unwrap_or_else(|error| panic!("{provider}: {error}"));
        wait_for(scene.engine.wait_for_settlements());
    }
}

#[test]
fn a_cancelled_settlement_is_made_nevertheless() {
    for (provider, new) in SHARED {
        let scene = Scene::new(new);
        let mut reservation = reserve(&scene.engine, &a_minute()).unwrap();
        scene.proxy.freeze();
        let is_ready = wait_for(async {
            let mut settle = std::pin::pin!(reservation.settle(&[("tokens", 10)]));
            std::future::poll_fn(|context| Poll::Ready(settle.as_mut().poll(context).is_ready())).await
        });
        assert!(!is_ready && reservation.text().is_some(), "{provider}");
        scene.heal();
        drop(reservation);
        wait_until("the settlement", || scene.left() == [2, 90]).unwrap();
    }
}

/// The rounds of each caller, which last for the deadline, and the callers.
const ROUNDS: usize = 4;
const CALLERS: usize = 32;

/// A server that does not know the script gets a request a second time, after a release that was sent meanwhile.
#[test]
fn a_cancelled_request_holds_no_slot_whatever_overtakes_it() {
    let server = Server::start().unwrap();
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let server = &server;
            scope.spawn(move || cancel_requests(server, &format!("user-{caller}")));
        }
    });
}

fn cancel_requests(server: &Server, user: &str) {
    let slots = "rules: [{id: slots, scope: user, strategy: {concurrency: {limit: 100, hold: 60s}}}]";
    let mut control = server.control().unwrap();
    // A busy machine does not miss it.
    let rl = RateLimiter::builder().redis(connect(&server.url())).redis_deadline(Duration::from_secs(4));
    let engine = Arc::new(Engine::redis(Arc::new(rl.build().unwrap()), rules(slots)));
    let reserve = |polls: usize| {
        let (engine, user) = (Arc::clone(&engine), user.to_owned());
        async move {
            let (attributes, options) = ([("user", &*user)], a_minute().on_drop(OnDrop::Release));
            let request = Request::new(&attributes);
            let mut reserving = std::pin::pin!(engine.reserve(&request, &options));
            for _ in 0..polls {
                let polled = std::future::poll_fn(|context| Poll::Ready(reserving.as_mut().poll(context)));
                if polled.await.is_ready() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    };
    for round in 0..ROUNDS {
        control.command(&["SCRIPT", "FLUSH"]).unwrap();
        let calls: Vec<_> = (0..8).map(|call| runtime().spawn(reserve(1 + (call + round) % 7))).collect();
        calls.into_iter().for_each(|call| wait_for(call).unwrap());
        wait_for(engine.wait_for_settlements());
        let holders = wait_for(engine.holders(&format!("slots|user={user}"))).unwrap().unwrap();
        assert_eq!(holders, [], "{user} in round {round}");
    }
}
