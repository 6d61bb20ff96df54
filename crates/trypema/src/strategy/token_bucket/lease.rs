//! Leases of token buckets.

use super::{TokenBucket, TokenBucketLimits, TokenBucketOutcome};
use crate::strategy::lease::part_of;
use crate::strategy::{Leasable, LocalCall, TokenLimit};

impl Leasable for TokenBucket {
    const REFUND_BEFORE_END: bool = true;

    fn window_us(limits: &TokenBucketLimits) -> u64 {
        limits.as_slice().iter().map(|limit| limit.refill_us).min().unwrap_or(0)
    }

    fn leased_outcome(
        limits: &TokenBucketLimits,
        last_outcome: &TokenBucketOutcome,
        call: LocalCall<'_>,
    ) -> TokenBucketOutcome {
        let mut outcome = TokenBucketOutcome {
            is_admitted: true,
            cost: call.cost,
            failed: usize::MAX,
            ..last_outcome.clone()
        };
        for (owed, limit) in outcome.owed.as_mut_slice().iter_mut().zip(limits.as_slice()) {
            // `owed` is the debt before the last grant. Add the granted units that the instance no longer
            // holds. [`TokenBucketOutcome::owed_after`] adds the cost of this call.
            let with_all = *owed + limit.units(call.granted.min(limit.capacity));
            *owed = with_all.saturating_sub(limit.units(call.left.min(limit.capacity))).min(limit.full);
        }
        outcome
    }

    fn part(limits: &TokenBucketLimits, index: u32, count: u32) -> Option<TokenBucketLimits> {
        let part = |limit: &TokenLimit| {
            TokenLimit::new(part_of(limit.capacity(), index, count)?, limit.refill_every()).ok()
        };
        let parts: Option<Vec<TokenLimit>> = limits.as_slice().iter().map(part).collect();
        TokenBucketLimits::new(parts?).ok()
    }
}
