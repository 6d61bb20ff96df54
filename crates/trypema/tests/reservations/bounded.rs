//! Reservations in this process, with a bound on its keys.

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::rules::{Engine, Request};
use trypema_testkit::blocking::wait_for;

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
