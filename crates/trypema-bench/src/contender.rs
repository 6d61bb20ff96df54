//! Who is measured.

use crate::floors::AtomicGcra;
use crate::ours::{Absolute, FixedWindow, Handle, SlidingWindow, Suppressed, TokenBucket};
use crate::peers::{Governor, Limitador, PublishedAbsolute, PublishedSuppressed, ThrottleCrab};

/// A limiter under one limit for all keys.
pub trait Contender: Sync + Send + 'static {
    /// Whether one more call of `key` is admitted.
    fn check(&self, key: &String) -> bool;
}

/// How much is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// 1,000 a second on average, with room for a burst of 2^32: never denied, never idle.
    Plenty,
    /// 100 an hour: denied after the first hundred.
    Scarce,
    /// A bucket that refills faster than it can be emptied.
    Full,
    /// Room for 866,000, one back every 36.5 seconds: never denied, and not forgotten within the run.
    Slow,
}

/// The names, in the order of the table.
pub const NAMES: [&str; 13] = [
    "governor, default hasher",
    "governor, foldhash (G)",
    "trypema 2.2.1 absolute (P)",
    "trypema 2.2.1 suppressed (P)",
    "throttlecrab",
    "limitador",
    "ours: token bucket",
    "ours: sliding window",
    "ours: fixed window",
    "ours: absolute",
    "ours: suppressed",
    "floor: atomic GCRA + coarse clock",
    "ours: token bucket by handle",
];

/// Runs generic code on the contender of a name.
pub trait Visitor {
    type Output;

    fn visit<C: Contender>(self, contender: C) -> Self::Output;
}

pub fn visit<V: Visitor>(name: &str, load: Load, visitor: V) -> V::Output {
    match name {
        "governor, default hasher" => visitor.visit(Governor::<std::hash::RandomState>::new(load)),
        "governor, foldhash (G)" => visitor.visit(Governor::<foldhash::fast::RandomState>::new(load)),
        "trypema 2.2.1 absolute (P)" => visitor.visit(PublishedAbsolute::new(load)),
        "trypema 2.2.1 suppressed (P)" => visitor.visit(PublishedSuppressed::new(load)),
        "throttlecrab" => visitor.visit(ThrottleCrab::new(load)),
        "limitador" => visitor.visit(Limitador::new(load)),
        "ours: token bucket" => visitor.visit(TokenBucket::new(load)),
        "ours: sliding window" => visitor.visit(SlidingWindow::new(load)),
        "ours: fixed window" => visitor.visit(FixedWindow::new(load)),
        "ours: absolute" => visitor.visit(Absolute::new(load)),
        "ours: suppressed" => visitor.visit(Suppressed::new(load)),
        "floor: atomic GCRA + coarse clock" => visitor.visit(AtomicGcra::new(load)),
        "ours: token bucket by handle" => visitor.visit(Handle::new(load)),
        other => panic!("no contender is named {other}"),
    }
}

/// Those that know one key only.
pub fn is_single_key(name: &str) -> bool {
    name.starts_with("floor") || name.ends_with("handle")
}
