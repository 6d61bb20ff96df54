//! The state that all Redis limiters of a provider share: batchers, key names, failure policy and observer.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ask::{Answers, Ask, Asks, Told};
use super::batcher::{Batcher, BatcherOptions, Terms};
use super::failure::{RedisFailure, RedisFailureKind};
use super::key::{RedisKey, state_name};
use super::substitute::OnFailure;
use super::transport::{RedisConnection, RedisStats, slot_of};
use crate::clock::{Clock, ClockSource, SystemClock};
use crate::error::TrypemaError;
use crate::observer::{Observer, StoreCall};

/// The number of batchers of a Cluster above which idle ones are dropped.
const MAX_IDLE_BATCHERS: usize = 1_024;

/// The configuration of a provider.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) connection: Option<RedisConnection>,
    pub(crate) prefix: RedisKey,
    pub(crate) deadline: Duration,
    pub(crate) on_failure: OnFailure,
    /// The clock that scripts use in place of the server's, if the limiter was built with one.
    pub(crate) clock: Option<ClockSource>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl Parts {
    /// The default deadline of a call: enough for a network round trip and a busy server, and short enough
    /// that callers hardly notice an outage.
    pub(crate) const DEADLINE: Duration = Duration::from_millis(50);
}

#[derive(Debug)]
pub(super) struct Store {
    parts: Parts,
    batchers: Batchers,
    /// The number of live instances in the replies to the last few heartbeats.
    instances: [AtomicU32; SIGNS],
    next_sign: AtomicUsize,
}

/// The number of heartbeat replies that are kept. The largest of them counts: after Redis has been emptied,
/// the first replies are too low.
const SIGNS: usize = 4;

/// One batcher for a server. One per slot for a Cluster, where a script call can only use keys of one slot.
#[derive(Debug)]
enum Batchers {
    None,
    Server(Arc<Batcher>),
    Cluster(BatcherOptions, Mutex<HashMap<u16, Arc<Batcher>>>),
}

impl Store {
    pub(super) fn new(parts: Parts) -> Self {
        let batchers = match parts.connection.clone() {
            None => Batchers::None,
            Some(connection) => {
                let (call_timeout, clock) = (parts.deadline, parts.clock.clone());
                let options = BatcherOptions { connection, slot: 0, call_timeout, clock };
                match options.connection.is_cluster() {
                    true => Batchers::Cluster(options, Mutex::default()),
                    false => Batchers::Server(Batcher::new(options)),
                }
            }
        };
        Self { parts, batchers, instances: Default::default(), next_sign: AtomicUsize::new(0) }
    }

    /// Returns the name of a key's state in Redis.
    pub(super) fn name(&self, key: &RedisKey, strategy: &str) -> Vec<u8> {
        state_name(&self.parts.prefix, key, strategy)
    }

    /// Returns the clock that the limiter was built with, or the system's.
    pub(super) fn clock(&self) -> ClockSource {
        self.parts.clock.clone().unwrap_or(ClockSource::System)
    }

