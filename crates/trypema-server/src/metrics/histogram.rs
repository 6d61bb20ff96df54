//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Exposition, Metric, MetricType};

/// The upper bounds of the buckets, as the `le` label and in microseconds. They range from less than a
/// decision in memory takes to more than any deadline.
const ENDS: [(&str, u64); 14] = [
    ("0.00005", 50),
    ("0.0001", 100),
    ("0.00025", 250),
    ("0.0005", 500),
    ("0.001", 1_000),
    ("0.0025", 2_500),
    ("0.005", 5_000),
    ("0.01", 10_000),
    ("0.025", 25_000),
    ("0.05", 50_000),
    ("0.1", 100_000),
    ("0.25", 250_000),
    ("0.5", 500_000),
    ("1", 1_000_000),
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One count per bound; the last bucket counts durations above all bounds.
    buckets: [AtomicU64; ENDS.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn add(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = ENDS.iter().position(|(_, end)| us <= *end).unwrap_or(ENDS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl Metric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;

    /// A histogram with labels and without samples writes nothing.
    fn write(&self, text: &mut Exposition, labels: &[(&str, &str)]) {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        if total == 0 && !labels.is_empty() {
            return;
        }
        let mut below = 0;
        for ((end, _), count) in ENDS.iter().zip(&counts) {
            below += count;
            text.sample_of("_bucket", &[labels, &[("le", end)]].concat(), below);
        }
        text.sample_of("_bucket", &[labels, &[("le", "+Inf")]].concat(), total);
        let sum = Duration::from_micros(self.sum_us.load(Ordering::Relaxed));
        text.sample_of("_sum", labels, sum.as_secs_f64());
        text.sample_of("_count", labels, total);
    }
}
