//! The state that all Redis limiters of a provider share: batchers, key names, failure policy and observer.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::batcher::{Batcher, BatcherOptions, CallOptions};
use super::failure::{RedisFailure, RedisFailureKind};
use super::fallback::OnFailure;
use super::key::{RedisKey, state_name};
use super::permissions::MissingPermission;
use super::protocol::{CheckReply, CheckReplyResult, CheckRequest};
use super::runtime::RuntimeId;
use super::transport::{Probe, RedisConnection, RedisStats, slot_of};
use crate::clock::{Clock, ClockSource, SystemClock, Timestamp};
use crate::error::TrypemaError;
use crate::observer::{Observer, StoreCall};
use crate::strategy::WindowOptions;

/// The number of batchers above which idle ones are dropped.
const MAX_IDLE_BATCHERS: usize = 1_024;

/// The configuration of a provider.
#[derive(Debug, Clone)]
pub(crate) struct StoreConfig {
    pub(crate) connection: Option<RedisConnection>,
    pub(crate) prefix: RedisKey,
    pub(crate) call_timeout: Duration,
    pub(crate) on_failure: OnFailure,
    /// The clock that scripts use in place of the server's, if the limiter was built with one.
    pub(crate) clock: Option<ClockSource>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The window of `inc`.
    pub(crate) windows: WindowOptions,
}

impl StoreConfig {
    /// The default deadline of a call: enough for a network round trip and a busy server, and short enough
    /// that callers hardly notice an outage.
    pub(crate) const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_millis(50);
}

#[derive(Debug)]
pub(super) struct Store {
    config: StoreConfig,
    /// `None` without a connection.
    batchers: Option<Batchers>,
    /// The number of live instances in the replies to the last few heartbeats.
    instances: [AtomicU32; HEARTBEATS_KEPT],
    next_heartbeat: AtomicUsize,
}

/// The number of heartbeat replies that are kept. The largest of them counts: after Redis has been emptied,
/// the first replies are too low.
const HEARTBEATS_KEPT: usize = 4;

/// One batcher for each runtime. On a Cluster, one for each of its slots as well, because a script call can only use keys
/// of one slot.
#[derive(Debug)]
struct Batchers {
    /// The options of all, but for the slot.
    options: BatcherOptions,
    batchers: Mutex<HashMap<(RuntimeId, u16), Arc<Batcher>>>,
}

impl Store {
    pub(super) fn new(config: StoreConfig) -> Self {
        let batchers = config.connection.clone().map(|connection| {
            let (call_timeout, clock) = (config.call_timeout, config.clock.clone());
            let options = BatcherOptions { connection, slot: 0, call_timeout, clock };
            Batchers { options, batchers: Mutex::default() }
        });
        Self { config, batchers, instances: Default::default(), next_heartbeat: AtomicUsize::new(0) }
    }

    /// Returns the name of a key's state in Redis.
    pub(super) fn name(&self, key: &RedisKey, suffix: &str) -> Vec<u8> {
        state_name(&self.config.prefix, key, suffix)
    }

    /// Returns the clock that the limiter was built with, or the system's.
    pub(super) fn clock(&self) -> ClockSource {
        self.config.clock.clone().unwrap_or(ClockSource::System)
    }

    /// Returns the time by the clock that the limiter was built with, or the system's.
    pub(super) fn now(&self) -> Timestamp {
        self.config.clock.as_ref().unwrap_or(&ClockSource::System).now()
    }

