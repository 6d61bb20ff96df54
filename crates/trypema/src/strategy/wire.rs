//! The binary encoding between a strategy and its Lua twin, and the Lua sources of each: the twin (`NAME.lua`), its usual
//! case in one short function (`quick/NAME.lua`), which leaves everything else to the twin, and the same for the refund of
//! a settled reservation (`quick/refund/NAME.lua`).

use super::{Call, STRATEGIES, Strategy};
use crate::clock::Timestamp;

/// A strategy with a Lua twin. Numbers are encoded as doubles, which represent every integer below 2^53
/// exactly.
pub trait Wire: Strategy {
    /// The number of the strategy in the scripts.
    const NUMBER: u8 = Self::ROW.number;

    /// The Lua sources of the strategy.
    const LUA: LuaSource;

    /// The last part of the names of the strategy's keys in Redis.
    const SUFFIX: &'static str = Self::NAME;

    /// Appends `limit`, which the twin's `read` and its usual case read. `now` is the caller's present; only
    /// the windows of a calendar depend on it.
    fn write_limit(limit: &Self::Limit, now: Timestamp, out: &mut Vec<u8>);

    /// Returns the length in bytes of an outcome for `limit` in the twin's reply.
    fn outcome_len(limit: &Self::Limit) -> usize;

    /// Reads the outcome of `call`, which the twin's `encode_outcome` or its usual case wrote. Returns `None` if `reply`
    /// is malformed.
    ///
    /// Identical takes of one batch share a reply, which describes the first of them. `spent` is the number
    /// of units that the takes before this one have spent.
    fn read_outcome(
        limit: &Self::Limit,
        reply: &mut ReplyReader<'_>,
        call: Call,
        spent: u64,
    ) -> Option<Self::Outcome>;

    /// Returns `outcome` changed into a denial.
    fn denied(outcome: Self::Outcome) -> Self::Outcome;
}

/// The Lua sources of one strategy.
#[derive(Debug, Clone, Copy)]
pub struct LuaSource {
    pub(crate) name: &'static str,
    /// The first byte of a state in format 1, which the sources call `STATE_LETTER`. No two strategies have the same.
    pub(crate) letter: u8,
    pub(crate) source: &'static str,
    /// A fast path for the usual case of a take; empty if the strategy has none.
    pub(crate) quick: &'static str,
    /// The same for the refund of a settled reservation.
    pub(crate) quick_refund: &'static str,
    /// The same for a reservation; only a strategy that holds units, and counts none, has one.
    pub(crate) quick_hold: &'static str,
}

impl LuaSource {
    /// Returns the sources of a strategy that is nothing but its twin.
    pub(super) const fn of(letter: u8, source: &'static str) -> Self {
        Self { name: "", letter, source, quick: "", quick_refund: "", quick_hold: "" }
    }

    /// Returns the same source without the fast paths of takes and refunds.
    pub(crate) const fn without_quick(self) -> Self {
        Self { quick: "", quick_refund: "", ..self }
    }
}

macro_rules! lua_sources {
    ($($number:literal $type:ident $name:ident $limit:ident;)+) => {
        /// The sources of all strategies, ordered by [`Wire::NUMBER`].
        pub(crate) const LUA_SOURCES: [LuaSource; STRATEGIES] =
            [$(LuaSource { name: stringify!($name), ..super::$type::LUA }),+];
    };
}
super::for_each_strategy! { [lua_sources] }

/// Appends a number as a little-endian double.
pub(crate) fn put_number(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a count as a double. A count above 2^53 becomes 2^53, which is larger than any limit.
pub(crate) fn put_count(out: &mut Vec<u8>, count: u64) {
    put_number(out, count.min(1 << 53) as f64);
}

/// A reader for the bytes of a script's reply.
#[derive(Debug, Clone, Copy)]
pub struct ReplyReader<'a>(&'a [u8]);

impl<'a> ReplyReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads the next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// Reads a byte.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a 16-bit integer.
    pub(crate) fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads a 32-bit integer.
    pub(crate) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a finite double.
    pub(crate) fn number(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes).filter(|number| number.is_finite())
    }

    /// Reads a whole number from 0 to 2^53.
    pub(crate) fn count(&mut self) -> Option<u64> {
        let number = self.number()?;
        let is_count = (0.0..=(1_u64 << 53) as f64).contains(&number) && number.fract() == 0.0;
        is_count.then_some(number as u64)
    }

    /// Reads a count, or `None` encoded as -1.
    pub(crate) fn optional_count(&mut self) -> Option<Option<u64>> {
        let mut ahead = *self;
        if ahead.number()? == -1.0 {
            *self = ahead;
            return Some(None);
        }
        self.count().map(Some)
    }

    /// Whether all bytes have been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
