//! The live instances: the model of `redis/script/instances.lua`.

use std::collections::BTreeMap;

/// The time of the last heartbeat of each instance.
#[derive(Debug, Clone)]
pub struct LiveInstances<I>(BTreeMap<I, u64>);

impl<I> Default for LiveInstances<I> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<I: Ord> LiveInstances<I> {
    /// Records a heartbeat of `instance`, and returns the number of instances whose last heartbeat is less
    /// than `live_for_us` old, at least 1. If `live_for_us` is 0, the instance leaves.
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
