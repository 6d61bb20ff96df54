//! The registry of all connections: admits new ones, and drives the clock of their timeouts.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpStream as StdTcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;
use trypema::http::TrustedProxies;

use super::connection::{Connection, Instruction};
use super::crowd::{CROWDED_CONNECTIONS, CrowdRuntime};
use super::log_throttle::LogThrottle;
use super::nofile::{Descriptors, MAX_CLOSING};
use super::peer::{Peer, PeerKey};
use super::state::Phase;
use super::streams::Streams;
use super::timeouts::Timeouts;
use crate::config::Config;
use crate::metrics::ConnectionMetrics;

/// The resolution of the registry's clock, and so of all timeouts. They last seconds, so this is exact enough.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// The number of ticks between two scans of all connections for expired timeouts.
const TICKS_PER_SWEEP: u32 = 5;
/// The time that a connection over the limit of its peer stays open.
const HOLD_REFUSED: Duration = Duration::from_secs(1);
const HOLD_REFUSED_TICKS: u32 = (HOLD_REFUSED.as_millis() / TICK.as_millis()) as u32;
/// The longest pause in accepting while too many evicted connections are still closing. After it, the registry refuses new connections.
const MAX_ACCEPT_PAUSE: Duration = Duration::from_millis(250);

/// All connections.
#[derive(Debug)]
pub struct Registry {
    pub(super) metrics: Arc<ConnectionMetrics>,
    max_connections: usize,
    /// The number of connections over the limits of their peers that are held open at a time.
    max_refused: usize,
    /// The number of connections that one peer may open. It does not apply to trusted proxies, which forward the requests of many
    /// clients.
    max_per_peer: usize,
    pub(super) trusted_proxies: TrustedProxies,
    /// The budget for request bodies and unread responses of all connections, in bytes.
    pub(super) max_buffered_bytes: u64,
    pub(super) memory_log: LogThrottle,
    peer_log: LogThrottle,
    ticks: AtomicU32,
    pub(super) timeouts: Timeouts,
    pub(super) streams: Streams,
    table: Mutex<ConnectionTable>,
    /// Runs the connections of crowded peers.
    crowd: Arc<CrowdRuntime>,
    /// Sockets over the limit of their peer, each with the tick in which it was accepted.
    refused_sockets: Mutex<VecDeque<(u32, StdTcpStream)>>,
}

/// The reason why a connection gets no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmitError {
    /// The peer has `max_connections_per_peer` connections open.
    PeerLimit,
    /// All slots are taken, and no connection can be evicted.
    Full,
}

/// The open connections, in slots that are reused.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    pub(super) slots: Vec<Option<Arc<Connection>>>,
    free: Vec<usize>,
    /// The peers that have a connection open.
    peers: HashMap<PeerKey, Arc<Peer>>,
    /// The slot at which the next search for a connection to evict begins.
    pub(super) eviction_cursor: usize,
    /// The number of connections that were admitted so far.
    admitted: u64,
}

/// The slot of a connection in the registry. Dropping it frees the slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    pub(super) registry: Arc<Registry>,
    pub(crate) connection: Arc<Connection>,
    index: usize,
}

impl Registry {
    /// Creates a registry for the connections of all listeners, as many as `descriptors` permits.
    pub(crate) fn new(metrics: Arc<ConnectionMetrics>, config: &Config, descriptors: Descriptors) -> Self {
        let values = &config.values;
        Self {
            metrics,
            max_connections: descriptors.connections,
            max_refused: descriptors.refused,
            max_per_peer: values.max_connections_per_peer,
            trusted_proxies: config.trusted_proxies.clone(),
            max_buffered_bytes: config.buffered_bytes as u64,
            memory_log: LogThrottle::default(),
            peer_log: LogThrottle::default(),
            ticks: AtomicU32::new(0),
            timeouts: Timeouts::of(values),
            streams: Streams::new(descriptors.connections),
            table: Mutex::default(),
            crowd: Arc::default(),
            refused_sockets: Mutex::default(),
        }
    }

    /// Returns the current tick.
    pub(crate) fn now(&self) -> u32 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Admits a new connection to a slot. If all slots are taken, evicts another connection.
    pub(super) fn admit(self: &Arc<Self>, peer_address: SocketAddr) -> Result<ConnectionSlot, AdmitError> {
        let mut table = self.lock_table();
        let peer = table.peer(PeerKey::of(peer_address.ip()));
        self.check_peer_limit(&peer, peer_address.ip())?;
        table.admitted += 1;
        let connection =
            Arc::new(Connection::new(peer_address, Arc::clone(&peer), table.admitted, self.now()));
        let open = table.open();
        if open >= self.max_connections {
            if open >= self.max_connections + MAX_CLOSING || !table.evict_one(self.now()) {
                self.metrics.refused.add_one();
                return Err(AdmitError::Full);
            }
            self.metrics.evicted.add_one();
        }
        let index = match table.free.pop() {
            Some(index) => index,
            None => {
                table.slots.push(None);
                table.slots.len() - 1
            }
        };
        table.slots[index] = Some(Arc::clone(&connection));
        peer.open_connections.fetch_add(1, Ordering::Relaxed);
        table.peers.insert(peer.key, peer);
        self.metrics.open.store((open + 1) as u64, Ordering::Relaxed);
        drop(table);
        Ok(ConnectionSlot { registry: Arc::clone(self), connection, index })
    }

    /// Fails if a peer may not open another connection.
    fn check_peer_limit(&self, peer: &Peer, address: IpAddr) -> Result<(), AdmitError> {
        let open = peer.open_connections.load(Ordering::Relaxed);
        if open < self.max_per_peer || self.trusted_proxies.trusts(address) {
            return Ok(());
        }
        self.metrics.peer_limit.add_one();
        if self.peer_log.try_claim(self.now()) {
            let limit = self.max_per_peer;
            tracing::warn!(
                peer = %address,
                "net: a peer has max_connections_per_peer={limit} connections open; refusing more (logged once a \
                 minute)"
            );
        }
        Err(AdmitError::PeerLimit)
    }

