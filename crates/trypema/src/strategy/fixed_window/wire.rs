//! The binary encoding of the fixed window.

use super::windows::Windows;
use super::{FixedWindow, FixedWindowLimit, FixedWindowOutcome};
use crate::clock::Timestamp;
use crate::strategy::wire::LuaSource;
use crate::strategy::{Call, ReplyReader, Wire, put_count};

impl Wire for FixedWindow {
    const LUA: LuaSource = LuaSource {
        quick: include_str!("../quick/fixed_window.lua"),
        quick_refund: include_str!("../quick/refund/fixed_window.lua"),
        ..LuaSource::of(b'F', include_str!("../fixed_window.lua"))
    };

    #[cfg_attr(not(feature = "calendar"), allow(unused_variables, reason = "only calendars need the time"))]
    fn write_limit(limit: &FixedWindowLimit, now: Timestamp, out: &mut Vec<u8>) {
        put_count(out, limit.limit);
        match &limit.windows {
            Windows::Aligned(window) => put_count(out, window.window_us),
            #[cfg(feature = "calendar")]
            Windows::Calendar(window) => {
                // A script from before calendars divides by this zero and fails, instead of misreading the rest.
                put_count(out, 0);
                put_count(out, window.longest_us());
                let boundaries = window.boundaries_around(now.as_micros());
                boundaries.into_iter().for_each(|boundary| put_count(out, boundary));
            }
        }
    }

    fn outcome_len(_: &FixedWindowLimit) -> usize {
        1 + 2 * 8
    }

    fn read_outcome(
        limit: &FixedWindowLimit,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<FixedWindowOutcome> {
        let is_admitted = reply.byte()? == 1;
        let used = reply.count()?.checked_add(spent)?;
        let free = limit.limit.saturating_sub(used);
        Some(FixedWindowOutcome {
            is_admitted,
            is_never: call.needed > limit.limit,
            is_stepped_back: false,
            used,
            remaining: if is_admitted { free.saturating_sub(call.cost) } else { free },
            ends_at: reply.count()?,
        })
    }

    fn denied(outcome: FixedWindowOutcome) -> FixedWindowOutcome {
        FixedWindowOutcome { is_admitted: false, remaining: 0, ..outcome }
    }
}
