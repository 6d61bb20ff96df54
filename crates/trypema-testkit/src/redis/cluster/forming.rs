//! How six servers become a Cluster.

use super::view::View;
use super::{PRIMARIES, SLOTS};
use crate::redis::wait::poll;
use crate::redis::{Binary, Error, Result, Server};

/// How soon a node that does not answer is held to have failed: short, but longer than a loaded machine pauses.
const NODE_TIMEOUT_MS: &str = "1000";
/// Slots given to a node per command; Redis 6.2 knows no ranges.
const SLOTS_PER_COMMAND: usize = 1024;
/// A replica whose primary lost its slots stays where it is; by default it would move to another primary.
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

/// Deals the slots out to the primaries, in ranges of about one size.
pub(super) fn deal_slots(primaries: &[Server]) -> Result<()> {
    let all: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).collect();
    let shares = all.chunks(all.len().div_ceil(primaries.len()));
    for (number, (primary, share)) in primaries.iter().zip(shares).enumerate() {
        let mut control = primary.control()?;
        // Different from the start, so that the nodes need not settle who comes first.
        control.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        for slots in share.chunks(SLOTS_PER_COMMAND) {
            let words: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            control.command(&words)?;
        }
    }
    Ok(())
}

/// Makes every node known to every other.
pub(super) fn introduce(nodes: &[Server]) -> Result<()> {
    poll("the nodes to know each other", || {
        // A handshake that the machine was too slow for is forgotten by the node, and begun again here.
        let known: Vec<u16> = View::of(&nodes[0])?.nodes().iter().map(|node| node.port).collect();
        for stranger in nodes.iter().filter(|node| !known.contains(&node.port())) {
            let port = stranger.port().to_string();
            nodes[0].control()?.command(&["CLUSTER", "MEET", "127.0.0.1", &port])?;
        }
        nodes.iter().try_for_each(|node| knows_all(node, nodes.len()))
    })
}

/// Gives each primary its replica.
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
