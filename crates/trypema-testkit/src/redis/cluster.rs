//! A Redis Cluster.

mod forming;
mod migration;
mod view;

use super::wait::poll;
use super::{Binary, Error, Info, Result, Server};
use view::View;

pub use migration::Migration;

/// The number of slots of a Cluster.
pub const SLOTS: u16 = 16_384;
const PRIMARIES: usize = 3;

/// Three primaries with a replica each. A node that does not answer for a second counts as failed.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a Cluster of the `redis-server` on the `PATH`, and waits until it works, which takes some
    /// seconds.
    pub fn start() -> Result<Self> {
        Self::start_on(Binary::redis()?)
    }

    /// Starts a Cluster of another program.
    pub fn start_on(binary: Binary) -> Result<Self> {
        let cluster = Self { nodes: forming::start(&binary)? };
        let (primaries, replicas) = cluster.nodes.split_at(PRIMARIES);
        forming::deal_slots(primaries)?;
        forming::introduce(&cluster.nodes)?;
        forming::attach(primaries, replicas)?;
        cluster.wait_until_ok()?;
        Ok(cluster)
    }

    /// Returns the URL of all six nodes: `redis+cluster://host:port,host:port,…`.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// Returns all six nodes, whatever their current role.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Returns the slot of a key.
    pub fn slot_of(&self, key: &str) -> Result<u16> {
        let node = self.live().next().ok_or_else(|| Error::new("no node runs"))?;
        let slot = node.control()?.command(&["CLUSTER", "KEYSLOT", key])?.integer();
        slot.and_then(|slot| u16::try_from(slot).ok()).ok_or_else(|| Error::new("KEYSLOT gave no slot"))
    }

    /// Returns the running primary of the slot.
    pub fn primary_of(&self, slot: u16) -> Result<&Server> {
        let mut found: Option<(u64, &Server)> = None;
        for node in self.live() {
            let view = View::of(node)?;
            let myself = view.myself()?;
            // A replaced primary claims its slots until it learns of the failover: the claim with the
            // highest epoch wins.
            if myself.owns(slot) && found.is_none_or(|(epoch, _)| epoch < myself.epoch) {
                found = Some((myself.epoch, node));
            }
        }
        found.map(|(_, node)| node).ok_or_else(|| Error::new(format!("no running node owns slot {slot}")))
    }

    /// Returns a running replica of the slot's primary.
    pub fn replica_of(&self, slot: u16) -> Result<&Server> {
        let primary_id = View::of(self.primary_of(slot)?)?.myself()?.id.clone();
        for node in self.live() {
            if View::of(node)?.myself()?.primary_id == primary_id {
                return Ok(node);
            }
        }
        Err(Error::new(format!("the primary of slot {slot} has no running replica")))
    }

    /// Returns a running primary of other slots.
    pub fn other_primary(&self, slot: u16) -> Result<&Server> {
        let port = self.primary_of(slot)?.port();
        let mut others = self.live_primaries()?.into_iter().filter(|node| node.port() != port);
        others.next().ok_or_else(|| Error::new("there is no other primary"))
    }

    /// Promotes a replica of the slot's primary with `CLUSTER FAILOVER`. All nodes know when this returns.
    pub fn failover(&self, slot: u16) -> Result<()> {
        let (old, replica) = (self.primary_of(slot)?, self.replica_of(slot)?);
        replica.control()?.command(&["CLUSTER", "FAILOVER"])?;
        poll("the replica to take over", || {
            let primary = self.primary_of(slot)?.port();
            if primary == replica.port() { Ok(()) } else { Err(Error::new(format!("{primary} is primary"))) }
        })?;
        self.wait_until_ok()?;
        // Redis 6.2 pauses writes to the old primary for ten seconds and does not end the pause. A test
        // that promotes it again would notice.
        old.control()?.command(&["CLIENT", "UNPAUSE"]).map(|_| ())
    }

    /// Kills the slot's primary, and returns it immediately, before its replica has taken over.
    pub fn kill_primary_of(&self, slot: u16) -> Result<&Server> {
        let primary = self.primary_of(slot)?;
        primary.kill_9()?;
        Ok(primary)
    }

    /// Moves the slot and its keys to another primary. All nodes know when this returns.
    pub fn migrate_slot(&self, slot: u16, to: &Server) -> Result<()> {
        self.begin_migration(slot, to)?.finish()
    }

    /// Begins to move the slot to another primary. It stays in this state until [`Migration::finish`].
    pub fn begin_migration<'a>(&'a self, slot: u16, to: &'a Server) -> Result<Migration<'a>> {
        Migration::begin(self, slot, to)
    }

    /// Waits until every running node is healthy, agrees with all others on the primary of every slot, and,
    /// if it is a replica, follows its primary.
    pub fn wait_until_ok(&self) -> Result<()> {
        poll("the cluster to be ok", || {
            let mut agreed: Option<Vec<u16>> = None;
            for node in self.live() {
                let owners = self.owners_if_ok(node)?;
                if agreed.as_ref().is_some_and(|agreed| *agreed != owners) {
                    return Err(Error::new("the nodes do not agree"));
                }
                agreed = Some(owners);
            }
            Ok(())
        })
    }

    fn owners_if_ok(&self, node: &Server) -> Result<Vec<u16>> {
        let not_ok = |why: &str| Err(Error::new(format!("{} {why}", node.port())));
        let mut control = node.control()?;
        let state = Info::parse(&control.command(&["CLUSTER", "INFO"])?.text());
        if state.text("cluster_state") != "ok" {
            return not_ok("is not ok");
        }
        let replication = Info::parse(&control.command(&["INFO", "replication"])?.text());
        if replication.text("role") == "slave" && replication.text("master_link_status") != "up" {
            return not_ok("does not follow its primary");
        }
        let owners = View::of(node)?.owners();
        let live: Vec<u16> = self.live().map(Server::port).collect();
        if !owners.iter().all(|owner| live.contains(owner)) {
            return not_ok("sees a slot without a running primary");
        }
        Ok(owners)
    }

    fn live(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn live_primaries(&self) -> Result<Vec<&Server>> {
        let mut primaries = Vec::new();
        for node in self.live() {
            if View::of(node)?.myself()?.is("master") {
                primaries.push(node);
            }
        }
        Ok(primaries)
    }
}
