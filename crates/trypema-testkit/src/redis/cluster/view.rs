//! The view that one node has of the Cluster.

use std::ops::RangeInclusive;

use super::SLOTS;
use crate::redis::{Error, Result, Server};

/// The reply to `CLUSTER NODES`.
pub(super) struct View(Vec<Node>);

/// One node, as another node or itself sees it.
pub(super) struct Node {
    pub(super) id: String,
    pub(super) port: u16,
    /// The primary of this node; `-` if it is a primary itself.
    pub(super) primary_id: String,
    /// The epoch of its claim to slots; the highest one wins.
    pub(super) epoch: u64,
    flags: Vec<String>,
    slots: Vec<RangeInclusive<u16>>,
}

impl View {
    pub(super) fn of(server: &Server) -> Result<Self> {
        let text = server.control()?.command(&["CLUSTER", "NODES"])?.text();
        let node = |line| Node::parse(line).ok_or_else(|| Error::new(format!("CLUSTER NODES gave `{line}`")));
        text.lines().map(node).collect::<Result<_>>().map(Self)
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.0
    }

    /// Returns the node that gave this view.
    pub(super) fn myself(&self) -> Result<&Node> {
        let myself = self.0.iter().find(|node| node.is("myself"));
        myself.ok_or_else(|| Error::new("CLUSTER NODES names no `myself`"))
    }

    /// Returns the port of the primary of each slot; 0 if there is none.
    pub(super) fn owners(&self) -> Vec<u16> {
        let mut owners = vec![0; usize::from(SLOTS)];
        for node in &self.0 {
            for slot in node.slots.iter().cloned().flatten() {
                owners[usize::from(slot)] = node.port;
            }
        }
        owners
    }
}

impl Node {
    /// Parses `id host:port@bus flags primary ping pong epoch link slot…`.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, address, flags, primary_id, _ping, _pong, epoch, _link, slots @ ..] = words.as_slice()
        else {
            return None;
        };
        let (address, _bus) = address.split_once('@')?;
        Some(Self {
            id: (*id).to_owned(),
            port: address.rsplit_once(':')?.1.parse().ok()?,
            primary_id: (*primary_id).to_owned(),
            epoch: epoch.parse().ok()?,
            flags: flags.split(',').map(str::to_owned).collect(),
            // A slot that begins with `[` is in migration, and belongs to its old primary until it has
            // moved.
            slots: slots
                .iter()
                .filter(|word| !word.starts_with('['))
                .filter_map(|word| range(word))
                .collect(),
        })
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|candidate| candidate == flag)
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.is("master") && self.slots.iter().any(|slots| slots.contains(&slot))
    }
}

fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
