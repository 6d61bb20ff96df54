//! Reservations at the edges: costs that no counter can hold, changed texts, lost slots, conflicts, late
//! settlements, and observers that call the engine.

use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use trypema::clock::ManualClock;
use trypema::observer::{Event, Observer};
use trypema::rules::{Engine, OnDrop, Request, SettledStatus};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::wait_for;

use super::{Scene, a_minute, on_every_provider, rules};

const SECOND: Duration = Duration::from_secs(1);

/// A postpaid rule admits any cost while one unit is left. A counter that cannot count all of it must not give
/// back units of others when the reservation is released.
#[test]
fn a_cost_beyond_what_a_counter_can_count_refunds_its_own_units_only() {
    const LIMIT: u64 = 10_000;
    let strategies = ["sliding_window", "fixed_window", "absolute", "token_bucket"];
    for cost in [5_000_000_000, (1 << 53) - 1, 1 << 53, u64::MAX] {
        for strategy in strategies {
            let yaml = format!(
                "units: [tokens]\nrules: [{{id: all, scope: user, unit: tokens, postpaid: true, \
                 strategy: {{{strategy}: {{limit: {LIMIT}, window: 1h}}}}}}]"
            );
            on_local_and_redis(&yaml, |scene| {
                drop(scene.reserve_with("ann", LIMIT - 1, &a_minute().on_drop(OnDrop::Keep)));
                let text = scene.reserve("ann", cost).into_text().unwrap();
                assert_eq!(scene.left_of("all", "ann"), 0, "{} {strategy} {cost}", scene.provider);
                assert!(wait_for(scene.engine.release(&text)).unwrap().is_complete());
                // A debt that is cut off at the largest number may keep a part of a token.
                let left = scene.left_of("all", "ann");
                let is_exact = left == 1 || left == 0 && strategy == "token_bucket";
                assert!(is_exact, "{} {strategy} {cost}: {left}", scene.provider);
            });
        }
    }
}

/// The providers whose counters differ, without a server for each of many rule sets.
fn on_local_and_redis(yaml: &str, mut play: impl FnMut(&Scene)) {
    static SERVER: OnceLock<trypema_testkit::redis::Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| trypema_testkit::redis::Server::start().unwrap());
    server.control().unwrap().command(&["FLUSHALL"]).unwrap();
    for provider in ["local", "redis"] {
        let clock = Arc::new(ManualClock::default());
        let url = trypema_testkit::blocking::connect(&server.url());
        let rl = trypema_testkit::blocking::limiter(&url, provider, &clock).build().unwrap();
        let engine = match provider {
            "local" => Engine::local(Arc::new(rl), rules(yaml)),
            _ => Engine::redis(Arc::new(rl), rules(yaml)),
        };
        play(&Scene { provider, engine: Arc::new(engine), clock, changes: Arc::default() });
    }
}

const SLOTS: &str = "
units: [tokens]
rules:
  - {id: slots, scope: user, strategy: {concurrency: {limit: 1, hold: 5s}}}
  - {id: tokens, scope: user, unit: tokens, strategy: {fixed_window: {limit: 1000, window: 1h}}}
";

/// The holder writes the text, and may mark each counter as that of a rule that cannot deny it.
#[test]
fn a_changed_text_does_not_outlast_the_hold() {
    on_every_provider(SLOTS, |scene| {
        let text = scene.reserve("ann", 10).into_text().unwrap();
        let marked = marked_as_shadow(&text);
        let renewed = wait_for(scene.engine.renew(&marked, 3_600 * SECOND)).unwrap();
        assert_eq!(renewed, Some(5 * SECOND), "{}", scene.provider);
        scene.clock.advance(5 * SECOND);
        assert_eq!(scene.left_of("slots", "ann"), 1, "{}", scene.provider);
        let late = scene.settle(&marked, 10);
        assert!(late.rules.iter().any(|rule| rule.rule() == "slots"), "{}: {late:?}", scene.provider);
        assert!(!late.is_complete(), "{}", scene.provider);
    });
}

