//! Reservations that wait until they fit, and the rules that count them meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use trypema::clock::Clock;
use trypema::rules::{Request, Reservation, ReserveOptions};
use trypema_testkit::blocking::{runtime, wait_for};

use super::{Scene, a_minute, on_every_provider};

/// The log-only rules and the candidate count every request that was decided, whether or not it was allowed. An
/// attempt that the abuse rule counts cannot be taken back.
const RULES: &str = "
units: [tokens]
rules:
  - {id: slots, scope: user, strategy: {concurrency: {limit: 1, hold: 60s}}}
  - {id: requests, scope: user, strategy: {fixed_window: {limit: 100, window: 1d}}}
  - {id: counted, scope: user, action: log_only, strategy: {fixed_window: {limit: 100, window: 1d}}}
  - {id: denied, scope: user, action: log_only, strategy: {fixed_window: {limit: 1, window: 1d}}}
  - {id: attempts, scope: user, action: log_only, strategy: {abuse: {temp: {window: 1h, threshold: 90, block: 1h}, long: {window: 1h, threshold: 95, block: 1h}}}}
  - {id: stricter, scope: user, candidate_for: requests, strategy: {fixed_window: {limit: 50, window: 1d}}}
";

/// The longest pause of a waiter between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(1_250);
const FAR_TOO_LONG: Duration = Duration::from_secs(60);
const ANN: [(&str, &str); 1] = [("user", "ann")];

fn reserve(scene: &Scene, options: &ReserveOptions) -> Reservation {
    wait_for(scene.engine.reserve(&Request::new(&ANN), options)).unwrap()
}

/// Waits until the only waiter waits for its next try: after a second, or somewhat later in a shared store.
async fn until_waiting(scene: &Scene) {
    let is_soon = |next| next > scene.clock.now() && next <= scene.clock.now() + LONGEST_PAUSE;
    let is_waiting = async {
        while !scene.clock.next_wake().is_some_and(is_soon) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(FAR_TOO_LONG, is_waiting).await.unwrap();
}

/// Lets a caller wait at most `patience`, during three tries that fail. Then calls `end`.
fn wait_through(scene: &Scene, patience: Duration, end: impl FnOnce()) -> Reservation {
    let (engine, options) = (Arc::clone(&scene.engine), a_minute().waiting(patience));
    let waiting =
        runtime().spawn(async move { engine.reserve(&Request::new(&ANN), &options).await.unwrap() });
    wait_for(async {
        until_waiting(scene).await;
        for _ in 0..3 {
            scene.clock.advance(LONGEST_PAUSE);
            until_waiting(scene).await;
        }
        assert!(!waiting.is_finished());
    });
    end();
    wait_for(async { tokio::time::timeout(FAR_TOO_LONG, waiting).await.unwrap().unwrap() })
}

/// Asserts what two requests have left: of the enforced rule, of the candidate and of the log-only rules.
fn assert_left(scene: &Scene, enforced: u64, candidate: u64) {
    let left =
        ["requests", "stricter", "counted", "denied", "attempts"].map(|rule| scene.left_of(rule, "ann"));
    assert_eq!(left, [enforced, candidate, 98, 0, 87], "{}", scene.provider);
}

#[test]
fn a_request_that_waited_is_counted_once_when_it_is_allowed() {
    on_every_provider(RULES, |scene| {
        let mut first = reserve(scene, &a_minute());
        let settle = || assert!(wait_for(first.settle(&[])).unwrap().is_settled());
        let waited = wait_through(scene, Duration::from_secs(30), settle);
        assert!(waited.is_allowed(), "{}", scene.provider);
        assert_eq!(scene.changes.shadow_denials(), 1, "{}: told once", scene.provider);
        assert_left(scene, 98, 48);
        assert_eq!(scene.left_of("slots", "ann"), 0, "{}", scene.provider);
        assert!(waited.into_text().is_some());
    });
}

#[test]
fn a_request_that_waited_in_vain_is_counted_once() {
    on_every_provider(RULES, |scene| {
        let holding = reserve(scene, &a_minute());
        let advance = || scene.clock.advance(Duration::from_secs(30));
        let waited = wait_through(scene, Duration::from_secs(10), advance);
        assert!(!waited.is_allowed(), "{}", scene.provider);
        assert_eq!(scene.changes.shadow_denials(), 1, "{}: told once", scene.provider);
        assert_left(scene, 99, 49);
        drop(holding);
    });
}

/// Ann waits for a slot of her own. The slots that all share are for those who wait behind her.
#[test]
fn a_waiter_at_its_own_limit_keeps_nobody_waiting() {
    const RULES: &str = "
rules:
  - {id: all, scope: global, strategy: {concurrency: {limit: 2, hold: 10m}}}
  - {id: users, scope: user, strategy: {concurrency: {limit: 1, hold: 10m}}}
";
    on_every_provider(RULES, |scene| {
        let reserve = |user: &'static str, patience| {
            let (engine, options) = (Arc::clone(&scene.engine), a_minute().waiting(patience));
            runtime().spawn(async move {
                let user = [("user", user)];
                engine.reserve(&Request::new(&user), &options).await.unwrap()
            })
        };
        let wait = |user| reserve(user, Duration::from_secs(30));
        let admitted = |reserving: JoinHandle<Reservation>| {
            let reserved = wait_for(async { tokio::time::timeout(FAR_TOO_LONG, reserving).await });
            let reserved = reserved.unwrap().unwrap();
            assert!(reserved.is_allowed(), "{}", scene.provider);
            reserved
        };
        let [mut of_ann, mut of_ben] = ["ann", "ben"].map(|user| admitted(reserve(user, Duration::ZERO)));
        let ann = wait("ann");
        wait_for(until_waiting(scene));
        let cid = wait("cid");
        wait_for(of_ben.release());
        let of_cid = admitted(cid);
        assert!(!ann.is_finished(), "{}", scene.provider);
        wait_for(of_ann.release());
        drop((admitted(ann), of_cid));
    });
}
