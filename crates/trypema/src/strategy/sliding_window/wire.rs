//! The binary encoding of the sliding-window counter.

use super::{Counts, SlidingWindow, SlidingWindowLimit, SlidingWindowOutcome};
use crate::clock::Timestamp;
use crate::strategy::wire::LuaSource;
use crate::strategy::{Call, ReplyReader, Wire, put_count};

impl Wire for SlidingWindow {
    const LUA: LuaSource = LuaSource {
        quick: include_str!("../quick/sliding_window.lua"),
        quick_refund: include_str!("../quick/refund/sliding_window.lua"),
        ..LuaSource::of(b'W', include_str!("../sliding_window.lua"))
    };

    fn write_limit(limit: &SlidingWindowLimit, _: Timestamp, out: &mut Vec<u8>) {
        put_count(out, limit.limit);
        put_count(out, limit.window.window_us);
    }

    fn outcome_len(_: &SlidingWindowLimit) -> usize {
        1 + 3 * 8
    }

    fn read_outcome(
        limit: &SlidingWindowLimit,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<SlidingWindowOutcome> {
        let is_admitted = reply.byte()? == 1;
        let ends_at = reply.count()?;
        let previous = reply.count()?;
        let current = reply.count()?.checked_add(spent)?;
        let now = call.now.as_micros();
        // The weighing below must not overflow, whatever the reply contains.
        if ends_at < now.max(limit.window.window_us) || previous.max(current) > super::MAX_LIMIT {
            return None;
        }
        let counts = Counts { ends_at, previous, current, is_stepped_back: false };
        let free = limit.limit.saturating_sub(counts.weighted_previous(limit, now) + current);
        let remaining = if is_admitted { free.saturating_sub(call.cost) } else { free };
        Some(SlidingWindowOutcome { is_admitted, needed: call.needed, remaining, counts })
    }

    fn denied(outcome: SlidingWindowOutcome) -> SlidingWindowOutcome {
        SlidingWindowOutcome { is_admitted: false, remaining: 0, ..outcome }
    }
}
