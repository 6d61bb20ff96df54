//! Sends calls to the node that serves their slot, and follows slots that move.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use ::redis::ConnectionInfo;

use super::RedisStats;
use super::address::with_address;
use super::dial::{SharedConnection, SlotOwnership, dial};
use super::node::{NodeChannel, RedisNode, ScriptRequest};
use super::reply::CommandOutcome;
use super::single_flight::SingleFlight;
use super::slots::{SlotRange, slot_ranges};
use super::topology::Topology;
use super::{refused, within};
use crate::redis::runtime::{PerRuntime, spawn};
use crate::redis::{RedisFailure, RedisFailureKind};

/// The maximum number of redirections of one call. A slot that moves takes two. More means that the nodes
/// disagree.
const MAX_REDIRECTIONS: u32 = 5;

/// The minimum interval between requests for the slot table. The actual interval is up to twice as long.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// The time that one node has to accept a connection and return the slot table, before the next node is
/// tried.
const REFRESH_BUDGET: Duration = Duration::from_millis(250);

/// The words in which every version says that it is not part of a cluster.
const NO_CLUSTER: &str = "cluster support disabled";

/// The nodes of one cluster, and the slots that each serves.
pub(super) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    topology: RwLock<Topology>,
    /// One for each runtime: a fetch that a runtime began makes no progress while that runtime is not polled.
    refresh: PerRuntime<SingleFlight>,
    last_failure: Mutex<Option<RedisFailure>>,
}

