//! Forms a Cluster of six servers.

use super::view::View;
use super::{PRIMARIES, SLOTS};
use crate::redis::wait::poll;
use crate::redis::{Binary, Error, Result, Server};

/// The time after which a node that does not answer counts as failed: short, but longer than a loaded
/// machine pauses.
const NODE_TIMEOUT_MS: &str = "1000";
/// The number of slots per command; Redis 6.2 does not support ranges.
const SLOTS_PER_COMMAND: usize = 1024;
/// A migration barrier that keeps replicas with their primaries. By default, a replica whose primary lost
/// its slots would move to another one.
const NEVER_MIGRATE: &str = "100";

/// Starts the nodes: the primaries, then as many replicas.
pub(super) fn start(binary: &Binary) -> Result<Vec<Server>> {
    let node = || {
        Server::builder()
            .binary(binary.clone())
            .set("cluster-enabled", "yes")
            .set("cluster-announce-ip", "127.0.0.1")
            .set("cluster-node-timeout", NODE_TIMEOUT_MS)
            .set("cluster-replica-validity-factor", "0")
            .set("cluster-migration-barrier", NEVER_MIGRATE)
            .start()
    };
    (0..2 * PRIMARIES).map(|_| node()).collect()
}

/// Assigns the slots to the primaries, in ranges of about the same size.
pub(super) fn deal_slots(primaries: &[Server]) -> Result<()> {
    let all: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).collect();
    let shares = all.chunks(all.len().div_ceil(primaries.len()));
    for (number, (primary, share)) in primaries.iter().zip(shares).enumerate() {
        let mut control = primary.control()?;
        // Distinct epochs from the start avoid a conflict resolution between the nodes.
        control.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        for slots in share.chunks(SLOTS_PER_COMMAND) {
            let words: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            control.command(&words)?;
        }
    }
    Ok(())
}

/// Introduces every node to every other.
pub(super) fn introduce(nodes: &[Server]) -> Result<()> {
    poll("the nodes to know each other", || {
        // A node forgets a handshake that took too long, so repeat it.
        let known: Vec<u16> = View::of(&nodes[0])?.nodes().iter().map(|node| node.port).collect();
        for stranger in nodes.iter().filter(|node| !known.contains(&node.port())) {
            let port = stranger.port().to_string();
            nodes[0].control()?.command(&["CLUSTER", "MEET", "127.0.0.1", &port])?;
        }
        nodes.iter().try_for_each(|node| knows_all(node, nodes.len()))
    })
}

/// Assigns a replica to each primary.
pub(super) fn attach(primaries: &[Server], replicas: &[Server]) -> Result<()> {
    for (primary, replica) in primaries.iter().zip(replicas) {
        let id = primary.control()?.command(&["CLUSTER", "MYID"])?.text();
        replica.control()?.command(&["CLUSTER", "REPLICATE", &id])?;
    }
    Ok(())
}

fn knows_all(node: &Server, count: usize) -> Result<()> {
    let view = View::of(node)?;
    let known = view.nodes().iter().filter(|node| !node.is("handshake")).count();
    if known == count { Ok(()) } else { Err(Error::new(format!("{} knows {known}", node.port()))) }
}
