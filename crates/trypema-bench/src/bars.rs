//! The pass/fail thresholds (bars) of the in-process benchmarks. Each is a ratio within one run.

use crate::report::Table;

pub struct Bar {
    pub what: String,
    pub measured: f64,
    pub at_most: bool,
    pub bound: f64,
}

impl Bar {
    pub fn holds(&self) -> bool {
        if self.at_most { self.measured <= self.bound } else { self.measured >= self.bound }
    }
}

const GOVERNOR: &str = "governor, foldhash (G)";

pub fn of(table: &Table) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut at_most = |what: String, measured: Option<f64>, bound: f64| {
        bars.extend(measured.map(|measured| Bar { what, measured, at_most: true, bound }));
    };
    let ratio = |ours: &str, theirs: &str, column: &str| {
        Some(table.time(ours, column)? / table.time(theirs, column)?)
    };
    for ours in ["ours: token bucket", "ours: sliding window", "ours: fixed window"] {
        for (column, bound) in [
            ("hot key, allowed", 0.45),
            ("hot key, denied", 0.55),
            ("100k keys", 0.5),
            ("1M keys, Zipf", 0.5),
            ("2 threads, hot", 1.0 / 3.0),
            ("2 threads, 1M Zipf", 0.5),
        ] {
            at_most(format!("{ours}, {column}: time / G"), ratio(ours, GOVERNOR, column), bound);
        }
        at_most(format!("{ours}: bytes per key"), table.bytes(ours), 95.0);
    }
    let pairs = [
        ("ours: absolute", "trypema 2.2.1 absolute (P)", 0.45, 135.0),
        ("ours: suppressed", "trypema 2.2.1 suppressed (P)", 0.6, 151.0),
    ];
    for (ours, theirs, bound, bytes) in pairs {
        for column in ["hot key, allowed", "hot key, denied", "100k keys", "1M keys, Zipf"] {
            at_most(format!("{ours}, {column}: time / P"), ratio(ours, theirs, column), bound);
        }
        at_most(format!("{ours}: bytes per key, one hit"), table.bytes(ours), bytes);
    }
    for column in ["2 threads, hot", "2 threads, 1M Zipf"] {
        let measured = ratio("ours: absolute", "trypema 2.2.1 absolute (P)", column);
        at_most(format!("ours: absolute, {column}: time / P"), measured, 0.25);
    }
    for column in ["100k keys", "1M keys, Zipf"] {
        at_most(
            format!("ours: absolute, {column}: time / G"),
            ratio("ours: absolute", GOVERNOR, column),
            1.1,
        );
    }
    at_most("ours: absolute: bytes per live bucket at 6,000".into(), table.bytes_per_bucket, 12.0);
    at_most("worst call while growing to 1M keys, µs".into(), table.worst_call_us, 1_000.0);
    let floor = "floor: atomic GCRA + coarse clock";
    let handle = ratio("ours: token bucket by handle", floor, "hot key, allowed");
    at_most("borrowed handle, hot key, allowed: time / atomic GCRA and the same clock".into(), handle, 1.2);
    bars
}
