//! What a strategy tells its Lua twin, and what it is told back.

use super::{Call, Strategy};

/// A strategy with a Lua twin. Numbers travel as doubles, which hold every integer that is counted with.
pub trait Wire: Strategy {
    /// Its place in the scripts' list of strategies, from 1 on.
    const NUMBER: u8;

    /// What the names of its states end with.
    const SUFFIX: &'static str = Self::NAME;

    /// Appends `limit` as the twin's `read` expects it.
    fn write_limit(limit: &Self::Limit, out: &mut Vec<u8>);

    /// How many bytes the twin's `facts` are for `limit`.
    fn facts_len(limit: &Self::Limit) -> usize;

    /// What the twin decided for `call`, if others had spent `spent` units at the same moment since; `None` if
    /// `facts` make no sense.
    fn read_outcome(
        limit: &Self::Limit,
        facts: &mut Facts<'_>,
        call: Call,
        spent: u64,
    ) -> Option<Self::Outcome>;

    /// The same outcome as a denial with nothing left.
    fn denied(outcome: Self::Outcome) -> Self::Outcome;
}

/// One strategy in the scripts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lua {
    pub(crate) name: &'static str,
    /// What it is built on, if it is.
    pub(crate) base: &'static str,
    pub(crate) source: &'static str,
    /// How it grants leases, if in its own way.
    pub(crate) lease: &'static str,
    /// What its usual case is built on, if it is.
    pub(crate) quick_base: &'static str,
    /// Its usual case on its own, if that is worth it.
    pub(crate) quick: &'static str,
}

impl Lua {
    /// The same without its usual case.
    pub(crate) const fn without_quick(self) -> Self {
        Self { quick_base: "", quick: "", ..self }
    }
}

/// The strategies in the order of their numbers.
pub(crate) const LUA: [Lua; 6] = [
    Lua {
        name: "absolute",
        base: SERIES,
        source: include_str!("absolute.lua"),
        lease: "",
        quick_base: QUICK_SERIES,
        quick: include_str!("quick/absolute.lua"),
    },
    Lua {
        name: "suppressed",
        base: SERIES,
        source: include_str!("suppressed.lua"),
        lease: include_str!("suppressed/lease.lua"),
        quick_base: QUICK_SERIES,
        quick: include_str!("quick/suppressed.lua"),
    },
    Lua {
        name: "token_bucket",
        base: DEBT,
        source: include_str!("token_bucket.lua"),
        lease: "",
        quick_base: "",
        quick: include_str!("quick/token_bucket.lua"),
    },
    Lua {
        name: "sliding_window",
        base: "",
        source: include_str!("sliding_window.lua"),
        lease: "",
        quick_base: "",
        quick: include_str!("quick/sliding_window.lua"),
    },
    Lua {
        name: "fixed_window",
        base: "",
        source: include_str!("fixed_window.lua"),
        lease: "",
        quick_base: "",
        quick: include_str!("quick/fixed_window.lua"),
    },
    Lua {
        name: "abuse",
        base: SERIES,
        source: include_str!("abuse.lua"),
        lease: include_str!("abuse/lease.lua"),
        quick_base: "",
        quick: "",
    },
];

const SERIES: &str = concat!(
    include_str!("series.lua"),
    include_str!("series/refund.lua"),
    include_str!("series/written.lua")
);
const DEBT: &str = include_str!("token_bucket/debt.lua");
const QUICK_SERIES: &str = include_str!("quick/series.lua");

/// Appends a number.
pub(crate) fn put_number(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a count; what is larger than any limit becomes the smallest such number.
pub(crate) fn put_count(out: &mut Vec<u8>, count: u64) {
    put_number(out, count.min(1 << 53) as f64);
}

/// What a script answered, read from the front.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a>(&'a [u8]);

impl<'a> Facts<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// The next 16-bit number.
    pub(crate) fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next 32-bit number.
    pub(crate) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next finite number.
    pub(crate) fn number(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes).filter(|number| number.is_finite())
    }

    /// The next whole number from 0 to 2^53.
    pub(crate) fn count(&mut self) -> Option<u64> {
        let number = self.number()?;
        let is_count = (0.0..=(1_u64 << 53) as f64).contains(&number) && number.fract() == 0.0;
        is_count.then_some(number as u64)
    }

    /// The next count, where -1 stands for none.
    pub(crate) fn optional_count(&mut self) -> Option<Option<u64>> {
        let mut ahead = *self;
        if ahead.number()? == -1.0 {
            *self = ahead;
            return Some(None);
        }
        self.count().map(Some)
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