/// The slot table that one node returned.
struct SlotTable {
    source: ConnectionInfo,
    ranges: Vec<SlotRange>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            topology: RwLock::new(Topology::unknown()),
            refresh: PerRuntime::new(),
            last_failure: Mutex::new(None),
        })
    }

    pub(super) fn stats(&self) -> RedisStats {
        self.read().stats()
    }

    /// Returns the node that serves `slot`, if it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<RedisNode>> {
        self.read().owner(slot)
    }

    /// Returns the failure of a request for `slot` that must not be queued, because the circuit breaker is
    /// open.
    pub(super) fn refusal(self: &Arc<Self>, slot: u16) -> Option<RedisFailure> {
        let refusal = self.owner(slot)?.refusal();
        // Another node may serve the slot by now: fetch the slot table.
        refusal.inspect(|_| self.refresh_in_background())
    }

    /// Returns a channel to the node that serves `slot`. Finds and dials the node if necessary.
    pub(super) async fn channel(self: &Arc<Self>, slot: u16) -> Result<NodeChannel, RedisFailure> {
        let node = self.owner_of(slot).await?;
        match node.channel().await {
            Ok(channel) => Ok(channel),
            Err(failure) => match self.other_owner(slot, &node).await {
                Some(node) => node.channel().await,
                None => Err(failure),
            },
        }
    }

    /// Runs the call once, on `channel` or on the node that it is redirected to.
    pub(super) async fn run(
        self: &Arc<Self>,
        mut channel: NodeChannel,
        mut request: ScriptRequest<'_>,
        slot: u16,
    ) -> CommandOutcome {
        for _ in 0..=MAX_REDIRECTIONS {
            let node = Arc::clone(&channel.node);
            let next = match channel.run(request).await {
                CommandOutcome::Moved(address) => {
                    request.ownership = SlotOwnership::Owner;
                    // If one slot has moved, others may have moved too.
                    self.refresh_in_background();
                    self.write().assign(slot, &node, &address)
                }
                CommandOutcome::Ask(address) => {
                    request.ownership = SlotOwnership::Importing;
                    self.write().node(&node, &address)
                }
                other => return self.refresh_after(other),
            };
            let Some(next) = next else { break };
            channel = match next.channel().await {
                Ok(channel) => channel,
                Err(failure) => return self.refresh_after(CommandOutcome::NotSent(failure)),
            };
        }
        CommandOutcome::NotReady(unavailable(format!(
            "the nodes of the cluster disagree about which of them serves slot {slot}"
        )))
    }

    /// Returns a connection to some node.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<SharedConnection, RedisFailure> {
        self.owner_of(0).await?.connection().await
    }

    /// Returns the number of known nodes that serve slots.
    pub(super) fn nodes(&self) -> usize {
        self.read().nodes()
    }

    /// Queries the cluster for the address of the node that serves `slot`.
    pub(super) async fn server_of(&self, slot: u16) -> Result<ConnectionInfo, RedisFailure> {
        let table = self.fetch_slots().await?;
        let range = table.ranges.iter().find(|range| (range.first..=range.last).contains(&slot));
        let owner = range.and_then(|range| with_address(&table.source, &range.address));
        owner.ok_or_else(|| no_owner(slot))
    }

    async fn owner_of(&self, slot: u16) -> Result<Arc<RedisNode>, RedisFailure> {
        if let Some(node) = self.owner(slot) {
            return Ok(node);
        }
        self.refresh_once().await;
        self.owner(slot).ok_or_else(|| {
            let failure = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            failure.unwrap_or_else(|| no_owner(slot))
        })
    }

    /// Fetches the slot table after `node` could not be reached. Returns the owner of `slot` if it is
    /// another node.
    async fn other_owner(&self, slot: u16, node: &Arc<RedisNode>) -> Option<Arc<RedisNode>> {
        self.refresh_once().await;
        self.owner(slot).filter(|owner| !Arc::ptr_eq(owner, node))
    }

    /// Passes an outcome on. If the outcome suggests that the cluster has changed, fetches the slot table.
    fn refresh_after(self: &Arc<Self>, outcome: CommandOutcome) -> CommandOutcome {
        use CommandOutcome::{Lost, NotReady, NotSent, ReadOnly};
        if matches!(outcome, Lost(_) | NotReady(_) | NotSent(_) | ReadOnly(_)) {
            self.refresh_in_background();
        }
        outcome
    }

    /// Fetches the slot table in a task of its own, if that is due.
    fn refresh_in_background(self: &Arc<Self>) {
        if self.own_refresh().is_due() {
            let cluster = Arc::clone(self);
            spawn(async move { cluster.refresh_once().await });
        }
    }

    /// Fetches the slot table, or waits until a fetch in progress ends. Does nothing if the last one was just now.
    async fn refresh_once(&self) {
        self.own_refresh().run(self.refresh()).await;
    }

    fn own_refresh(&self) -> Arc<SingleFlight> {
        self.refresh.current(|| SingleFlight::new(REFRESH_INTERVAL), |_| false)
    }

    async fn refresh(&self) {
        match self.fetch_slots().await {
            Ok(table) => self.write().replace(&table.source, &table.ranges),
            Err(failure) => {
                *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            }
        }
    }

    /// Fetches the slot table. Tries the connected nodes first, then the others, until one returns it.
    async fn fetch_slots(&self) -> Result<SlotTable, RedisFailure> {
        let (connected, others) = self.read().nodes_to_query();
        for (info, connection) in connected {
            if let Some(Ok(ranges)) = within(REFRESH_BUDGET, fetch_slots_from(connection)).await {
                return Ok(SlotTable { source: info, ranges });
            }
        }
        let mut last_failure = unavailable("no node of the cluster is configured");
        for info in self.seeds.iter().chain(&others) {
            let fetch = within(REFRESH_BUDGET, async {
                let connection = dial(info).await?;
                fetch_slots_from(connection).await.map_err(|failure| failure.at(info.addr()))
            });
            match fetch.await {
                Some(Ok(ranges)) => return Ok(SlotTable { source: info.clone(), ranges }),
                Some(Err(failure)) => last_failure = failure,
                None => {
                    let message = format!("no slot table within {REFRESH_BUDGET:?}");
                    last_failure = unavailable(message).at(info.addr());
                }
            }
        }
        Err(last_failure)
    }

    fn read(&self) -> RwLockReadGuard<'_, Topology> {
        self.topology.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Topology> {
        self.topology.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches the slot table from the node of this connection.
async fn fetch_slots_from(connection: SharedConnection) -> Result<Vec<SlotRange>, RedisFailure> {
    let mut command = ::redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = match CommandOutcome::from_result(connection.send(&command).await) {
        CommandOutcome::Value(reply) => reply,
        CommandOutcome::Refused(failure) if failure.to_string().contains(NO_CLUSTER) => {
            return Err(refused("the server is not part of a cluster; connect with `redis://`"));
        }
        CommandOutcome::Refused(failure) => return Err(failure),
        _ => return Err(unavailable("the node cannot answer CLUSTER SLOTS yet")),
    };
    let ranges = slot_ranges(&reply);
    if ranges.is_empty() {
        return Err(unavailable("the node knows no slots; is it part of a cluster?"));
    }
    Ok(ranges)
}

/// Returns the failure if no node is known to serve a slot.
fn no_owner(slot: u16) -> RedisFailure {
    unavailable(format!("no node of the cluster serves slot {slot}"))
}

fn unavailable(message: impl Into<Arc<str>>) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
