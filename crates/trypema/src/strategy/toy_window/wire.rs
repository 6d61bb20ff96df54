//! The binary encoding and the leases of the toy.

use super::{ToyWindow, ToyWindowLimit, ToyWindowOutcome};
use crate::clock::Timestamp;
use crate::strategy::lease::part_of;
use crate::strategy::wire::LuaSource;
use crate::strategy::{Call, Leasable, LocalCall, ReplyReader, Wire, put_count};

impl Wire for ToyWindow {
    const LUA: LuaSource = LuaSource::of(include_str!("../toy_window.lua"));

    fn write_limit(limit: &ToyWindowLimit, _: Timestamp, out: &mut Vec<u8>) {
        put_count(out, limit.limit);
        put_count(out, limit.window.window_us);
    }

    fn outcome_len(_: &ToyWindowLimit) -> usize {
        1 + 2 * 8
    }

    fn read_outcome(
        limit: &ToyWindowLimit,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<ToyWindowOutcome> {
        let is_admitted = reply.byte()? == 1;
        let used = reply.count()?.checked_add(spent)?;
        let free = limit.limit.saturating_sub(used);
        Some(ToyWindowOutcome {
            is_admitted,
            is_never: call.needed > limit.limit,
            is_stepped_back: false,
            used,
            remaining: if is_admitted { free.saturating_sub(call.cost) } else { free },
            ends_at: reply.count()?,
        })
    }

    fn denied(outcome: ToyWindowOutcome) -> ToyWindowOutcome {
        ToyWindowOutcome { is_admitted: false, remaining: 0, ..outcome }
    }
}

impl Leasable for ToyWindow {
    fn window_us(limit: &ToyWindowLimit) -> u64 {
        limit.window.window_us
    }

    fn leased_outcome(
        _: &ToyWindowLimit,
        last_outcome: &ToyWindowOutcome,
        call: LocalCall<'_>,
    ) -> ToyWindowOutcome {
        ToyWindowOutcome {
            is_admitted: true,
            remaining: last_outcome.remaining + call.left - call.cost,
            ..*last_outcome
        }
    }

    fn part(limit: &ToyWindowLimit, index: u32, count: u32) -> Option<ToyWindowLimit> {
        part_of(limit.limit, index, count).map(|part| ToyWindowLimit { limit: part, ..*limit })
    }
}
