//! The instances that are live: the model of `redis/script/instances.lua`.

use std::collections::BTreeMap;

/// When each instance, whatever names it, was last heard of.
#[derive(Debug, Clone)]
pub struct LiveInstances<I>(BTreeMap<I, u64>);

impl<I> Default for LiveInstances<I> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<I: Ord> LiveInstances<I> {
    /// Counts those whose last heartbeat was less than `live_for_us` ago, and `instance`, whose heartbeat this is; if `live_for_us` is 0,
    /// it leaves. At least 1.
    pub fn heartbeat(&mut self, instance: I, now_us: u64, live_for_us: u64) -> u64 {
        if live_for_us == 0 {
            self.0.remove(&instance);
        } else {
            self.0.retain(|_, heard_at_us| *heard_at_us + live_for_us > now_us);
            self.0.insert(instance, now_us);
        }
        (self.0.len() as u64).max(1)
    }
}
