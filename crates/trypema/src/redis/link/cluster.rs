//! Bringing a call to the node that serves its slot, and following slots when they move.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use ::redis::ConnectionInfo;

use super::RedisStats;
use super::address::at;
use super::budget::within;
use super::dial::{Line, dial};
use super::errand::Errand;
use super::gate::jittered;
use super::managed::{Request, Standing};
use super::reply::Answer;
use super::slots::{SlotRange, slot_of, slot_ranges};
use super::topology::{Node, Topology};
use crate::clock::{Clock, SystemClock, Timestamp};
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

/// Connections to the nodes of one cluster.
pub(super) struct ClusterConnection {
    shape: Arc<Shape>,
    refresh: Errand,
    next_refresh: Mutex<Timestamp>,
}

/// The shape of the cluster as one node tells it.
struct Told {
    by: ConnectionInfo,
    ranges: Vec<SlotRange>,
}

/// What is known of the cluster, shared with the refresh in progress.
struct Shape {
    seeds: Vec<ConnectionInfo>,
    topology: RwLock<Topology>,
    last_failure: Mutex<Option<RedisFailure>>,
}

impl ClusterConnection {
    pub(super) fn new(seeds: Vec<ConnectionInfo>) -> Self {
        let shape =
            Shape { seeds, topology: RwLock::new(Topology::unknown()), last_failure: Mutex::new(None) };
        Self {
            shape: Arc::new(shape),
            refresh: Errand::new(),
            next_refresh: Mutex::new(Timestamp::default()),
        }
    }

    pub(super) fn stats(&self) -> RedisStats {
        self.shape.read().stats()
    }

    /// Makes the call once, on the node that serves the slot of its keys.
    pub(super) async fn run(&self, request: Request<'_>) -> Answer {
        let slot = request.call.keys.first().map_or(0, |key| slot_of(key));
        let mut target = match self.owner_of(slot).await {
            Ok(node) => node,
            Err(failure) => return Answer::NotSent(failure),
        };
        let mut request = request;
        for _ in 0..=MAX_REDIRECTIONS {
            let answer = self.refresh.alongside(target.connection.run(request)).await;
            let (next, standing) = match answer {
                Answer::Moved(address) => (self.moved(slot, &target, &address), Standing::Owner),
                Answer::Ask(address) => (self.shape.write().node(&target, &address), Standing::Importing),
                Answer::NotSent(failure) => match self.other_owner(slot, &target).await {
                    Some(node) => (Some(node), Standing::Owner),
                    None => return Answer::NotSent(failure),
                },
                other => return self.note(other),
            };
            let Some(next) = next else { return Answer::NotReady(lost_in_cluster()) };
            (target, request.standing) = (next, standing);
        }
        Answer::NotReady(lost_in_cluster())
    }

    /// A connection to some node.
    pub(super) async fn line(&self) -> Result<Line, RedisFailure> {
        self.owner_of(0).await?.connection.line().await
    }

    /// Where the node is that serves the slot of `key` now, as the cluster itself says.
    pub(super) async fn server_of(&self, key: &[u8]) -> Result<ConnectionInfo, RedisFailure> {
        let slot = slot_of(key);
        let told = self.shape.ask().await?;
        let range = told.ranges.iter().find(|range| (range.first..=range.last).contains(&slot));
        let owner = range.and_then(|range| at(&told.by, &range.address));
        owner.ok_or_else(|| unavailable(NO_OWNER))
    }

    async fn owner_of(&self, slot: u16) -> Result<Arc<Node>, RedisFailure> {
        if let Some(node) = self.shape.read().owner(slot) {
            return Ok(node);
        }
        self.begin_refresh_if_due();
        self.refresh.join().await;
        self.shape.read().owner(slot).ok_or_else(|| self.shape.refresh_failure())
    }

    /// After `target` could not be reached: who else serves the slot by now. One call at a time looks; the others
    /// are not held up.
    async fn other_owner(&self, slot: u16, target: &Arc<Node>) -> Option<Arc<Node>> {
        if self.begin_refresh_if_due() || self.refresh.is_left_alone() {
            self.refresh.join().await;
        }
        self.shape.read().owner(slot).filter(|node| !Arc::ptr_eq(node, target))
    }

    fn moved(&self, slot: u16, from: &Arc<Node>, address: &str) -> Option<Arc<Node>> {
        // Where one slot moved, others may have.
        self.begin_refresh_if_due();
        self.shape.write().assign(slot, from, address)
    }

    /// Answers that hint at a changed cluster make the next call look at its shape.
    fn note(&self, answer: Answer) -> Answer {
        if matches!(answer, Answer::Lost(_) | Answer::NotReady(_) | Answer::ReadOnly(_)) {
            self.begin_refresh_if_due();
        }
        answer
    }

    /// Whether this began a refresh; it moves on while calls are made.
    fn begin_refresh_if_due(&self) -> bool {
        if self.refresh.is_under_way() {
            return false;
        }
        let now = SystemClock.now();
        {
            let mut next = self.next_refresh.lock().unwrap_or_else(PoisonError::into_inner);
            if now < *next {
                return false;
            }
            *next = now + jittered(REFRESH_INTERVAL);
        }
        let shape = Arc::clone(&self.shape);
        self.refresh.begin(async move { shape.refresh().await });
        true
    }
}

impl Shape {
    async fn refresh(&self) {
        match self.ask().await {
            Ok(told) => self.write().replace(&told.by, &told.ranges),
            Err(failure) => *self.failure() = Some(failure),
        }
    }

    /// Asks node after node, those first that are connected, until one tells the shape.
    async fn ask(&self) -> Result<Told, RedisFailure> {
        let (connected, others) = self.read().nodes_to_ask();
        for (info, line) in connected {
            if let Some(Ok(ranges)) = within(REFRESH_BUDGET, ask_one(line)).await {
                return Ok(Told { by: info, ranges });
            }
        }
        let mut last_failure = unavailable(NO_OWNER);
        for info in self.seeds.iter().chain(&others) {
            let asked = within(REFRESH_BUDGET, async { ask_one(dial(info).await?).await });
            match asked.await {
                Some(Ok(ranges)) => return Ok(Told { by: info.clone(), ranges }),
                Some(Err(failure)) => last_failure = failure,
                None => last_failure = unavailable("a node of the cluster did not answer"),
            }
        }
        Err(last_failure)
    }

    fn refresh_failure(&self) -> RedisFailure {
        self.failure().clone().unwrap_or_else(|| unavailable(NO_OWNER))
    }

    fn read(&self) -> RwLockReadGuard<'_, Topology> {
        self.topology.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Topology> {
        self.topology.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> MutexGuard<'_, Option<RedisFailure>> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
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

fn lost_in_cluster() -> RedisFailure {
    unavailable("the nodes of the cluster do not agree on who serves the key's slot")
}

fn unavailable(message: &str) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