    pub(super) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.config.observer.as_ref()
    }

    /// Returns the start time of a call, if there is an observer that needs it.
    pub(super) fn started(&self) -> Option<Timestamp> {
        self.observer().map(|_| ClockSource::System.now())
    }

    pub(super) fn windows(&self) -> &WindowOptions {
        &self.config.windows
    }

    /// Returns the failure policy. For [`OnFailure::Local`], the number of instances is at least the number
    /// of live ones.
    pub(super) fn on_failure(&self) -> OnFailure {
        match (self.config.on_failure, self.instances()) {
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

    pub(super) fn record_instances(&self, instances: u32) {
        let place = self.next_heartbeat.fetch_add(1, Ordering::Relaxed) % HEARTBEATS_KEPT;
        self.instances[place].store(instances, Ordering::Relaxed);
    }

    /// Returns the time that a call may take.
    pub(super) fn call_timeout(&self) -> Duration {
        self.config.call_timeout
    }

    /// Returns the options of a call that starts now.
    pub(super) fn call_options(&self) -> CallOptions {
        CallOptions::with_deadline(SystemClock.now() + self.config.call_timeout)
    }

    /// Sends one check.
    pub(super) async fn send(
        &self,
        request: CheckRequest,
        options: CallOptions,
    ) -> Result<CheckReply, RedisFailure> {
        let replies = self.send_all(vec![request], options).await?;
        let missing = "the script's reply has fewer results than checks";
        let missing = || Err(RedisFailure::new(RedisFailureKind::BadReply, missing));
        replies.into_iter().next().unwrap_or_else(missing)
    }

    /// Awaits a call, and notifies the observer of its latency and failure. If only some of its checks failed,
    /// the first of them is the failure.
    async fn observe_call(
        &self,
        call: impl Future<Output = Result<Vec<CheckReplyResult>, RedisFailure>>,
    ) -> Result<Vec<CheckReplyResult>, RedisFailure> {
        let Some(observer) = self.observer() else { return call.await };
        let started = SystemClock.now();
        let answer = call.await;
        let latency_us = SystemClock.now().as_micros().saturating_sub(started.as_micros());
        let failure = match &answer {
            Ok(replies) => replies.iter().find_map(|reply| reply.as_ref().err()),
            Err(failure) => Some(failure),
        };
        let error = failure.map(|failure| TrypemaError::from(failure.clone()));
        observer
            .store_called(&StoreCall { latency: Duration::from_micros(latency_us), error: error.as_ref() });
        answer
    }

    /// Returns the state of the connection.
    pub(super) fn stats(&self) -> RedisStats {
        self.config.connection.as_ref().map(RedisConnection::stats).unwrap_or_default()
    }

    /// Returns the permissions that the user of the connection lacks.
    pub(super) async fn missing_permissions(
        &self,
        has_leases: bool,
    ) -> Result<Vec<MissingPermission>, RedisFailure> {
        let Some(connection) = &self.config.connection else { return Err(not_configured()) };
        let uses_server_time = self.config.clock.is_none();
        let probe = Probe { prefix: &self.config.prefix, has_leases, uses_server_time };
        connection.missing_permissions(probe).await
    }

    /// Sends several checks in one script call. Returns a result for each. On a Cluster all keys must be in one slot.
    pub(super) async fn send_all(
        &self,
        requests: Vec<CheckRequest>,
        options: CallOptions,
    ) -> Result<Vec<CheckReplyResult>, RedisFailure> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let batcher = self.batcher_for(&requests)?;
        self.observe_call(batcher.send(requests, options)).await
    }

    /// Whether one script call can contain all of these checks.
    pub(super) fn is_one_call(&self, requests: &[CheckRequest]) -> bool {
        !self.is_cluster() || slot_of_all(requests).is_some()
    }

    fn is_cluster(&self) -> bool {
        self.config.connection.as_ref().is_some_and(RedisConnection::is_cluster)
    }

    /// Returns the batcher for the keys of these checks.
    fn batcher_for(&self, requests: &[CheckRequest]) -> Result<Arc<Batcher>, RedisFailure> {
        let batchers = self.batchers.as_ref().ok_or_else(not_configured)?;
        if !self.is_cluster() {
            return Ok(batchers.current(0));
        }
        let slot = slot_of_all(requests).ok_or_else(|| {
            let message = "checks on keys in different slots of a cluster cannot be charged all or nothing";
            RedisFailure::new(RedisFailureKind::Refused, message)
        })?;
        Ok(batchers.current(slot))
    }
}

/// Returns the Cluster slot of all keys of these checks; `None` if they are in several.
fn slot_of_all(requests: &[CheckRequest]) -> Option<u16> {
    let mut slots = requests.iter().map(|request| slot_of(&request.name));
    let slot = slots.next().unwrap_or(0);
    slots.all(|other| other == slot).then_some(slot)
}

fn not_configured() -> RedisFailure {
    let message = "no Redis connection is configured; call `RateLimiter::builder().redis(…)`";
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}

impl Batchers {
    /// Returns the batcher of the runtime that the caller runs in.
    fn current(&self, slot: u16) -> Arc<Batcher> {
        let place = (self.options.connection.runtime().id(), slot);
        let mut batchers = self.batchers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(batcher) = batchers.get(&place) {
            return Arc::clone(batcher);
        }
        if batchers.len() >= MAX_IDLE_BATCHERS {
            // A caller that is about to use a batcher holds a second reference to it.
            batchers.retain(|_, batcher| Arc::strong_count(batcher) > 1 || !batcher.is_idle());
        }
        let new = || Batcher::new(BatcherOptions { slot, ..self.options.clone() });
        Arc::clone(batchers.entry(place).or_insert_with(new))
    }
}
