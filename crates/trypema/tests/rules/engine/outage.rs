//! Decisions of rules while Redis is unreachable.

use std::sync::Arc;
use std::time::Duration;

use trypema::redis::OnFailure;
use trypema::rules::{Engine, Request};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::Server;

use super::rules;

/// An engine whose server is gone.
fn orphan(policy: OnFailure, rule: &str) -> Engine {
    let server = Server::start().unwrap();
    let connection = connect(&server.url());
    drop(server);
    let builder = RateLimiter::builder().redis(connection).on_redis_failure(policy);
    let rl = builder.redis_deadline(Duration::from_secs(5)).build().unwrap();
    let yaml = format!(
        "rules:\n  - {{id: r, scope: user, {rule} strategy: {{fixed_window: {{limit: 2, window: 1h}}}}}}"
    );
    Engine::redis(Arc::new(rl), rules(&yaml))
}

fn check(engine: &Engine) -> Result<(bool, bool), TrypemaError> {
    let verdict = wait_for(engine.check(&Request::new(&[("user", "ann")])))?;
    Ok((verdict.is_allowed(), verdict.is_substitute()))
}

#[test]
fn the_limiters_policy_holds_unless_the_rule_has_its_own() {
    let failed = |engine: Engine| matches!(check(&engine), Err(TrypemaError::RedisError(_)));
    assert!(failed(orphan(OnFailure::Fail, "")));
    assert!(failed(orphan(OnFailure::Allow, "on_store_failure: error,")));
    assert_eq!(check(&orphan(OnFailure::Allow, "")), Ok((true, false)));
    assert_eq!(check(&orphan(OnFailure::Fail, "on_store_failure: allow,")), Ok((true, false)));
    assert_eq!(check(&orphan(OnFailure::Fail, "on_store_failure: deny,")), Ok((false, true)));
    assert_eq!(check(&orphan(OnFailure::Deny, "")), Ok((false, true)));
}

#[test]
fn counting_in_process_takes_over() {
    let engine = orphan(OnFailure::Local { instances: 1.try_into().unwrap() }, "");
    let allowed: Vec<bool> = (0..4).map(|_| check(&engine).unwrap().0).collect();
    assert_eq!(allowed, [true, true, false, false]);
}

#[test]
fn requests_that_no_rule_applies_to_need_no_store() {
    let engine = orphan(OnFailure::Fail, "");
    assert!(engine.try_check(&Request::new(&[])).unwrap().unwrap().is_allowed());
    assert!(engine.try_check(&Request::new(&[("user", "ann")])).is_none());
}
