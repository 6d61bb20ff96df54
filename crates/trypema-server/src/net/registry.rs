//! All connections: makes room for new ones, and ends those that take too long.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpStream as StdTcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;
use trypema::http::TrustedProxies;

use super::connection::{Connection, Phase};
use super::crowd::{CROWD, CrowdRuntime};
use super::nofile::{Descriptors, MAX_ENDING};
use super::notice::Notice;
use super::peer::{Peer, PeerKey};
use crate::config::Config;
use crate::metrics::ConnectionMetrics;

/// How often the time is noted. Timeouts are that exact, which is enough for seconds.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Every so many ticks all connections are looked over.
const TICKS_PER_SWEEP: u32 = 5;
/// Connections that are compared when one has to give way: the longest idle of so many is idle long enough, and looking at all of
/// ten thousand for every new one would be an attack by itself.
const COMPARED: usize = 64;
/// How long a connection over the limit of its peer stays open.
const HOLD_REFUSED: Duration = Duration::from_secs(1);
const HOLD_REFUSED_TICKS: u32 = (HOLD_REFUSED.as_millis() / TICK.as_millis()) as u32;

/// How long nobody is accepted, at most, because too many have still to end: if they do not, new ones are refused.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Decisions are bounded where they wait, and none takes nearly as long; this is for what was not thought of.
const LONGEST_DECISION: Duration = Duration::from_secs(120);

/// All connections.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(super) metrics: Arc<ConnectionMetrics>,
    max: usize,
    /// Connections over the limits of their peers that are held open at a time.
    max_refused: usize,
    /// Connections of one peer, unless it is a trusted proxy: through that come the clients of many.
    max_per_peer: usize,
    trusted_proxies: TrustedProxies,
    /// Bytes of bodies and unread answers over all connections.
    pub(super) max_buffered: u64,
    pub(super) memory_notice: Notice,
    peer_notice: Notice,
    ticks: AtomicU32,
    timeouts: Timeouts,
    all: Mutex<Slots>,
    /// Runs the connections of crowded peers.
    crowd: Arc<CrowdRuntime>,
    /// Sockets over the limit of their peer, and the tick in which each was accepted.
    refused: Mutex<VecDeque<(u32, StdTcpStream)>>,
}

/// The reason why a connection gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Its peer has `max_connections_per_peer` open.
    PeerLimit,
    /// All places are taken by connections that are busy.
    Full,
}

/// How many ticks each phase may last.
#[derive(Debug)]
struct Timeouts {
    idle: u32,
    head: u32,
    body: u32,
    busy: u32,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Arc<Connection>>>,
    free: Vec<usize>,
    /// Every peer that has a connection open.
    peers: HashMap<PeerKey, Arc<Peer>>,
    /// Where to look next for one that gives way.
    hand: usize,
    /// How many there have been.
    admitted: u64,
    /// Whether no more requests are wanted.
    is_closing: bool,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pub(super) registry: Arc<Registry>,
    pub(crate) connection: Arc<Connection>,
    slot: usize,
}

