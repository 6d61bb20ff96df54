//! The observer receives every decision, and every failure that a decision substitutes for.

use std::sync::{Arc, Mutex};

use trypema::observer::{Event, Failure, Observer};
use trypema::redis::{OnFailure, RedisLimiter};
use trypema::strategy::Wire;
use trypema::{Check, Limit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::Server;

use super::{AMPLE, Orphan, among, limiter, peek, take};
use crate::faults::limits::{Claim, for_every_strategy};

/// The events since the observer was last read.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The strategy, whether it was allowed, and whether the decision was made without Redis.
    pub(crate) decided: Vec<(&'static str, bool, bool)>,
    pub(crate) failed: Vec<(&'static str, TrypemaError)>,
}

#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Told>);

impl Recorder {
    pub(crate) fn drain(&self) -> Told {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Recorder {
    fn decided(&self, event: &Event<'_>) {
        let decision = event.decision;
        let told = (event.strategy, decision.is_allowed(), decision.is_substitute());
        self.0.lock().unwrap().decided.push(told);
    }

    fn failed(&self, failure: &Failure<'_>) {
        self.0.lock().unwrap().failed.push((failure.strategy, failure.error.clone()));
    }
}

/// Checks the events of one take and one peek. A peek reports a failure but no decision.
struct Tells {
    recorder: Arc<Recorder>,
    is_allowed: bool,
    is_substitute: bool,
}

impl Claim for Tells {
    fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
        take(limiter, limit, 1);
        peek(limiter, limit, 1);
        let told = self.recorder.drain();
        assert_eq!(told.decided, [(S::NAME, self.is_allowed, self.is_substitute)]);
        let failures = if self.is_substitute { 2 } else { 0 };
        assert_eq!(told.failed.len(), failures, "{} {told:?}", S::NAME);
        for (strategy, error) in told.failed {
            assert!(strategy == S::NAME && matches!(error, TrypemaError::RedisError(_)), "{error}");
        }
    }
}

#[test]
fn decisions_of_redis_are_told_as_such() {
    let server = Server::start().unwrap();
    let recorder = Arc::new(Recorder::default());
    let rl = limiter((connect(&server.url()), AMPLE), OnFailure::Deny, &recorder);
    for_every_strategy(&rl, &Tells { recorder, is_allowed: true, is_substitute: false });
}

#[test]
fn substitutes_are_told_beside_the_failure() {
    for (on_failure, is_allowed) in [(OnFailure::Allow, true), (OnFailure::Deny, false), (among(2), true)] {
        let orphan = Orphan::with(on_failure);
        let tells = Tells { recorder: orphan.recorder.clone(), is_allowed, is_substitute: true };
        for_every_strategy(&orphan.rl, &tells);
    }
}

#[test]
fn failures_of_checks_asked_together_are_told() {
    struct TellsTogether<'a>(&'a RateLimiter, &'a Recorder);

    impl Claim for TellsTogether<'_> {
        fn holds_for<S: Wire>(&self, _: &RedisLimiter<S>, limit: &S::Limit)
        where
            Limit: From<S::Limit>,
        {
            let limit = Limit::from(limit.clone());
            let checks = ["ann", "ben"].map(|key| Check::new(key, &limit, 1));
            wait_for(self.0.redis().take_all(&checks)).unwrap_err();
            let told = self.1.drain();
            assert_eq!((told.failed.len(), told.decided.len()), (checks.len(), 0), "{}", S::NAME);
            assert!(told.failed.iter().all(|(strategy, _)| *strategy == S::NAME));
        }
    }

    let orphan = Orphan::with(OnFailure::Fail);
    for_every_strategy(&orphan.rl, &TellsTogether(&orphan.rl, &orphan.recorder));
}
