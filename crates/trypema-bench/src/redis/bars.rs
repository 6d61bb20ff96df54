//! The pass/fail thresholds (bars) of the Redis benchmarks. Each is a ratio within one run or a number of
//! bytes.

use super::contender::{
    ABSOLUTE, FIXED_WINDOW, GCRA, PUBLISHED_ABSOLUTE, PUBLISHED_SUPPRESSED, SLIDING_WINDOW, SUPPRESSED,
    TOKEN_BUCKET, TOKEN_BUCKET_OF_TWO,
};
use super::measure::{ALONE, EXPIRING, HOT_256, MANY_KEYS};
use super::memory::BUCKETS;
use super::report::Table;
use crate::bars::Bar;

pub fn of(table: &Table) -> Vec<Bar> {
    let mut bars = ratios(table);
    bars.extend(table.misses.iter().map(|(name, miss)| Bar {
        what: format!("{name}, 256 in flight, one key: calls admitted over or under the limit"),
        measured: *miss,
        at_most: true,
        bound: 0.0,
    }));
    bars.extend(bytes(table));
    bars
}

fn ratios(table: &Table) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut at_least = |(ours, theirs, letter): (&str, &str, char), column: &str, bound: f64| {
        let rate = |name| table.rate(name, column);
        if let (Some(ours_rate), Some(their_rate)) = (rate(ours), rate(theirs)) {
            let what = format!("{ours}, {column}: calls / {letter}");
            bars.push(Bar { what, measured: ours_rate / their_rate, at_most: false, bound });
        }
    };
    for (ours, bound) in [
        (TOKEN_BUCKET, 1.0),
        (TOKEN_BUCKET_OF_TWO, 1.0),
        (FIXED_WINDOW, 1.0),
        (SLIDING_WINDOW, 1.0),
        (ABSOLUTE, 0.8),
        (SUPPRESSED, 0.65),
    ] {
        at_least((ours, GCRA, 'G'), MANY_KEYS, bound);
    }
    at_least((ABSOLUTE, GCRA, 'G'), EXPIRING, 0.75);
    for ours in [ABSOLUTE, TOKEN_BUCKET, TOKEN_BUCKET_OF_TWO, SLIDING_WINDOW, FIXED_WINDOW] {
        at_least((ours, PUBLISHED_ABSOLUTE, 'P'), HOT_256, 20.0);
    }
    at_least((SUPPRESSED, PUBLISHED_SUPPRESSED, 'P'), HOT_256, 20.0);
    for ours in [ABSOLUTE, SUPPRESSED, TOKEN_BUCKET, TOKEN_BUCKET_OF_TWO, SLIDING_WINDOW, FIXED_WINDOW] {
        at_least((ours, GCRA, 'G'), ALONE, 0.8);
    }
    bars
}

fn bytes(table: &Table) -> Vec<Bar> {
    let of = |name| table.bytes.iter().find(|bytes| bytes.name == name);
    let mut bars = Vec::new();
    let mut at_most = |what: String, measured: f64, bound: f64| {
        bars.push(Bar { what, measured, at_most: true, bound });
    };
    if let Some(two) = of(TOKEN_BUCKET_OF_TWO) {
        at_most(format!("{TOKEN_BUCKET_OF_TWO}: bytes of `user_123`"), two.seeds_key, 128.0);
    }
    if let Some(absolute) = of(ABSOLUTE) {
        at_most(format!("{ABSOLUTE}: bytes with one hit"), absolute.buckets[0], 160.0);
        for (at, bound) in [(1, 20.0), (2, 16.0), (3, 16.0)] {
            let per_bucket = absolute.buckets[at] / BUCKETS[at] as f64;
            at_most(format!("{ABSOLUTE}: bytes per bucket at {}", BUCKETS[at]), per_bucket, bound);
        }
    }
    bars
}
