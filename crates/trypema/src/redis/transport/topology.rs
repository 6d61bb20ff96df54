//! The known nodes of a cluster, and the owner of each slot.

use std::sync::Arc;

use ::redis::ConnectionInfo;

use super::RedisStats;
use super::address::with_address;
use super::dial::{SharedConnection, Target};
use super::node::RedisNode;
use super::slots::{SLOTS, SlotRange};

pub(super) struct Topology {
    nodes: Vec<Arc<RedisNode>>,
    /// An index into `nodes` for each slot.
    owners: Box<[Option<u16>]>,
    /// The openings of the breakers of nodes that have left: their sum with those of `nodes` never falls.
    departed_openings: u64,
}

impl Topology {
    pub(super) fn unknown() -> Self {
        Self { nodes: Vec::new(), owners: vec![None; SLOTS].into_boxed_slice(), departed_openings: 0 }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<Arc<RedisNode>> {
        let index = (*self.owners.get(usize::from(slot))?)?;
        self.nodes.get(usize::from(index)).cloned()
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the node at `address`, which a reply of `named_by` contained. Adds it if it is new.
    pub(super) fn node(&mut self, named_by: &Arc<RedisNode>, address: &str) -> Option<Arc<RedisNode>> {
        let index = self.index_of(named_by.server()?, address)?;
        self.nodes.get(usize::from(index)).cloned()
    }

    /// Makes the node at `address` the owner of `slot`, and returns it. A reply of `named_by` contained the
    /// address.
    pub(super) fn assign(
        &mut self,
        slot: u16,
        named_by: &Arc<RedisNode>,
        address: &str,
    ) -> Option<Arc<RedisNode>> {
        let index = self.index_of(named_by.server()?, address)?;
        *self.owners.get_mut(usize::from(slot))? = Some(index);
        self.nodes.get(usize::from(index)).cloned()
    }

    /// Replaces the topology by the slot table of the node `source`. Nodes that are no longer in it are
    /// dropped. The other nodes keep their connections.
    pub(super) fn replace(&mut self, source: &ConnectionInfo, ranges: &[SlotRange]) {
        let mut next = Self::unknown();
        for range in ranges {
            let Some(info) = with_address(source, &range.address) else { continue };
            let index = next.position(&info).or_else(|| {
                let node = self.position(&info).and_then(|index| self.nodes.get(usize::from(index)).cloned());
                next.add(node.unwrap_or_else(|| node_at(info)))
            });
            if let Some(slots) = next.owners.get_mut(usize::from(range.first)..=usize::from(range.last)) {
                slots.fill(index);
            }
        }
        let is_kept = |node: &Arc<RedisNode>| next.nodes.iter().any(|other| Arc::ptr_eq(node, other));
        let departed = self.nodes.iter().filter(|node| !is_kept(node));
        next.departed_openings =
            self.departed_openings + departed.map(|node| node.breaker().openings()).sum::<u64>();
        *self = next;
    }

    /// Returns the sum over all nodes. The openings are also those of nodes that have left.
    pub(super) fn stats(&self) -> RedisStats {
        let mut all = RedisStats { open_breakers: 0, breaker_openings: self.departed_openings };
        for stats in self.nodes.iter().map(|node| node.breaker().stats()) {
            all.open_breakers += stats.open_breakers;
            all.breaker_openings += stats.breaker_openings;
        }
        all
    }

    /// Returns the sources of a slot table: the connected nodes with their connections, and the other
    /// nodes.
    pub(super) fn nodes_to_query(&self) -> (Vec<(ConnectionInfo, SharedConnection)>, Vec<ConnectionInfo>) {
        let mut connected = Vec::new();
        let mut others = Vec::new();
        for node in &self.nodes {
            let Some(info) = node.server() else { continue };
            match node.working_connection() {
                Some(connection) => connected.push((info.clone(), connection)),
                None => others.push(info.clone()),
            }
        }
        (connected, others)
    }

    fn index_of(&mut self, like: &ConnectionInfo, address: &str) -> Option<u16> {
        let info = with_address(like, address)?;
        self.position(&info).or_else(|| self.add(node_at(info)))
    }

    fn position(&self, info: &ConnectionInfo) -> Option<u16> {
        let index = self
            .nodes
            .iter()
            .position(|node| node.server().is_some_and(|known| known.addr() == info.addr()))?;
        u16::try_from(index).ok()
    }

    /// Adds a node and returns its index; `None` if there are as many nodes as slots.
    fn add(&mut self, node: Arc<RedisNode>) -> Option<u16> {
        if self.nodes.len() >= SLOTS {
            return None;
        }
        self.nodes.push(node);
        u16::try_from(self.nodes.len() - 1).ok()
    }
}

fn node_at(info: ConnectionInfo) -> Arc<RedisNode> {
    RedisNode::new(Target::Server(Box::new(info)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::transport::address::Address;

    fn source() -> ConnectionInfo {
        match Address::parse("redis://:pw@seed:1").unwrap() {
            Address::Server(info) => info,
            _ => panic!("not one server"),
        }
    }

    fn range(first: u16, last: u16, address: &str) -> SlotRange {
        SlotRange { first, last, address: address.into() }
    }

    fn owners(topology: &Topology, slots: [u16; 3]) -> [Option<String>; 3] {
        slots.map(|slot| topology.owner(slot).map(|node| node.server().unwrap().addr().to_string()))
    }

    #[test]
    fn slots_follow_their_ranges_and_single_moves() {
        let mut topology = Topology::unknown();
        assert_eq!(owners(&topology, [0, 1, 16_383]), [None, None, None]);
        topology.replace(&source(), &[range(0, 99, "a:1"), range(200, 16_383, ":2"), range(5, 6, "nowhere")]);
        assert_eq!(owners(&topology, [99, 100, 16_383]), [Some("a:1".into()), None, Some("seed:2".into())]);

        let from = topology.owner(0).unwrap();
        let to = topology.assign(50, &from, "b:3").unwrap();
        assert!(Arc::ptr_eq(&to, &topology.node(&from, "b:3").unwrap()));
        assert_eq!(owners(&topology, [49, 50, 51]), ["a:1", "b:3", "a:1"].map(|name| Some(name.into())));
        assert!(topology.assign(50, &from, "nowhere").is_none());
        assert!(topology.assign(16_384, &from, "b:3").is_none());
    }

    #[test]
    fn nodes_that_stay_keep_their_connection_and_others_are_let_go() {
        let mut topology = Topology::unknown();
        topology.replace(&source(), &[range(0, 99, "a:1"), range(100, 16_383, "b:2")]);
        let (stays, leaves) = (topology.owner(0).unwrap(), Arc::downgrade(&topology.owner(100).unwrap()));
        topology.replace(&source(), &[range(0, 9, "c:3"), range(10, 16_383, "a:1")]);
        assert!(Arc::ptr_eq(&stays, &topology.owner(100).unwrap()));
        assert_eq!(topology.nodes.len(), 2);
        assert!(leaves.upgrade().is_none());
    }

    #[test]
    fn openings_of_nodes_that_leave_stay_counted() {
        let mut topology = Topology::unknown();
        topology.replace(&source(), &[range(0, 99, "a:1"), range(100, 16_383, "b:2")]);
        topology.owner(0).unwrap().breaker().trip();
        topology.owner(100).unwrap().breaker().trip();
        for ranges in
            [vec![range(0, 16_383, "b:2")], vec![range(0, 16_383, "c:3")], vec![range(0, 99, "a:1")]]
        {
            topology.replace(&source(), &ranges);
            assert_eq!(topology.stats().breaker_openings, 2);
        }
        topology.owner(0).unwrap().breaker().trip();
        assert_eq!(topology.stats(), RedisStats { open_breakers: 1, breaker_openings: 3 });
    }
}
