//! The pass/fail thresholds (bars) of the benchmarks. Each is a ratio within one run, or a fixed bound.

use crate::report::Table;

pub struct Bar {
    pub what: String,
    pub measured: f64,
    pub at_most: bool,
    pub bound: f64,
}

impl Bar {
    pub fn holds(&self) -> bool {
        self.holds_at(self.measured)
    }

    fn holds_at(&self, measured: f64) -> bool {
        if self.at_most { measured <= self.bound } else { measured >= self.bound }
    }
}

/// The median of several rounds, and their quartiles.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub quartiles: [f64; 2],
}

impl Spread {
    pub fn of(mut rounds: Vec<f64>) -> Option<Self> {
        rounds.sort_by(f64::total_cmp);
        let at = |quarter: usize| rounds.get((rounds.len().max(1) - 1) * quarter / 4).copied();
        Some(Self { median: at(2)?, quartiles: [at(1)?, at(3)?] })
    }
}

/// A bar of which several rounds were measured.
pub struct RepeatedBar {
    pub bar: Bar,
    pub quartiles: [f64; 2],
}

impl RepeatedBar {
    /// Whether the bar holds in the middle half of the rounds.
    pub fn verdict(&self) -> &'static str {
        match self.quartiles.map(|measured| self.bar.holds_at(measured)) {
            [true, true] => "holds",
            [false, false] => "**does not hold**",
            _ => "within noise",
        }
    }
}

const GOVERNOR: &str = "governor, foldhash (G)";
const PUBLISHED: &str = "trypema 2.2.1 absolute (P)";

pub fn of(table: &Table) -> Vec<RepeatedBar> {
    let mut bars = Vec::new();
    let mut at_most = |what: String, measured: Option<Spread>, bound: f64| {
        bars.extend(measured.map(|Spread { median, quartiles }| RepeatedBar {
            bar: Bar { what, measured: median, at_most: true, bound },
            quartiles,
        }));
    };
    let once = |measured: Option<f64>| measured.map(|value| Spread { median: value, quartiles: [value; 2] });
    for ours in ["ours: token bucket", "ours: sliding window", "ours: fixed window"] {
        for (column, bound) in [
            ("hot key, allowed", 0.5),
            ("hot key, denied", 0.55),
            ("100k keys, busy", 0.5),
            ("100k keys, idle", 0.5),
            ("1M keys, busy", 0.5),
            ("1M keys, idle", 0.5),
            ("2 threads, hot", 1.0 / 2.5),
            ("2 threads, 1M keys", 0.5),
        ] {
            at_most(format!("{ours}, {column}: time / G"), table.ratio([ours, GOVERNOR], column), bound);
        }
        at_most(format!("{ours}: bytes per key"), once(table.bytes(ours)), 95.0);
    }
    for (ours, denied) in [("ours: absolute, inc", 0.7), ("ours: absolute, take", 0.45)] {
        for (column, bound) in [
            ("hot key, allowed", 0.45),
            ("hot key, denied", denied),
            ("100k keys, busy", 0.45),
            ("1M keys, busy", 0.5),
            ("2 threads, hot", 0.25),
            ("2 threads, 1M keys", 0.25),
        ] {
            at_most(format!("{ours}, {column}: time / P"), table.ratio([ours, PUBLISHED], column), bound);
        }
        for column in ["100k keys, busy", "1M keys, busy"] {
            at_most(format!("{ours}, {column}: time / G"), table.ratio([ours, GOVERNOR], column), 1.5);
        }
    }
    at_most("ours: absolute: bytes per key, one hit".into(), once(table.bytes("ours: absolute, inc")), 135.0);
    let suppressed = ["ours: suppressed", "trypema 2.2.1 suppressed (P)"];
    for column in ["hot key, allowed", "hot key, denied", "100k keys, busy", "1M keys, busy"] {
        at_most(format!("ours: suppressed, {column}: time / P"), table.ratio(suppressed, column), 0.6);
    }
    at_most("ours: suppressed: bytes per key, one hit".into(), once(table.bytes(suppressed[0])), 151.0);
    at_most("ours: absolute: bytes per live bucket at 6,000".into(), once(table.bytes_per_bucket), 12.0);
    at_most("worst call while growing to 1M keys, µs".into(), once(table.worst_call_us), 1_000.0);
    let handle = ["ours: token bucket by handle", "floor: atomic GCRA + the same clock"];
    at_most(
        "borrowed handle, hot key, allowed: time / atomic GCRA and the same clock".into(),
        table.ratio(handle, "hot key, allowed"),
        1.2,
    );
    bars
}
