//! The binary encoding of the suppressed strategy.

use super::{Suppressed, SuppressedLimit, SuppressedOutcome, Zone};
use crate::clock::Timestamp;
use crate::decision::NEVER;
use crate::strategy::series::View;
use crate::strategy::wire::LuaSource;
use crate::strategy::{Call, ReplyReader, Wire, put_count, put_number};

impl Wire for Suppressed {
    const LUA: LuaSource = LuaSource {
        quick: include_str!("../quick/suppressed.lua"),
        ..LuaSource::of(b'S', include_str!("../suppressed.lua"))
    };

    fn write_limit(limit: &SuppressedLimit, _: Timestamp, out: &mut Vec<u8>) {
        put_count(out, limit.window.capacity);
        put_count(out, limit.window.window_us);
        put_count(out, limit.window.group_us);
        put_number(out, *limit.factor);
        out.push(u8::from(limit.window.is_sticky));
    }

    fn outcome_len(_: &SuppressedLimit) -> usize {
        1 + 7 * 8
    }

    fn read_outcome(
        _: &SuppressedLimit,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<SuppressedOutcome> {
        let zone = reply.byte()?;
        let factor = reply.number()?;
        // The reply does not contain the draw: only the state keeps it.
        let drawn = |is_admitted| Zone::Drawn { factor, drawn: 0, is_admitted };
        let zone = match zone {
            0 => Zone::Rejected,
            1 => Zone::Allowed,
            2 => drawn(false),
            3 => drawn(true),
            _ => return None,
        };
        let soft = reply.count()?;
        let used = reply.count()?.checked_add(spent)?;
        let free = soft.saturating_sub(used);
        Some(SuppressedOutcome {
            zone,
            soft,
            remaining: if super::is_admitted(zone) { free.saturating_sub(call.cost) } else { free },
            not_before: reply.optional_count()?.unwrap_or(NEVER.as_micros()),
            used_after_wait: reply.count()?,
            recorded: reply.count()?,
            resets_at: reply.count()?,
            view: View::of_units(used),
        })
    }

    fn denied(outcome: SuppressedOutcome) -> SuppressedOutcome {
        SuppressedOutcome { zone: Zone::Rejected, remaining: 0, ..outcome }
    }
}
