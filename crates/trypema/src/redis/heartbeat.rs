//! How many instances are live: each sends a heartbeat, which tells it. The script is `script/instances.lua`.

use std::num::NonZeroU32;

use super::ask::{Ask, Verb};
use super::failure::RedisFailure;
use super::key::RedisKey;
use super::lease::Sharer;
use super::provider::RedisRateLimiterProvider;

/// The key of all instances, and what its name in Redis ends with.
const KEY: &str = "trypema instances";
const SUFFIX: &str = "fixed_window:instances";

impl RedisRateLimiterProvider {
    /// Tells Redis that an instance lives, or leaves, and remembers how many there are.
    #[doc(hidden)]
    pub async fn heartbeat(&self, sharer: Sharer) -> Result<u32, RedisFailure> {
        let told = self.store.ask(self.ask_for_instances(sharer), self.store.terms()).await?;
        let instances = u32::try_from(told.number).unwrap_or(u32::MAX);
        self.store.learn_instances(instances);
        Ok(instances)
    }

    fn ask_for_instances(&self, Sharer { instance, live_for_us }: Sharer) -> Ask {
        Ask {
            name: self.store.name(&RedisKey::encode(KEY), SUFFIX),
            helpers: Vec::new(),
            strategy: 0,
            verb: Verb::Heartbeat,
            cost: 0,
            extra: live_for_us,
            resets: 0,
            // In place of a limit: the instance.
            limit: instance.to_le_bytes().to_vec(),
            facts_len: 0,
            lease: None,
        }
    }

    /// How many instances there are, if that is known.
    pub(crate) fn instances(&self) -> Option<NonZeroU32> {
        self.store.instances()
    }
}
