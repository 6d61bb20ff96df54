//! The tables of reservations beside the counters, and the verbs that only reservations need.

use super::LocalLimiter;
use crate::decision::DecisionTime;
use crate::local::map::{KeyCall, StateMap};
use crate::local::receipt::DecisionWithReceipt;
use crate::local::shard::Shard;
use crate::low_level::LockGuard;
use crate::strategy::{Concurrency, Recorded, RecordedUnits, Refund, Spend, Strategy};

impl<S: Strategy> LocalLimiter<S> {
    /// Returns the tables of reservations. They have the same bound on their number as the counters.
    pub(in crate::local) fn tables(&self) -> &StateMap<Concurrency> {
        self.tables.get_or_init(|| StateMap::new(self.map.bound()))
    }

    /// Forgets the reservations of a key. Returns the lock of their shard: until it is released, there are none.
    pub(in crate::local) fn forget_reservations(
        &self,
        key: &str,
    ) -> Option<LockGuard<'_, Shard<Concurrency>>> {
        let tables = self.tables.get()?;
        let key = tables.hash_key(key);
        let mut shard = tables.shard(key.hash);
        tables.remove(&mut shard, &key);
        Some(shard)
    }

    /// Spends by any payment, without notifying the observer. The receipt tells when which units were recorded.
    pub(crate) fn spend_recorded<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        spend: Spend,
    ) -> DecisionWithReceipt<S::Decision<'l>, RecordedUnits> {
        let key = &self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        let call = spend.at(now);
        let (outcome, origin) = self.commit_exactly(shard, KeyCall { key, limit, now }, call);
        let is_recorded = S::is_admitted(&outcome) && call.cost > 0;
        let receipt = is_recorded.then(|| RecordedUnits {
            recorded: Recorded { at: S::recorded_at(limit, &outcome, call), origin },
            units: S::recorded_units(limit, &outcome, call),
        });
        DecisionWithReceipt { decision: S::decision(limit, outcome, DecisionTime::exactly(now)), receipt }
    }

    /// Refunds units that were recorded there, as far as they still count. Returns their number.
    pub(crate) fn refund_recorded(
        &self,
        key: &str,
        limit: &S::Limit,
        RecordedUnits { recorded, units }: RecordedUnits,
    ) -> u64 {
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        if recorded.at.as_micros() + S::retention_us(limit) <= now.as_micros() {
            return 0;
        }
        self.refund_in(shard, &key, limit, Refund { now, units, recorded: Some(recorded) })
    }
}