    pub(super) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.parts.observer.as_ref()
    }

    /// Returns the failure policy. For [`OnFailure::Local`], the number of instances is at least the number
    /// of live ones.
    pub(super) fn on_failure(&self) -> OnFailure {
        match (self.parts.on_failure, self.instances()) {
            (OnFailure::Local { instances }, Some(seen)) => {
                OnFailure::Local { instances: instances.max(seen) }
            }
            (chosen, _) => chosen,
        }
    }

    /// Returns the number of live instances, if it is known.
    pub(super) fn instances(&self) -> Option<NonZeroU32> {
        let most = self.instances.iter().map(|seen| seen.load(Ordering::Relaxed)).max();
        most.and_then(NonZeroU32::new)
    }

    pub(super) fn learn_instances(&self, instances: u32) {
        let place = self.next_sign.fetch_add(1, Ordering::Relaxed) % SIGNS;
        self.instances[place].store(instances, Ordering::Relaxed);
    }

    /// Returns the time that a call may take.
    pub(super) fn deadline(&self) -> Duration {
        self.parts.deadline
    }

    /// Returns the terms of a call that starts now.
    pub(super) fn terms(&self) -> Terms {
        Terms::until(SystemClock.now() + self.parts.deadline)
    }

    /// Sends one check.
    pub(super) async fn ask(&self, ask: Ask, terms: Terms) -> Result<Told, RedisFailure> {
        let batcher = self.batcher_for(std::slice::from_ref(&ask))?;
        let told = self.watched(batcher.send(Asks::One(ask), terms)).await?;
        let missing = || RedisFailure::new(RedisFailureKind::BadReply, "an answer is missing");
        match told {
            Answers::One(told) => Ok(told),
            Answers::Many(told) => told.into_iter().next().unwrap_or_else(|| Err(missing())),
        }
    }

    /// Awaits a call, and notifies the observer of its latency and failure.
    async fn watched<T>(
        &self,
        call: impl Future<Output = Result<T, RedisFailure>>,
    ) -> Result<T, RedisFailure> {
        let Some(observer) = self.observer() else { return call.await };
        let started = SystemClock.now();
        let answer = call.await;
        let latency_us = SystemClock.now().as_micros().saturating_sub(started.as_micros());
        let error = answer.as_ref().err().map(|failure| TrypemaError::from(failure.clone()));
        observer.asked(&StoreCall { latency: Duration::from_micros(latency_us), error: error.as_ref() });
        answer
    }

    /// Returns the state of the connection.
    pub(super) fn stats(&self) -> RedisStats {
        self.parts.connection.as_ref().map(RedisConnection::stats).unwrap_or_default()
    }

    /// Sends several checks in one script call. The first `together` are spent all or nothing. Returns a
    /// result for each. On a Cluster all keys must be in one slot.
    pub(super) async fn ask_many(
        &self,
        asks: Vec<Ask>,
        together: usize,
        terms: Terms,
    ) -> Result<Vec<Result<Told, RedisFailure>>, RedisFailure> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let batcher = self.batcher_for(&asks)?;
        let told = self.watched(batcher.send(Asks::Many { asks, together }, terms)).await?;
        Ok(match told {
            Answers::One(told) => vec![Ok(told)],
            Answers::Many(told) => told,
        })
    }

    /// Whether one script call can contain all of these checks.
    pub(super) fn is_one_call(&self, asks: &[Ask]) -> bool {
        let slot = asks.first().map(|ask| slot_of(&ask.name));
        !matches!(self.batchers, Batchers::Cluster(..))
            || asks.iter().all(|ask| Some(slot_of(&ask.name)) == slot)
    }

    /// Returns the batcher for the keys of these checks.
    fn batcher_for(&self, asks: &[Ask]) -> Result<Arc<Batcher>, RedisFailure> {
        match &self.batchers {
            Batchers::None => {
                let message = "no connection was given: see RateLimiter::builder().redis(…)";
                Err(RedisFailure::new(RedisFailureKind::Unavailable, message))
            }
            Batchers::Server(batcher) => Ok(Arc::clone(batcher)),
            Batchers::Cluster(options, batchers) => {
                let mut slots = asks.iter().map(|ask| slot_of(&ask.name));
                let slot = slots.next().unwrap_or(0);
                if slots.any(|other| other != slot) {
                    let message = "checks on keys in different slots of a cluster cannot be spent together";
                    return Err(RedisFailure::new(RedisFailureKind::Refused, message));
                }
                Ok(batcher_of(slot, options, batchers))
            }
        }
    }
}

fn batcher_of(
    slot: u16,
    options: &BatcherOptions,
    batchers: &Mutex<HashMap<u16, Arc<Batcher>>>,
) -> Arc<Batcher> {
    let mut batchers = batchers.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(batcher) = batchers.get(&slot) {
        return Arc::clone(batcher);
    }
    if batchers.len() >= MAX_IDLE_BATCHERS {
        // A caller that is about to use a batcher holds a second reference to it.
        batchers.retain(|_, batcher| Arc::strong_count(batcher) > 1 || !batcher.is_idle());
    }
    let new = || Batcher::new(BatcherOptions { slot, ..options.clone() });
    Arc::clone(batchers.entry(slot).or_insert_with(new))
}
