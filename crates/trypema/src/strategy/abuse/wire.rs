//! The binary encoding of the abuse strategy.

use super::blocks::Blocks;
use super::{Abuse, AbuseLimit, AbuseOutcome, BlockedAttempts};
use crate::clock::Timestamp;
use crate::decision::{BlockScope, NEVER};
use crate::strategy::series::View;
use crate::strategy::wire::LuaSource;
use crate::strategy::{Call, ReplyReader, Wire, put_count};

impl Wire for Abuse {
    const LUA: LuaSource = LuaSource::of(b'b', include_str!("../abuse.lua"));

    fn write_limit(limit: &AbuseLimit, _: Timestamp, out: &mut Vec<u8>) {
        for tier in [&limit.temp, &limit.long] {
            put_count(out, tier.window_us);
            put_count(out, tier.threshold);
            put_count(out, tier.block_us);
        }
        out.push(match limit.blocked_attempts {
            BlockedAttempts::Ignore => 0,
            BlockedAttempts::Count => 1,
            BlockedAttempts::Lengthen => 2,
        });
    }

    fn outcome_len(_: &AbuseLimit) -> usize {
        2 + 6 * 8
    }

    fn read_outcome(
        limit: &AbuseLimit,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<AbuseOutcome> {
        let is_admitted = reply.byte()? == 1;
        let scope = if reply.byte()? == 1 { BlockScope::Long } else { BlockScope::Temp };
        let at = reply.count()?;
        let ends_at = reply.count()?;
        let not_before = reply.optional_count()?.unwrap_or(NEVER.as_micros());
        let resets_at = reply.count()?;
        let count = |count: u64| count.saturating_add(spent).min(limit.kept());
        Some(AbuseOutcome {
            is_admitted,
            is_recording: call.cost > 0,
            at,
            blocks: block_of(scope, ends_at),
            not_before,
            resets_at,
            short_count: count(reply.count()?),
            long_count: count(reply.count()?),
            view: View::of_units(0),
        })
    }

    fn denied(outcome: AbuseOutcome) -> AbuseOutcome {
        if !outcome.is_admitted {
            return outcome;
        }
        let blocks = block_of(BlockScope::Temp, outcome.at);
        AbuseOutcome { is_admitted: false, blocks, not_before: outcome.at, ..outcome }
    }
}

/// Returns the block that a reply names. The reply omits the block of the other tier, which does not end
/// later.
fn block_of(scope: BlockScope, ends_at: u64) -> Blocks {
    let mut blocks = Blocks::default();
    blocks.extend(scope, ends_at);
    blocks
}