fn marked_as_shadow(text: &str) -> String {
    let mut bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix("r1.").unwrap()).unwrap();
    let mut at = 16;
    while at < bytes.len() {
        let length = usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        bytes[at + 1] |= 0x80;
        at += 2 + length;
    }
    format!("r1.{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// Other counters may still know the reservation, but another request may have the slot.
#[test]
fn a_reservation_that_lost_its_slot_is_not_renewed() {
    on_every_provider(SLOTS, |scene| {
        let text = scene.reserve("ann", 10).into_text().unwrap();
        let key = "slots|user=ann";
        let holders = wait_for(scene.engine.holders(key)).unwrap().unwrap();
        assert_eq!(wait_for(scene.engine.release_holder(key, &holders[0].id)), Ok(Some(true)));
        assert_eq!(wait_for(scene.engine.renew(&text, SECOND)).unwrap(), None, "{}", scene.provider);
    });
}

/// Operators may spell an address in any way.
#[test]
fn holders_are_found_by_any_spelling_of_a_counter() {
    let slots = "rules: [{id: slots, scope: ip, strategy: {concurrency: {limit: 1, hold: 60s}}}]";
    on_every_provider(slots, |scene| {
        let attributes = [("ip", "2001:db8::1")];
        let options = a_minute().on_drop(OnDrop::Keep);
        drop(wait_for(scene.engine.reserve(&Request::new(&attributes), &options)).unwrap());
        for key in ["slots|ip=2001:db8::1", "slots|ip=2001:0DB8::2"] {
            let holders = wait_for(scene.engine.holders(key)).unwrap().unwrap();
            assert_eq!(holders.len(), 1, "{}: {key}", scene.provider);
        }
        let key = "slots|ip=2001:db8::ffff";
        let holders = wait_for(scene.engine.holders(key)).unwrap().unwrap();
        assert_eq!(wait_for(scene.engine.release_holder(key, &holders[0].id)), Ok(Some(true)));
    });
}

/// A request that conflicts with an earlier one fails. No rule counts it, not even one that counts denials.
#[test]
fn a_conflict_counts_nowhere() {
    let yaml = "
units: [tokens]
rules:
  - {id: first, scope: global, unit: tokens, strategy: {fixed_window: {limit: 1000, window: 1h}}}
  - id: guard
    scope: user
    strategy: {abuse: {temp: {window: 1h, threshold: 3, block: 1h}, long: {window: 2h, threshold: 5, block: 2h}}}
";
    on_every_provider(yaml, |scene| {
        let options = a_minute().with_id("one").unwrap().on_drop(OnDrop::Keep);
        drop(scene.reserve_with("ann", 10, &options));
        let before = scene.left("bob");
        for _ in 0..10 {
            let (attributes, costs) = ([("user", "bob")], [("tokens", 10)]);
            let request = Request::new(&attributes).with_costs(&costs);
            let conflict = wait_for(scene.engine.reserve(&request, &options)).unwrap_err();
            assert_eq!(conflict, TrypemaError::ReservationConflict, "{}", scene.provider);
        }
        if scene.provider != "cluster" {
            // Over several slots of a Cluster, each counter is asked on its own.
            assert_eq!(scene.left("bob"), before, "{}", scene.provider);
        }
    });
}

/// A later call that joined the bucket keeps it alive, but the units of the reservation have left the window.
#[test]
fn units_that_left_the_window_are_not_refunded() {
    let yaml = "
units: [tokens]
rules: [{id: all, scope: user, unit: tokens, strategy: {absolute: {limit: 100, window: 60s}}}]
";
    on_every_provider(yaml, |scene| {
        let text = scene.reserve_with("ann", 5, &a_minute_and_more()).into_text().unwrap();
        scene.clock.advance(Duration::from_millis(5));
        drop(scene.reserve_with("ann", 7, &a_minute().on_drop(OnDrop::Keep)));
        scene.clock.advance(60 * SECOND - Duration::from_millis(3));
        let settled = scene.settle(&text, 0);
        let expected = SettledStatus::Settled { reserved: 5, counted: 0, refunded: 0 };
        assert_eq!(settled.rules[0].status, expected, "{}", scene.provider);
        assert_eq!(scene.left_of("all", "ann"), 88, "{}", scene.provider);
    });
}

fn a_minute_and_more() -> trypema::rules::ReserveOptions {
    trypema::rules::ReserveOptions::new(90 * SECOND).unwrap()
}

/// Settling a reservation of units that were forgotten would give back units of others.
#[test]
fn a_reset_of_the_limiter_forgets_reservations() {
    let yaml = "
units: [tokens]
rules: [{id: all, scope: global, unit: tokens, strategy: {fixed_window: {limit: 10, window: 1h}}}]
";
    let clock = Arc::new(ManualClock::default());
    let rl = Arc::new(RateLimiter::builder().clock(clock.clone()).build().unwrap());
    let engine = Arc::new(Engine::local(Arc::clone(&rl), rules(yaml)));
    let scene = Scene { provider: "local", engine, clock, changes: Arc::default() };
    let text = scene.reserve("ann", 10).into_text().unwrap();
    assert!(rl.local().fixed_window().reset("all"));
    drop(scene.reserve_with("bob", 10, &a_minute().on_drop(OnDrop::Keep)));
    assert!(!scene.settle(&text, 0).is_settled());
    assert_eq!(scene.left_of("all", "ann"), 0);
}

/// An observer that reserves and looks at holders whenever it hears of a decision.
#[derive(Debug, Default)]
struct Curious(OnceLock<Weak<Engine>>);

impl Observer for Curious {
    fn decided(&self, event: &Event<'_>) {
        let Some(engine) = self.0.get().and_then(Weak::upgrade) else { return };
        now(engine.holders(event.key)).unwrap();
        let settled = now(engine.settle("r1.CAgICAgICAgICAgICAgICA4Ac2xvdHN8dXNlcj1hbm4", &[])).unwrap();
        assert_eq!(settled.rules.len(), 1);
    }
}

/// Returns the result of a future that does not wait: the counters are in this process.
fn now<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("counters in this process never wait"),
    }
}

#[test]
fn an_observer_may_call_the_engine() {
    let curious = Arc::new(Curious::default());
    let rl = RateLimiter::builder().observer(curious.clone()).build().unwrap();
    let engine = Arc::new(Engine::local(Arc::new(rl), rules(SLOTS)));
    curious.0.set(Arc::downgrade(&engine)).unwrap();
    let scene = Scene { provider: "local", engine, clock: Arc::default(), changes: Arc::default() };
    let text = scene.reserve("ann", 10).into_text().unwrap();
    assert!(!scene.reserve("ann", 10).is_allowed());
    assert!(scene.settle(&text, 2_000).is_complete());
    assert_eq!(scene.left_of("tokens", "ann"), 0);
}
