//! The binary encoding of the token bucket.

use super::{PerLimit, TokenBucket, TokenBucketLimits, TokenBucketOutcome};
use crate::clock::Timestamp;
use crate::strategy::wire::LuaSource;
use crate::strategy::{Call, ReplyReader, Wire, put_count};
use crate::units::MAX_EXACT;

impl Wire for TokenBucket {
    const LUA: LuaSource = LuaSource {
        quick: include_str!("../quick/token_bucket.lua"),
        quick_refund: include_str!("../quick/refund/token_bucket.lua"),
        ..LuaSource::of(b'T', include_str!("../token_bucket.lua"))
    };

    /// A short suffix: it makes the name of a usual key, such as `trypema:{user_123}:tokens`, 8 bytes shorter
    /// in Redis.
    const SUFFIX: &'static str = "tokens";

    fn write_limit(limits: &TokenBucketLimits, _: Timestamp, out: &mut Vec<u8>) {
        out.push(limits.as_slice().len() as u8);
        for limit in limits.as_slice() {
            put_count(out, limit.capacity);
            put_count(out, limit.refill_us);
            put_count(out, limit.unit);
            put_count(out, limit.drain);
        }
    }

    fn outcome_len(limits: &TokenBucketLimits) -> usize {
        2 + 3 * 8 + limits.as_slice().len() * 8
    }

    fn read_outcome(
        limits: &TokenBucketLimits,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<TokenBucketOutcome> {
        let is_admitted = reply.byte()? == 1;
        let failed = usize::from(reply.byte()?);
        let at = reply.count()?;
        let not_before = reply.optional_count()?;
        let resets_at = reply.optional_count()?;
        let mut owed = PerLimit::zeros(limits.as_slice().len());
        for (owed, limit) in owed.as_mut_slice().iter_mut().zip(limits.as_slice()) {
            *owed = reply.count()?.checked_add(spent.checked_mul(limit.unit)?)?.min(MAX_EXACT);
        }
        let cost = if is_admitted { call.cost } else { call.needed };
        let is_stepped_back = false;
        Some(TokenBucketOutcome {
            is_admitted,
            cost,
            failed,
            at,
            owed,
            not_before,
            resets_at,
            is_stepped_back,
        })
    }

    fn denied(outcome: TokenBucketOutcome) -> TokenBucketOutcome {
        TokenBucketOutcome { is_admitted: false, failed: 0, ..outcome }
    }
}