impl Registry {
    /// A registry for as many connections as there is `room` for, of all listeners together.
    pub(crate) fn new(metrics: Arc<ConnectionMetrics>, config: &Config, room: Descriptors) -> Self {
        let limits = &config.limits;
        let ticks =
            |time: Duration| u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX).max(1);
        Self {
            metrics,
            max: room.connections,
            max_refused: room.refused,
            max_per_peer: limits.connections_per_peer,
            trusted_proxies: config.trusted_proxies.clone(),
            max_buffered: limits.buffered_bytes as u64,
            memory_notice: Notice::default(),
            peer_notice: Notice::default(),
            ticks: AtomicU32::new(0),
            timeouts: Timeouts {
                idle: ticks(limits.idle_timeout),
                head: ticks(limits.header_timeout),
                body: ticks(limits.request_timeout),
                busy: ticks(LONGEST_DECISION),
            },
            all: Mutex::default(),
            crowd: Arc::default(),
            refused: Mutex::default(),
        }
    }

    /// The time, as connections note it.
    pub(crate) fn now(&self) -> u32 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// A place for a new connection, if need be in place of the longest idle one.
    pub(super) fn admit(self: &Arc<Self>, peer: SocketAddr) -> Result<Place, Refused> {
        let mut all = self.all();
        let usage = all.peer(PeerKey::of(peer.ip()));
        if !self.has_room_for(&usage, peer.ip()) {
            return Err(Refused::PeerLimit);
        }
        all.admitted += 1;
        let connection = Arc::new(Connection::new(peer, usage, all.admitted, self.now()));
        let open = all.slots.len() - all.free.len();
        if open >= self.max {
            if open >= self.max + MAX_ENDING || !all.make_room(self.now()) {
                self.metrics.refused.add_one();
                return Err(Refused::Full);
            }
            self.metrics.gave_way.add_one();
        }
        let slot = match all.free.pop() {
            Some(slot) => slot,
            None => {
                all.slots.push(None);
                all.slots.len() - 1
            }
        };
        if all.is_closing {
            connection.finish();
        }
        all.slots[slot] = Some(Arc::clone(&connection));
        let usage = Arc::clone(&connection.usage);
        usage.open.fetch_add(1, Ordering::Relaxed);
        all.peers.insert(usage.key, usage);
        self.metrics.open.store((open + 1) as u64, Ordering::Relaxed);
        drop(all);
        Ok(Place { registry: Arc::clone(self), connection, slot })
    }

    /// Whether a peer may open another connection.
    fn has_room_for(&self, usage: &Peer, address: IpAddr) -> bool {
        let open = usage.open.load(Ordering::Relaxed);
        if open < self.max_per_peer || self.trusted_proxies.trusts(address) {
            return true;
        }
        self.metrics.peer_limit.add_one();
        if self.peer_notice.claim(self.now()) {
            let limit = self.max_per_peer;
            tracing::warn!(
                peer = %address,
                "net: a peer has max_connections_per_peer={limit} connections open; refusing more (logged once a \
                 minute)"
            );
        }
        false
    }

    pub(super) fn crowd_runtime(&self) -> Arc<CrowdRuntime> {
        Arc::clone(&self.crowd)
    }

    pub(super) fn is_crowded(&self, connection: &Connection) -> bool {
        connection.usage.open.load(Ordering::Relaxed) > CROWD
            && !self.trusted_proxies.trusts(connection.peer.ip())
    }

    /// Keeps a connection over the limit of its peer open for [`HOLD_REFUSED`] before it is closed, and reads nothing from it: a client
    /// that reconnects as soon as it is closed would otherwise do so thousands of times a second.
    pub(super) fn hold_refused(&self, stream: TcpStream) {
        // The runtime need not hear of it any more.
        let Ok(stream) = stream.into_std() else { return };
        let mut refused = self.refused();
        refused.push_back((self.now(), stream));
        if refused.len() > self.max_refused {
            refused.pop_front();
        }
    }

    fn close_refused(&self, now: u32) {
        let mut refused = self.refused();
        while refused.front().is_some_and(|(since, _)| now.saturating_sub(*since) >= HOLD_REFUSED_TICKS) {
            refused.pop_front();
        }
    }

    fn refused(&self) -> MutexGuard<'_, VecDeque<(u32, StdTcpStream)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the time and ends what takes too long, for as long as it is polled.
    pub(crate) async fn keep_time(&self) {
        let mut ticking = tokio::time::interval(TICK);
        ticking.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticking.tick().await;
            let now = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
            self.close_refused(now);
            if now.is_multiple_of(TICKS_PER_SWEEP) {
                self.sweep(now);
            }
        }
    }

    /// Comes back when there are not too many that gave way and have not ended yet: those who come meanwhile are safe with the system.
    pub(crate) async fn room_to_accept(&self) {
        for _ in 0..LONGEST_PAUSE.as_millis() {
            if self.open() < self.max + MAX_ENDING {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        let all = self.all();
        all.slots.len() - all.free.len()
    }

    /// Lets all answer what is under way, and take no more.
    pub(crate) fn finish_all(&self) {
        let mut all = self.all();
        all.is_closing = true;
        all.slots.iter().flatten().for_each(|connection| connection.finish());
    }

    /// Ends those that wait for their clients to ask something: nothing of theirs is under way.
    pub(crate) fn end_unasked(&self) {
        for connection in self.all().slots.iter().flatten() {
            let state = connection.state();
            if matches!(state.phase(), Phase::New | Phase::Idle | Phase::Head | Phase::Body) {
                connection.end(state);
            }
        }
    }

    /// Ends all.
    pub(crate) fn end_all(&self) {
        self.all().slots.iter().flatten().for_each(|connection| connection.end_anyway());
    }

    fn sweep(&self, now: u32) {
        for connection in self.all().slots.iter().flatten() {
            let state = connection.state();
            let is_late = match state.phase() {
                Phase::New | Phase::Idle => state.age(now) > self.timeouts.idle,
                Phase::Head => state.age(now) > self.timeouts.head,
                Phase::Body | Phase::Answer => state.age(now) > self.timeouts.body,
                Phase::Busy => state.age(now) > self.timeouts.busy,
                Phase::Ended => false,
            };
            if is_late && connection.end(state) {
                self.metrics.timed_out.add_one();
            }
        }
    }

    pub(super) fn all(&self) -> MutexGuard<'_, Slots> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    pub(super) fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.slots.iter().flatten()
    }

    /// The use of a peer; nothing, if it has no connection.
    fn peer(&self, key: PeerKey) -> Arc<Peer> {
        self.peers.get(&key).map_or_else(|| Arc::new(Peer::new(key)), Arc::clone)
    }

    /// Ends the longest waiting one of those that are looked at; whether there is one.
    fn make_room(&mut self, now: u32) -> bool {
        let count = self.slots.len();
        // Where nearly all are busy, it takes more than one look.
        for _ in 0..count.div_ceil(COMPARED) {
            let hand = self.hand;
            self.hand = (hand + COMPARED) % count;
            let compared =
                (hand..hand + COMPARED.min(count)).filter_map(|place| self.slots[place % count].as_ref());
            let waiting = compared.filter_map(|connection| {
                let state = connection.state();
                Some((connection.dispensability(state, now)?, connection, state))
            });
            if let Some((_, longest, state)) = waiting.max_by_key(|(dispensability, ..)| *dispensability)
                && longest.end(state)
            {
                return true;
            }
        }
        false
    }
}

impl Place {
    /// Whether its peer has so many connections that they are served with low priority.
    pub(crate) fn is_crowded(&self) -> bool {
        self.registry.is_crowded(&self.connection)
    }

    /// Waits until a batch of this peer may be decided.
    pub(crate) async fn batch_turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.connection.usage.batches.acquire().await.ok()
    }

    /// The connection is in another phase from now on, unless it was ended: whether it was not.
    pub(crate) fn enter(&self, phase: Phase) -> bool {
        self.connection.enter(phase, self.registry.now())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.release_answers();
        let mut all = self.registry.all();
        let usage = &self.connection.usage;
        if usage.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            all.peers.remove(&usage.key);
        }
        all.slots[self.slot] = None;
        all.free.push(self.slot);
        let open = all.slots.len() - all.free.len();
        self.registry.metrics.open.store(open as u64, Ordering::Relaxed);
    }
}
