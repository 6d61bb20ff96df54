//! The Lua code and the numbers that the strategies' twins share.

use super::lease::SHORTEST;
use super::origin::COUNTS;
use super::reservations::{ENTRY_BYTES, EntryState, MAX_CONFIRMATIONS, MAX_ENTRIES, MAX_HOLD};
use super::sliding_window::STEPS;
use super::suppressed::GOLDEN;
use super::token_bucket::MAX_PENDING;
use super::{Concurrency, Wire};
use crate::units::MAX_EXACT;

/// A part of the scripts: Lua code that returns a function or a table of functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LuaPart {
    /// The name by which other parts ask for it.
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
}

/// The parts that several twins use, the usual cases' first.
pub(crate) const LUA_PARTS: [LuaPart; 9] = [
    LuaPart { name: "quick/series", source: include_str!("quick/series.lua") },
    LuaPart { name: "quick/series/expire", source: include_str!("quick/series/expire.lua") },
    LuaPart { name: "quick/series/give_back", source: include_str!("quick/series/give_back.lua") },
    LuaPart { name: "quick/reservations", source: include_str!("quick/reservations.lua") },
    LuaPart { name: "reservations/table", source: include_str!("reservations/table.lua") },
    LuaPart { name: "series", source: SERIES },
    LuaPart { name: "reservations", source: include_str!("reservations.lua") },
    LuaPart { name: "reservations/attempts", source: include_str!("reservations/attempts.lua") },
    LuaPart { name: "token_bucket/debt", source: include_str!("token_bucket/debt.lua") },
];

/// Most calls neither refund nor write, so the functions for that are defined when they are needed.
const SERIES: &str = concat!(
    include_str!("series/ring.lua"),
    "local function define_refunds()\n",
    include_str!("series/refund.lua"),
    "end\nlocal function define_save()\n",
    include_str!("series/save.lua"),
    "end\n",
    include_str!("series.lua"),
);

/// The numbers that the Lua code has by these names.
pub(crate) const LUA_NUMBERS: [(&str, f64); 20] = [
    ("MAX_EXACT", MAX_EXACT as f64),
    ("COUNTS", COUNTS as f64),
    ("SHORTEST_LEASE", SHORTEST),
    // A series: where its times wrap, the mark of closed buckets in its horizon, and the number of bytes from which on a
    // state is changed in place, which is also what one read fetches.
    ("TIME_WRAP", (1_u64 << 48) as f64),
    ("HAS_CLOSED", (1_u64 << 47) as f64),
    ("WHOLE", 1_024.0),
    // A table of reservations: the lengths of an entry, whole and before its units, and the first byte.
    ("ENTRY_BYTES", ENTRY_BYTES as f64),
    ("BEFORE_UNITS", 32.0),
    ("TABLE_LETTER", Concurrency::LUA.letter as f64),
    ("MAX_ENTRIES", MAX_ENTRIES as f64),
    ("MAX_HOLD", MAX_HOLD.as_micros() as f64),
    ("MAX_CONFIRMATIONS", MAX_CONFIRMATIONS as f64),
    ("OPEN", EntryState::Open as u8 as f64),
    ("SETTLED", EntryState::Settled as u8 as f64),
    ("UNDONE", EntryState::Undone as u8 as f64),
    ("CONFIRMED", EntryState::Confirmed as u8 as f64),
    ("GOLDEN", GOLDEN as f64),
    ("STEPS", STEPS as f64),
    ("MAX_PENDING", MAX_PENDING as f64),
    // Two bytes tell apart the rates at which the same unit is refilled, unless they differ by a multiple of this prime.
    ("DRAIN_DIGESTS", 65_521.0),
];
