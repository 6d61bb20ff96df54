//! The tables of reservations beside the counters, and the verbs that only reservations need.

use super::LocalLimiter;
use crate::clock::Timestamp;
use crate::decision::DecisionTime;
use crate::local::map::{KeyCall, StateMap};
use crate::local::receipt::DecisionWithReceipt;
use crate::strategy::{Concurrency, Refund, Spend, Strategy};

impl<S: Strategy> LocalLimiter<S> {
    /// Returns the tables of reservations. They have the same bound on their number as the counters.
    pub(in crate::local) fn tables(&self) -> &StateMap<Concurrency> {
        self.tables.get_or_init(|| StateMap::new(self.map.bound()))
    }

    /// Spends by any payment. The receipt is the time at which the units were recorded.
    pub(in crate::local) fn spend_recorded<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        spend: Spend,
    ) -> DecisionWithReceipt<S::Decision<'l>, Timestamp> {
        self.with_observer(
            key,
            spend.cost,
            |spent: &DecisionWithReceipt<_, _>| S::core(&spent.decision),
            || {
                let key = &self.map.hash_key(key);
                let shard = &mut *self.map.shard(key.hash);
                let now = self.clock.now();
                let call = spend.at(now);
                let outcome = self.commit_exactly(shard, KeyCall { key, limit, now }, call);
                let is_recorded = S::is_admitted(&outcome) && call.cost > 0;
                let receipt = is_recorded.then(|| S::recorded_at(limit, &outcome, call));
                DecisionWithReceipt {
                    decision: S::decision(limit, outcome, DecisionTime::exactly(now)),
                    receipt,
                }
            },
        )
    }

    /// Refunds units that were recorded at `recorded`, as far as they still count. Returns their number.
    pub(in crate::local) fn refund_recorded(
        &self,
        key: &str,
        limit: &S::Limit,
        units: u64,
        recorded: Timestamp,
    ) -> u64 {
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        if recorded.as_micros() + S::retention_us(limit) <= now.as_micros() {
            return 0;
        }
        self.refund_in(shard, &key, limit, Refund { now, units, recorded: Some(recorded) })
    }
}
