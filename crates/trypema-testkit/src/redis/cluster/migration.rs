//! Moves a slot from one primary to another.

use super::Cluster;
use crate::redis::{Reply, Result, Server};

/// The number of keys moved per command.
const KEYS_PER_COMMAND: &str = "100";
/// The timeout of moving keys between two nodes.
const MOVE_TIMEOUT_MS: &str = "5000";

/// A slot in migration. Clients are redirected to the new primary for keys that the old one no longer has.
#[derive(Debug)]
#[must_use = "the slot is between two primaries until `finish`"]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: &'a Server,
    to: &'a Server,
}

impl<'a> Migration<'a> {
    pub(super) fn begin(cluster: &'a Cluster, slot: u16, to: &'a Server) -> Result<Self> {
        let migration = Self { cluster, slot: slot.to_string(), from: cluster.primary_of(slot)?, to };
        let (from_id, to_id) = (id(migration.from)?, id(to)?);
        // The order matters: the old primary must redirect clients to a node that already expects them.
        migration.set_slot(to, &["IMPORTING", &from_id])?;
        migration.set_slot(migration.from, &["MIGRATING", &to_id])?;
        Ok(migration)
    }

    /// Moves the keys and then the slot. All nodes know when this returns.
    pub fn finish(self) -> Result<()> {
        while self.move_some_keys()? {}
        let to_id = id(self.to)?;
        let others = self.cluster.live_primaries()?;
        let others =
            others.into_iter().filter(|node| ![self.to.port(), self.from.port()].contains(&node.port()));
        for node in [self.to, self.from].into_iter().chain(others) {
            self.set_slot(node, &["NODE", &to_id])?;
        }
        self.cluster.wait_until_ok()
    }

    /// Moves some keys. Returns `false` if none is left.
    fn move_some_keys(&self) -> Result<bool> {
        let mut control = self.from.control()?;
        let keys = control.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, KEYS_PER_COMMAND])?;
        if keys.items().is_empty() {
            return Ok(false);
        }
        let port = self.to.port().to_string();
        let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", MOVE_TIMEOUT_MS, "KEYS"].map(str::as_bytes);
        let words: Vec<&[u8]> = migrate.into_iter().chain(keys.items().iter().map(Reply::bytes)).collect();
        control.command(&words)?;
        Ok(true)
    }

    fn set_slot(&self, node: &Server, what: &[&str]) -> Result<()> {
        let words: Vec<&str> =
            ["CLUSTER", "SETSLOT", &self.slot].into_iter().chain(what.iter().copied()).collect();
        node.control()?.command(&words).map(|_| ())
    }
}

fn id(node: &Server) -> Result<String> {
    Ok(node.control()?.command(&["CLUSTER", "MYID"])?.text())
}