    pub(super) fn crowd_runtime(&self) -> Arc<CrowdRuntime> {
        Arc::clone(&self.crowd)
    }

    /// Whether the peer of a connection has more than [`CROWDED_CONNECTIONS`] open.
    pub(super) fn is_crowded(&self, connection: &Connection) -> bool {
        connection.peer.open_connections.load(Ordering::Relaxed) > CROWDED_CONNECTIONS
            && !self.trusted_proxies.trusts(connection.peer_address.ip())
    }

    /// Keeps a connection over the limit of its peer open for [`HOLD_REFUSED`], without reading from it, and then closes it. A client
    /// that reconnects immediately after a close would otherwise do so thousands of times a second.
    pub(super) fn hold_refused(&self, stream: TcpStream) {
        // Deregisters the socket from the runtime.
        let Ok(stream) = stream.into_std() else { return };
        let mut refused = self.lock_refused();
        refused.push_back((self.now(), stream));
        if refused.len() > self.max_refused {
            refused.pop_front();
        }
    }

    fn close_refused(&self, now: u32) {
        let mut refused = self.lock_refused();
        while refused.front().is_some_and(|(since, _)| now.saturating_sub(*since) >= HOLD_REFUSED_TICKS) {
            refused.pop_front();
        }
    }

    fn lock_refused(&self) -> MutexGuard<'_, VecDeque<(u32, StdTcpStream)>> {
        self.refused_sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the clock and closes connections that exceed a timeout, until the future is dropped.
    pub(crate) async fn run_timer(&self) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.tick();
        }
    }

    fn tick(&self) {
        let now = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        self.close_refused(now);
        if now.is_multiple_of(TICKS_PER_SWEEP) {
            self.close_timed_out(now);
        }
    }

    /// Advances the clock by `time` at once.
    #[cfg(feature = "unstable-testkit")]
    pub fn advance(&self, time: Duration) {
        (0..time.as_millis() / TICK.as_millis()).for_each(|_| self.tick());
    }

    /// Waits until few enough evicted connections are still closing, at most for [`MAX_ACCEPT_PAUSE`]. Meanwhile, new connections wait
    /// in the backlog of the kernel.
    pub(crate) async fn wait_for_capacity(&self) {
        for _ in 0..MAX_ACCEPT_PAUSE.as_millis() {
            if self.open_connections() < self.max_connections + MAX_CLOSING {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns the number of open connections.
    pub(crate) fn open_connections(&self) -> usize {
        self.lock_table().open()
    }

    /// Tells all streams to end, and all connections to finish the requests that have begun and then close.
    pub(crate) fn finish_all(&self) {
        self.lock_table().connections().for_each(|connection| connection.finish());
        self.streams.end();
    }

    /// Closes all connections in any phase.
    pub(crate) fn close_all(&self) {
        self.lock_table().connections().for_each(|connection| connection.close());
    }

    pub(super) fn lock_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionTable {
    pub(super) fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.slots.iter().flatten()
    }

    /// Returns the number of open connections.
    fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the peer of a key, or a new one if it has no connection open.
    fn peer(&self, key: PeerKey) -> Arc<Peer> {
        self.peers.get(&key).map_or_else(|| Arc::new(Peer::new(key)), Arc::clone)
    }
}

impl ConnectionSlot {
    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Whether the peer has so many connections that they are served with low priority.
    pub(crate) fn is_crowded(&self) -> bool {
        self.registry.is_crowded(&self.connection)
    }

    /// Returns the address of the peer.
    pub fn peer_address(&self) -> SocketAddr {
        self.connection.peer_address
    }

    /// A part of a request's head has arrived. Front ends whose requests follow each other tell this after each read and each write;
    /// for the others, a connection stays idle until the head is complete.
    pub fn begin_head(&self) {
        self.connection.begin_head(self.registry.now());
    }

    pub(super) fn begin_first_head(&self) {
        if self.connection.state().phase() == Phase::New {
            self.begin_head();
        }
    }

    pub(super) fn end_answers(&self) {
        self.connection.end_answers(self.registry.now());
    }

    /// Polls the front end's `connection` until it ends, and returns its result, or until the registry closes it. Calls `finish` once
    /// the connection shall finish the requests that have begun.
    pub async fn drive<C: Future>(
        &self,
        mut connection: Pin<&mut C>,
        mut finish: impl FnMut(Pin<&mut C>),
    ) -> Option<C::Output> {
        match self.instruction() {
            Instruction::Close => return None,
            // The notification may have been consumed before the first byte arrived.
            Instruction::Finish => finish(connection.as_mut()),
            Instruction::Continue => {}
        }
        loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => return Some(result),
                next = self.connection.next_instruction() => match next {
                    Instruction::Close => return None,
                    Instruction::Finish => finish(connection.as_mut()),
                    Instruction::Continue => {}
                },
            }
        }
    }

    /// Returns the instruction in force.
    pub fn instruction(&self) -> Instruction {
        self.connection.instruction()
    }

    /// Waits for a permit to decide a batch of this peer.
    pub(crate) async fn batch_permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.connection.peer.batch_permits.acquire().await.ok()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.release_responses();
        let mut table = self.registry.lock_table();
        let peer = &self.connection.peer;
        if peer.open_connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            table.peers.remove(&peer.key);
        }
        table.slots[self.index] = None;
        table.free.push(self.index);
        self.registry.metrics.open.store(table.open() as u64, Ordering::Relaxed);
    }
}
