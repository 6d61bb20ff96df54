//! Brings a call to the node that serves its slot, and follows slots when they move.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use ::redis::ConnectionInfo;

use super::RedisStats;
use super::address::at;
use super::dial::{Line, Standing, dial};
use super::node::{Node, NodeChannel, Request};
use super::reply::Answer;
use super::single_flight::SingleFlight;
use super::slots::{SlotRange, slot_ranges};
use super::topology::Topology;
use super::within;
use crate::redis::runtime::spawn;
use crate::redis::{RedisFailure, RedisFailureKind};

/// How often one call is sent on. A slot on the move takes two; more means that nodes disagree, and that is for
/// them to settle.
const MAX_REDIRECTIONS: u32 = 5;

/// The shape of the cluster is asked for at most this often (up to twice as far apart).
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// What one node may take to be dialled and to tell the shape; the next one is asked after that.
const REFRESH_BUDGET: Duration = Duration::from_millis(250);

/// Nobody is known to serve a slot.
const NO_OWNER: &str = "no node of the cluster serves the key's slot";

/// The nodes of one cluster, and which of them serves which slots.
pub(super) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    topology: RwLock<Topology>,
    refresh: SingleFlight,
    last_failure: Mutex<Option<RedisFailure>>,
}

/// The slot table as one node tells it.
struct SlotTable {
    by: ConnectionInfo,
    ranges: Vec<SlotRange>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            topology: RwLock::new(Topology::unknown()),
            refresh: SingleFlight::new(REFRESH_INTERVAL),
            last_failure: Mutex::new(None),
        })
    }

    pub(super) fn stats(&self) -> RedisStats {
        self.read().stats()
    }

    /// The node that is known to serve `slot`.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.read().owner(slot)
    }

    /// Why a request for `slot` should not even be queued, if that is so.
    pub(super) fn refusal(self: &Arc<Self>, slot: u16) -> Option<RedisFailure> {
        let refusal = self.owner(slot)?.breaker().refusal();
        // Another node may serve the slot by now.
        refusal.inspect(|_| self.refresh_in_background())
    }

    /// A channel to the node that serves `slot`, found and dialled if need be.
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

    /// Makes the call once, on `channel` or on the nodes that it is redirected to.
    pub(super) async fn run(
        self: &Arc<Self>,
        mut channel: NodeChannel,
        mut request: Request<'_>,
        slot: u16,
    ) -> Answer {
        for _ in 0..=MAX_REDIRECTIONS {
            let node = Arc::clone(&channel.node);
            let next = match channel.run(request).await {
                Answer::Moved(address) => {
                    request.standing = Standing::Owner;
                    // Where one slot moved, others may have.
                    self.refresh_in_background();
                    self.write().assign(slot, &node, &address)
                }
                Answer::Ask(address) => {
                    request.standing = Standing::Importing;
                    self.write().node(&node, &address)
                }
                other => return self.note(other),
            };
            let Some(next) = next else { break };
            channel = match next.channel().await {
                Ok(channel) => channel,
                Err(failure) => return self.note(Answer::NotSent(failure)),
            };
        }
        Answer::NotReady(unavailable("the nodes of the cluster do not agree on who serves the key's slot"))
    }

    /// A connection to some node.
    pub(super) async fn line(self: &Arc<Self>) -> Result<Line, RedisFailure> {
        self.owner_of(0).await?.line().await
    }

    /// Where the node is that serves `slot` now, as the cluster itself says.
    pub(super) async fn server_of(&self, slot: u16) -> Result<ConnectionInfo, RedisFailure> {
        let table = self.ask().await?;
        let range = table.ranges.iter().find(|range| (range.first..=range.last).contains(&slot));
        let owner = range.and_then(|range| at(&table.by, &range.address));
        owner.ok_or_else(|| unavailable(NO_OWNER))
    }

    async fn owner_of(&self, slot: u16) -> Result<Arc<Node>, RedisFailure> {
        if let Some(node) = self.owner(slot) {
            return Ok(node);
        }
        self.refresh.run(self.refresh()).await;
        self.owner(slot).ok_or_else(|| {
            let failure = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            failure.unwrap_or_else(|| unavailable(NO_OWNER))
        })
    }

    /// After `node` could not be reached: the node that serves the slot by now.
    async fn other_owner(&self, slot: u16, node: &Arc<Node>) -> Option<Arc<Node>> {
        self.refresh.run(self.refresh()).await;
        self.owner(slot).filter(|owner| !Arc::ptr_eq(owner, node))
    }

    /// Answers that hint at a changed cluster have its slot table fetched.
    fn note(self: &Arc<Self>, answer: Answer) -> Answer {
        use Answer::{Lost, NotReady, NotSent, ReadOnly};
        if matches!(answer, Lost(_) | NotReady(_) | NotSent(_) | ReadOnly(_)) {
            self.refresh_in_background();
        }
        answer
    }

    /// Fetches the slot table, if that is due; no call waits for it.
    fn refresh_in_background(self: &Arc<Self>) {
        if self.refresh.is_due() {
            let cluster = Arc::clone(self);
            spawn(async move {
                cluster.refresh.run(cluster.refresh()).await;
            });
        }
    }

    async fn refresh(&self) {
        match self.ask().await {
            Ok(table) => self.write().replace(&table.by, &table.ranges),
            Err(failure) => {
                *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            }
        }
    }

    /// Asks node after node, those first that are connected, until one tells the shape.
    async fn ask(&self) -> Result<SlotTable, RedisFailure> {
        let (connected, others) = self.read().nodes_to_ask();
        for (info, line) in connected {
            if let Some(Ok(ranges)) = within(REFRESH_BUDGET, ask_one(line)).await {
                return Ok(SlotTable { by: info, ranges });
            }
        }
        let mut last_failure = unavailable(NO_OWNER);
        for info in self.seeds.iter().chain(&others) {
            let asked = within(REFRESH_BUDGET, async { ask_one(dial(info).await?).await });
            match asked.await {
                Some(Ok(ranges)) => return Ok(SlotTable { by: info.clone(), ranges }),
                Some(Err(failure)) => last_failure = failure,
                None => last_failure = unavailable("a node of the cluster did not answer"),
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

/// Which node serves which slots, as the node at the end of this line says.
async fn ask_one(line: Line) -> Result<Vec<SlotRange>, RedisFailure> {
    let mut question = ::redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let reply = match Answer::of(line.send(&question).await) {
        Answer::Value(reply) => reply,
        Answer::Refused(failure) => return Err(failure),
        _ => return Err(unavailable("a node of the cluster is not ready")),
    };
    let ranges = slot_ranges(&reply);
    if ranges.is_empty() {
        return Err(unavailable("a node of the cluster knows of no slots"));
    }
    Ok(ranges)
}

fn unavailable(message: &str) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
