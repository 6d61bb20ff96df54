//! Leases: units that this instance takes to spend by itself.

use super::ask::{LeaseTerms, Verb};
use super::failure::RedisFailure;
use super::key::RedisKey;
use super::limiter::{Asking, Limiter};
use crate::clock::Timestamp;
use crate::strategy::{Call, Leasable, LeaseAsk, Leased};

/// What Redis told of a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToldLease<O> {
    pub(crate) leased: Leased<O>,
    /// The time in Redis when it was granted.
    pub(crate) now: Timestamp,
    /// How many instances share the key.
    pub(crate) sharers: u32,
    /// How often the key had been reset.
    pub(crate) resets: u32,
}

/// Who asks for a lease, and for how long it counts as one of those who share the key; 0 if it leaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharer {
    pub(crate) instance: u64,
    pub(crate) live_for_us: u64,
}

impl<S: Leasable> Limiter<S> {
    /// Asks for a lease, and gives back what is left of an old one.
    pub(crate) async fn lease(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        (ask, sharer): (LeaseAsk, Sharer),
    ) -> Result<ToldLease<S::Outcome>, RedisFailure> {
        let terms = self.store.terms();
        if ask.want > 0 || ask.need > 0 {
            self.settle(key, limit, terms.clone()).await?;
        }
        let asking = Asking { verb: Verb::Lease, cost: ask.need, extra: ask.length_us };
        let mut asked = self.ask(key, Some(limit), asking);
        let Sharer { instance, live_for_us } = sharer;
        asked.lease = Some(LeaseTerms { ask, instance, live_for_us });
        let told = self.store.ask(asked, terms).await?;
        let (now, units, sharers, resets) = (told.now, told.number, told.sharers, told.resets);
        let decided = Asking { cost: if units == 0 { ask.need.max(1) } else { units }, ..asking };
        let outcome = self.read(limit, decided, told)?.outcome;
        let call = Call::new(now, units).stamped(ask.end(now, units));
        let recorded = if units == 0 { now } else { S::recorded_at(limit, &outcome, call) };
        Ok(ToldLease { leased: Leased { units, recorded, outcome }, now, sharers, resets })
    }
}
