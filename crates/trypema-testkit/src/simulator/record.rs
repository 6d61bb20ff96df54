//! Records of calls over time, and their summaries.

use trypema::clock::Timestamp;

const SECOND_US: u64 = 1_000_000;

/// Numbers of calls in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The number of calls made.
    pub offered: u64,
    /// The number of calls admitted.
    pub admitted: u64,
}

impl Tally {
    /// Returns the number of calls denied.
    pub fn denied(&self) -> u64 {
        self.offered - self.admitted
    }
}

/// Statistics of the calls admitted in several intervals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The smallest number of admitted calls.
    pub min: u64,
    /// The largest number of admitted calls.
    pub max: u64,
    /// The mean number of admitted calls.
    pub mean: f64,
    /// The number of intervals without admitted calls.
    pub zeros: usize,
}

impl Summary {
    /// Summarises `tallies`; all zero if there are none.
    pub fn of(tallies: &[Tally]) -> Self {
        let admitted = || tallies.iter().map(|tally| tally.admitted);
        Self {
            min: admitted().min().unwrap_or(0),
            max: admitted().max().unwrap_or(0),
            mean: admitted().sum::<u64>() as f64 / tallies.len().max(1) as f64,
            zeros: admitted().filter(|count| *count == 0).count(),
        }
    }
}

/// The calls of a simulation, or of a part of it: the time of each admitted call, and the number of calls
/// in each second from the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    start_us: u64,
    offered: Vec<u64>,
    admitted: Vec<u64>,
}

impl Series {
    /// Creates an empty series of a simulation that starts at `start`.
    pub(super) fn new(start: Timestamp) -> Self {
        Self { start_us: start.as_micros(), offered: Vec::new(), admitted: Vec::new() }
    }

    pub(super) fn offer(&mut self, at: Timestamp) {
        let second = ((at.as_micros() - self.start_us) / SECOND_US) as usize;
        if self.offered.len() <= second {
            self.offered.resize(second + 1, 0);
        }
        self.offered[second] += 1;
    }

    pub(super) fn admit(&mut self, at: Timestamp) {
        self.admitted.push(at.as_micros() - self.start_us);
    }

    /// Returns the calls of all `parts` together, over `seconds` seconds.
    pub(super) fn merged<'a>(
        start: Timestamp,
        seconds: usize,
        parts: impl Iterator<Item = &'a Self>,
    ) -> Self {
        let mut whole = Self::new(start);
        whole.offered.resize(seconds, 0);
        for part in parts {
            for (sum, offered) in whole.offered.iter_mut().zip(&part.offered) {
                *sum += offered;
            }
            whole.admitted.extend(&part.admitted);
        }
        whole.admitted.sort_unstable();
        whole
    }

    /// Returns the times of admitted calls, in microseconds from the start, in order.
    pub fn admitted_at(&self) -> &[u64] {
        &self.admitted
    }

    /// Returns the calls of each second.
    pub fn per_second(&self) -> Vec<Tally> {
        self.per_window(1)
    }

    /// Returns the calls of each window of `seconds` from the start, without a last incomplete one.
    pub fn per_window(&self, seconds: usize) -> Vec<Tally> {
        let windows = self.offered.chunks_exact(seconds.max(1));
        let mut tallies: Vec<Tally> =
            windows.map(|window| Tally { offered: window.iter().sum(), admitted: 0 }).collect();
        for at in &self.admitted {
            let window = (at / SECOND_US) as usize / seconds.max(1);
            if let Some(tally) = tallies.get_mut(window) {
                tally.admitted += 1;
            }
        }
        tallies
    }

    /// Returns the maximum number of admitted calls in any half-open interval of `seconds`, wherever it
    /// begins.
    pub fn worst_window(&self, seconds: u64) -> u64 {
        let mut oldest = 0;
        let mut worst = 0;
        for (newest, at) in self.admitted.iter().enumerate() {
            while self.admitted[oldest] + seconds * SECOND_US <= *at {
                oldest += 1;
            }
            worst = worst.max(newest + 1 - oldest);
        }
        worst as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(admitted: &[u64], denied: &[u64]) -> Series {
        let mut series = Series::new(Timestamp::from_micros(50));
        for at in admitted {
            series.offer(Timestamp::from_micros(50 + at));
            series.admit(Timestamp::from_micros(50 + at));
        }
        for at in denied {
            series.offer(Timestamp::from_micros(50 + at));
        }
        series
    }

    #[test]
    fn calls_are_counted_in_their_second_and_window() {
        let parts = [series(&[0, 999_999, 1_000_000], &[2_000_000]), series(&[500_000], &[])];
        let whole = Series::merged(Timestamp::from_micros(50), 5, parts.iter());
        let tally = |offered, admitted| Tally { offered, admitted };
        assert_eq!(whole.per_second(), [tally(3, 3), tally(1, 1), tally(1, 0), tally(0, 0), tally(0, 0)]);
        assert_eq!(whole.per_window(2), [tally(4, 4), tally(1, 0)]);
        assert_eq!(whole.per_second()[2].denied(), 1);
        assert_eq!(whole.admitted_at(), [0, 500_000, 999_999, 1_000_000]);
    }

    #[test]
    fn the_worst_window_is_found_between_the_marks_and_is_half_open() {
        let straddling = series(&[900_000, 950_000, 1_050_000, 1_899_999], &[]);
        assert_eq!(straddling.worst_window(1), 4);
        let one_later = series(&[900_000, 950_000, 1_050_000, 1_900_000], &[]);
        assert_eq!(one_later.worst_window(1), 3);
        assert_eq!(series(&[], &[]).worst_window(1), 0);
    }

    #[test]
    fn a_summary_names_the_extremes() {
        let tallies = [3, 0, 6].map(|admitted| Tally { offered: 9, admitted });
        let expected = Summary { min: 0, max: 6, mean: 3.0, zeros: 1 };
        assert_eq!(Summary::of(&tallies), expected);
    }
}
