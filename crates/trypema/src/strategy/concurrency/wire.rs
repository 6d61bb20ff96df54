//! The binary encoding of the concurrency strategy.

use super::{Concurrency, ConcurrencyLimit, ConcurrencyOutcome, HeldUnits};
use crate::clock::Timestamp;
use crate::strategy::wire::LuaSource;
use crate::strategy::{Call, ReplyReader, Wire, put_count};

impl Wire for Concurrency {
    const LUA: LuaSource = LuaSource {
        quick_hold: include_str!("../quick/hold/concurrency.lua"),
        ..LuaSource::of(b'C', include_str!("../concurrency.lua"))
    };

    fn write_limit(limit: &ConcurrencyLimit, _: Timestamp, out: &mut Vec<u8>) {
        put_count(out, limit.limit);
        put_count(out, limit.hold_us);
    }

    fn outcome_len(_: &ConcurrencyLimit) -> usize {
        2 + 2 * 8
    }

    fn read_outcome(
        limit: &ConcurrencyLimit,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<ConcurrencyOutcome> {
        let is_admitted = reply.byte()? == 1;
        let has_room = reply.byte()? == 1;
        let units = reply.count()?.checked_add(spent)?;
        let latest = reply.count()?;
        let outcome = ConcurrencyOutcome::new(limit, call, HeldUnits { units, has_room, latest });
        Some(ConcurrencyOutcome { is_admitted, ..outcome })
    }

    fn denied(outcome: ConcurrencyOutcome) -> ConcurrencyOutcome {
        ConcurrencyOutcome { is_admitted: false, remaining: 0, ..outcome }
    }
}
