//! The binary encoding of the absolute strategy.

use super::{Absolute, AbsoluteLimit, AbsoluteOutcome};
use crate::clock::Timestamp;
use crate::decision::NEVER;
use crate::strategy::series::View;
use crate::strategy::wire::LuaSource;
use crate::strategy::{Call, ReplyReader, Wire, put_count};

impl Wire for Absolute {
    const LUA: LuaSource = LuaSource {
        quick: include_str!("../quick/absolute.lua"),
        quick_refund: include_str!("../quick/refund/absolute.lua"),
        ..LuaSource::of(b'A', include_str!("../absolute.lua"))
    };

    fn write_limit(limit: &AbsoluteLimit, _: Timestamp, out: &mut Vec<u8>) {
        put_count(out, limit.capacity);
        put_count(out, limit.window_us);
        put_count(out, limit.group_us);
        out.push(u8::from(limit.is_sticky));
    }

    fn outcome_len(_: &AbsoluteLimit) -> usize {
        1 + 6 * 8
    }

    fn read_outcome(
        _: &AbsoluteLimit,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<AbsoluteOutcome> {
        let is_admitted = reply.byte()? == 1;
        let capacity = reply.count()?;
        let used = reply.count()?.checked_add(spent)?;
        let free = capacity.saturating_sub(used);
        Some(AbsoluteOutcome {
            is_admitted,
            capacity,
            remaining: if is_admitted { free.saturating_sub(call.cost) } else { free },
            not_before: reply.optional_count()?.unwrap_or(NEVER.as_micros()),
            used_after_wait: reply.count()?,
            recorded: reply.count()?,
            resets_at: reply.count()?,
            view: View::of_units(used),
        })
    }

    fn denied(outcome: AbsoluteOutcome) -> AbsoluteOutcome {
        AbsoluteOutcome { is_admitted: false, remaining: 0, ..outcome }
    }
}
