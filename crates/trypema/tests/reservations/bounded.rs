//! The bounds on keys and on the reservations of a key.

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, OnDrop, Request, ReservationRef, ReserveOptions};
use trypema_testkit::blocking::{connect, limiter, wait_for};
use trypema_testkit::redis::Server;

use super::{a_minute, rules};

const RULES: &str = "
rules:
  - {id: user, scope: user, strategy: {fixed_window: {limit: 1000000, window: 1h}}}
  - {id: tenant, scope: tenant, key_pattern: '{tenant}', strategy: {fixed_window: {limit: 1000000, window: 1h}}}
";

/// A table from which everything was released may be forgotten while another one is made for the same request.
#[test]
fn room_for_tables_is_never_lost() {
    const KEYS: usize = 12;
    let limiter = RateLimiter::builder().max_keys(100).build().unwrap();
    let engine = Arc::new(Engine::local(Arc::new(limiter), rules(RULES)));
    let names: Vec<String> = (0..KEYS).map(|number| format!("n{number}")).collect();
    for call in 0..5_000 {
        let attributes = [("user", &*names[call % KEYS]), ("tenant", &*names[call * 5 / KEYS % KEYS])];
        let mut reserved = wait_for(engine.reserve(&Request::new(&attributes), &a_minute())).unwrap();
        assert!(reserved.is_allowed(), "call {call}");
        assert!(wait_for(reserved.release()).is_complete(), "call {call}");
    }
}

/// The most reservations of a counter.
const MOST: usize = 4_096;

/// Settled reservations with ids of the callers make room for others. Only outstanding ones fill the table.
#[test]
fn settled_ids_do_not_fill_a_table() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let redis = limiter(&connect(&server.url()), "full", &clock).build().unwrap();
    let local = RateLimiter::builder().clock(clock).build().unwrap();
    let engines =
        [Engine::local(Arc::new(local), rules(RULES)), Engine::redis(Arc::new(redis), rules(RULES))];
    for engine in engines.map(Arc::new) {
        let ann = [("user", "ann")];
        let reserve = |number: usize| {
            let options: ReserveOptions = a_minute().with_id(format!("id-{number}")).unwrap();
            wait_for(engine.reserve(&Request::new(&ann), &options.on_drop(OnDrop::Keep))).unwrap()
        };
        for number in 0..MOST {
            assert!(reserve(number).is_allowed());
        }
        assert!(!reserve(MOST).is_allowed(), "every reservation is outstanding");
        for number in 0..10 {
            let id = format!("id-{number}");
            let settled = wait_for(engine.settle(ReservationRef::of_id(&id, Request::new(&ann)), &[]));
            assert!(settled.unwrap().is_complete());
        }
        assert!(reserve(9).is_ended(), "it is remembered");
        for number in MOST..MOST + 10 {
            assert!(reserve(number).is_allowed());
        }
        assert!(!reserve(MOST + 10).is_allowed(), "every reservation is outstanding again");
    }
}
