//! The library's engine on a manual clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{ManualClock, Timestamp};
use trypema::redis::RedisConnection;
use trypema::rules::{Engine, OnDrop, ReserveOptions, RuleSet};
use trypema::{RateLimiter, TrypemaError};

use super::answer::RuleAnswer;
use super::replay::RuleSubject;
use super::request::{CheckBody, Mode};
use super::reservation::{
    ReleaseBody, RenewBody, RenewedAnswer, ReserveAnswer, ReserveBody, ReservedAnswer, SettleBody, settled_of,
};
use super::step::{StepAnswer, StepRequest};
use crate::blocking::{limiter, wait_for};

/// The interval of the hybrid provider: shorter than the time between two steps.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// An engine, and its clock.
#[derive(Debug)]
pub struct EngineSubject {
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    /// The texts of reservations, by their names in the trace.
    texts: BTreeMap<String, String>,
}

impl EngineSubject {
    fn new(engine: Engine, clock: Arc<ManualClock>) -> Self {
        Self { engine: Arc::new(engine), clock, texts: BTreeMap::new() }
    }

    /// Returns the text of a reservation; the name itself if no step has named one so.
    fn text(&self, name: &str) -> String {
        self.texts.get(name).map_or(name, String::as_str).to_owned()
    }

    fn reserve(&mut self, request: &ReserveBody, name: Option<&String>) -> Option<ReserveAnswer> {
        let made = ReserveOptions::new(request.ttl()).and_then(|options| match &request.id {
            Some(id) => options.with_id(id),
            None => Ok(options),
        });
        let options = match made {
            Ok(options) => options.on_drop(OnDrop::Keep),
            Err(error) => return Some(failed(&error)),
        };
        let engine = &self.engine;
        let made = request.as_check().with_request(|asked| wait_for(engine.reserve(asked, &options)))?;
        Some(match made {
            Err(error) => failed(&error),
            Ok(made) => {
                if let (Some(name), Some(text)) = (name, made.text()) {
                    self.texts.insert(name.clone(), text);
                }
                let (expires_in, is_repeated) = (made.expires_in(), made.is_repeated());
                let is_ended = made.is_ended();
                ReserveAnswer {
                    verdict: RuleAnswer::of(&Ok(made.verdict().clone())),
                    reserved: made.is_allowed().then_some(ReservedAnswer {
                        expires_in,
                        is_repeated,
                        is_ended,
                    }),
                }
            }
        })
    }

    /// Creates an engine with counters in this process.
    pub fn local(rules: RuleSet) -> Result<Self, TrypemaError> {
        let clock = Arc::new(ManualClock::default());
        let limiter = RateLimiter::builder().clock(clock.clone()).build()?;
        Ok(Self::new(Engine::local(Arc::new(limiter), rules), clock))
    }

    /// Creates an engine with counters in Redis, whose names start with `prefix`.
    pub fn redis(rules: RuleSet, connection: &RedisConnection, prefix: &str) -> Result<Self, TrypemaError> {
        let clock = Arc::new(ManualClock::default());
        let limiter = limiter(connection, prefix, &clock).build()?;
        Ok(Self::new(Engine::redis(Arc::new(limiter), rules), clock))
    }

    /// Creates an engine with counters in Redis, whose names start with `prefix` and which may be leased.
    pub fn hybrid(rules: RuleSet, connection: &RedisConnection, prefix: &str) -> Result<Self, TrypemaError> {
        let clock = Arc::new(ManualClock::default());
        let limiter = limiter(connection, prefix, &clock).sync_interval(SYNC_INTERVAL).build()?;
        Ok(Self::new(Engine::hybrid(Arc::new(limiter), rules), clock))
    }
}

impl RuleSubject for EngineSubject {
    fn ask(&mut self, at: Timestamp, request: &CheckBody) -> Option<RuleAnswer> {
        self.clock.set(at);
        let verdict = request.with_request(|asked| match request.mode {
            Mode::Check => wait_for(self.engine.check(asked)),
            Mode::Peek => wait_for(self.engine.peek(asked)),
            Mode::Record => wait_for(self.engine.record(asked)),
        })?;
        Some(RuleAnswer::of(&verdict))
    }

    fn answer(&mut self, at: Timestamp, request: &StepRequest) -> Option<StepAnswer> {
        self.clock.set(at);
        let answer = match request {
            StepRequest::Request(request) => StepAnswer::Verdict(self.ask(at, request)?),
            StepRequest::Reserve(request, name) => {
                StepAnswer::Reserved(self.reserve(request, name.as_ref())?)
            }
            StepRequest::Settle(SettleBody { reservation, costs }) => {
                let costs: Vec<(&str, u64)> =
                    costs.iter().map(|(unit, cost)| (unit.as_str(), *cost)).collect();
                let settled = wait_for(self.engine.settle(&self.text(reservation), &costs));
                StepAnswer::Settled(settled_of(settled))
            }
            StepRequest::Release(ReleaseBody { reservation }) => {
                let released = wait_for(self.engine.release(&self.text(reservation)));
                StepAnswer::Settled(settled_of(released))
            }
            StepRequest::Renew(RenewBody { reservation, ttl }) => {
                let renewed = wait_for(self.engine.renew(&self.text(reservation), ttl.0));
                StepAnswer::Renewed(renewed.map(RenewedAnswer).map_err(|error| error.to_string()))
            }
            StepRequest::Replace(rules) => {
                self.engine.replace(RuleSet::compile(rules).ok()?);
                StepAnswer::Replaced
            }
        };
        Some(answer)
    }
}

fn failed(error: &TrypemaError) -> ReserveAnswer {
    ReserveAnswer { verdict: RuleAnswer::error(error.to_string()), reserved: None }
}
