//! The limiters under measurement, and their limits.

use std::future::Future;

use super::drive::{Driven, Loaded};
use super::floors::{Floor, Gcra};
use super::{ours, peers};

/// A limiter that applies one limit to all keys, on one connection.
pub trait Contender: Send + Sync + 'static {
    type Key: Send + Sync + 'static;

    fn key(name: &str) -> Self::Key;

    /// Checks one request of `key` and returns whether it is admitted, or the error text.
    fn check(&self, key: &Self::Key) -> impl Future<Output = Result<bool, String>> + Send;
}

/// The limit that a limiter is configured with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// One key, never denied.
    Plenty,
    /// Many keys, never denied, with a window of an hour: no bucket expires during the run.
    Young,
    /// Never denied; buckets of a millisecond in a window of a second.
    Expiring,
    /// 100 units per hour.
    Scarce,
    /// [`EXACTLY`] units per hour.
    Counted,
}

/// The number of units that [`Load::Counted`] admits.
pub const EXACTLY: u64 = 10_000;

pub const GCRA: &str = "smallest GCRA script (G)";
pub const PUBLISHED_ABSOLUTE: &str = "trypema 2.2.1 absolute (P)";
pub const PUBLISHED_SUPPRESSED: &str = "trypema 2.2.1 suppressed (P)";
pub const ABSOLUTE: &str = "ours: absolute";
/// Leases, only for measuring their scripts.
pub const ABSOLUTE_LEASES: &str = "ours: absolute, leases";
pub const SLIDING_WINDOW_LEASES: &str = "ours: sliding window, leases";
pub const FIXED_WINDOW_LEASES: &str = "ours: fixed window, leases";
pub const SUPPRESSED: &str = "ours: suppressed";
pub const TOKEN_BUCKET: &str = "ours: token bucket";
pub const TOKEN_BUCKET_OF_TWO: &str = "ours: token bucket, two limits";
pub const SLIDING_WINDOW: &str = "ours: sliding window";
pub const FIXED_WINDOW: &str = "ours: fixed window";
pub const ABUSE: &str = "ours: abuse";
const INCR: &str = "`INCR`";
const RETURN_1: &str = "`EVALSHA` of `return 1`";
/// The hybrid provider of trypema 2.2.1. It keeps working after its replies, so it runs in its own `Place`.
pub const HYBRID: &str = "trypema 2.2.1 hybrid absolute (overshoots)";

/// The contenders' names, in the order of the table's rows.
pub const NAMES: [&str; 13] = [
    INCR,
    RETURN_1,
    GCRA,
    PUBLISHED_ABSOLUTE,
    PUBLISHED_SUPPRESSED,
    HYBRID,
    ABSOLUTE,
    SUPPRESSED,
    TOKEN_BUCKET,
    TOKEN_BUCKET_OF_TWO,
    SLIDING_WINDOW,
    FIXED_WINDOW,
    ABUSE,
];

/// Whether the contender is measured under `load`.
pub fn takes_part(name: &str, load: Load) -> bool {
    match load {
        Load::Plenty | Load::Young => true,
        Load::Scarce => ![INCR, RETURN_1, HYBRID].contains(&name),
        Load::Expiring => {
            [GCRA, PUBLISHED_ABSOLUTE, PUBLISHED_SUPPRESSED, ABSOLUTE, SUPPRESSED].contains(&name)
        }
        Load::Counted => {
            [ABSOLUTE, TOKEN_BUCKET, TOKEN_BUCKET_OF_TWO, SLIDING_WINDOW, FIXED_WINDOW].contains(&name)
        }
    }
}

/// Returns `count` keys of 19 bytes each.
pub fn key_names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("user_{number:014}")).collect()
}

/// Connects the contender called `name` to the server at `url`, to be called for the keys `names`.
pub async fn open(name: &str, load: Load, at: (&str, &[String])) -> Box<dyn Driven> {
    let (url, names) = at;
    match name {
        INCR => driven(Floor::incr(url).await, names),
        RETURN_1 => driven(Floor::return_1(url).await, names),
        GCRA => driven(Gcra::new(url, load).await, names),
        PUBLISHED_ABSOLUTE => driven(peers::Absolute::new(url, load).await, names),
        PUBLISHED_SUPPRESSED => driven(peers::Suppressed::new(url, load).await, names),
        HYBRID => driven(peers::Hybrid::new(url, load).await, names),
        _ => open_ours(name, load, names, ours::limiter(url, load).await),
    }
}

/// Returns one of our own contenders on the given limiter.
pub fn open_ours(name: &str, load: Load, names: &[String], limiter: trypema::RateLimiter) -> Box<dyn Driven> {
    match name {
        ABSOLUTE => driven(ours::Ours { limiter, limit: ours::absolute(load) }, names),
        ABSOLUTE_LEASES => driven(ours::Ours { limiter, limit: ours::absolute_leases(load) }, names),
        SLIDING_WINDOW_LEASES => {
            driven(ours::Ours { limiter, limit: ours::sliding_window_leases(load) }, names)
        }
        FIXED_WINDOW_LEASES => driven(ours::Ours { limiter, limit: ours::fixed_window_leases(load) }, names),
        SUPPRESSED => driven(ours::Ours { limiter, limit: ours::suppressed(load) }, names),
        TOKEN_BUCKET => driven(ours::Ours { limiter, limit: ours::token_bucket(load) }, names),
        TOKEN_BUCKET_OF_TWO => driven(ours::Ours { limiter, limit: ours::token_bucket_of_two(load) }, names),
        SLIDING_WINDOW => driven(ours::Ours { limiter, limit: ours::sliding_window(load) }, names),
        FIXED_WINDOW => driven(ours::Ours { limiter, limit: ours::fixed_window(load) }, names),
        ABUSE => driven(ours::Ours { limiter, limit: ours::abuse(load) }, names),
        other => panic!("no contender is named {other}"),
    }
}

fn driven<C: Contender>(contender: C, names: &[String]) -> Box<dyn Driven> {
    Box::new(Loaded::new(contender, names))
}
