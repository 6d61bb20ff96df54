//! Counts the live instances. Each instance sends a heartbeat, and the reply is the count
//! (`script/instances.lua`).

use std::num::NonZeroU32;

use super::failure::RedisFailure;
use super::key::RedisKey;
use super::lease::InstanceLiveness;
use super::protocol::CheckRequest;
use super::provider::RedisRateLimiterProvider;
use super::verb;
use crate::strategy::Spend;

/// The key that all instances share, and the suffix of its name in Redis.
const KEY: &str = "trypema instances";
const SUFFIX: &str = "fixed_window:instances";

impl RedisRateLimiterProvider {
    /// Sends a heartbeat, or announces that the instance leaves. Returns the number of live instances.
    #[cfg(feature = "unstable-testkit")]
    #[doc(hidden)]
    pub async fn heartbeat(&self, instance: InstanceLiveness) -> Result<u32, RedisFailure> {
        self.send_heartbeat(instance).await
    }

    /// Sends a heartbeat, or announces that the instance leaves. Stores and returns the number of live
    /// instances.
    pub(crate) async fn send_heartbeat(&self, instance: InstanceLiveness) -> Result<u32, RedisFailure> {
        let reply = self.store.send(self.heartbeat_request(instance), self.store.call_options()).await?;
        let instances = u32::try_from(reply.number).unwrap_or(u32::MAX);
        self.store.record_instances(instances);
        Ok(instances)
    }

    fn heartbeat_request(&self, InstanceLiveness { id, live_for_us }: InstanceLiveness) -> CheckRequest {
        CheckRequest {
            name: self.store.name(&RedisKey::encode(KEY), SUFFIX),
            helpers: Vec::new(),
            strategy: 0,
            verb: verb::HEARTBEAT,
            spend: Spend::from(0),
            time_us: live_for_us,
            arguments: id.to_le_bytes().to_vec(),
            outcome_len: 0,
        }
    }

    /// Returns the number of live instances, if a heartbeat has reported it.
    pub(crate) fn instances(&self) -> Option<NonZeroU32> {
        self.store.instances()
    }
}
