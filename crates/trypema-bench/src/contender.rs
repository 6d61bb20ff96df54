//! The limiters under measurement, by name.

use crate::floors::AtomicGcra;
use crate::ours::{Absolute, AbsoluteTake, FixedWindow, Handle, SlidingWindow, Suppressed, TokenBucket};
use crate::peers::{Governor, Limitador, PublishedAbsolute, PublishedSuppressed, ThrottleCrab};

/// A limiter that applies one limit to all keys.
pub trait Contender: Sync + Send + 'static {
    /// Checks one request of `key` and returns whether it is admitted.
    fn check(&self, key: &String) -> bool;
}

/// The limit that a limiter is configured with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// 1,000 units per second with a burst of 2^32: no request is denied and no key becomes idle.
    Plenty,
    /// 100 units per hour: every request after the first hundred is denied.
    Scarce,
    /// A bucket that refills faster than the benchmark can empty it, or a window that is over when the key is called
    /// again: no key ever has anything to remember.
    Idle,
    /// 64 units per second with a burst of 8: of the requests of 100,000 keys, some are admitted and some denied.
    Near,
    /// A burst of 866,000 with one unit refilled every 36.5 seconds: no request is denied and no key expires
    /// during the run.
    Slow,
}

/// The contenders' names, in the order of the table's rows.
pub const NAMES: [&str; 14] = [
    "governor, default hasher",
    "governor, foldhash (G)",
    "trypema 2.2.1 absolute (P)",
    "trypema 2.2.1 suppressed (P)",
    "throttlecrab",
    "limitador",
    "ours: token bucket",
    "ours: sliding window",
    "ours: fixed window",
    "ours: absolute, inc",
    "ours: absolute, take",
    "ours: suppressed",
    "floor: atomic GCRA + the same clock",
    "ours: token bucket by handle",
];

/// Generic code to run with the contender of a given name.
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
        "ours: absolute, inc" => visitor.visit(Absolute::new(load)),
        "ours: absolute, take" => visitor.visit(AbsoluteTake::new(load)),
        "ours: suppressed" => visitor.visit(Suppressed::new(load)),
        "floor: atomic GCRA + the same clock" => visitor.visit(AtomicGcra::new(load)),
        "ours: token bucket by handle" => visitor.visit(Handle::new(load)),
        other => panic!("no contender is named {other}"),
    }
}

/// Whether the contender supports only a single key.
pub fn is_single_key(name: &str) -> bool {
    name.starts_with("floor") || name.ends_with("handle")
}
