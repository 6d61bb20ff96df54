//! Traffic: the number of calls that are due at any time.

use std::f64::consts::TAU;
use std::time::Duration;

use super::chance::share;
use crate::random::Random;

const SECOND_US: f64 = 1e6;

/// The offered rate over time. Rates are calls per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// A constant rate.
    Steady {
        /// The rate.
        per_second: f64,
    },
    /// Bursts of simultaneous calls, the first at the start.
    Bursts {
        /// The number of calls in a burst.
        size: u64,
        /// The time from one burst to the next.
        every: Duration,
    },
    /// A linear change from one rate to another, then a constant rate.
    Ramp {
        /// The rate at the start.
        from: f64,
        /// The rate after `over`.
        to: f64,
        /// The duration of the change.
        over: Duration,
    },
    /// Alternately on and off, on first.
    SquareWave {
        /// The rate while on.
        per_second: f64,
        /// The duration of the on phase.
        on: Duration,
        /// The duration of the off phase.
        off: Duration,
    },
    /// A sine around a mean, for example a day; at the mean and rising at the start.
    Sine {
        /// The mean rate.
        mean: f64,
        /// The amplitude, as a share of the mean from 0 to 1.
        swing: f64,
        /// The period.
        period: Duration,
    },
}

impl Shape {
    /// Returns the number of calls that are due before the end of the microsecond `at_us`, from the start.
    fn due_through(&self, at_us: u64) -> f64 {
        let elapsed_us = (at_us + 1) as f64;
        match *self {
            Self::Steady { per_second } => elapsed_us * per_second / SECOND_US,
            Self::Bursts { size, every } => (at_us / micros(every).max(1) + 1) as f64 * size as f64,
            Self::Ramp { from, to, over } => {
                let over_us = micros(over) as f64;
                let rising_us = elapsed_us.min(over_us);
                let steady_us = elapsed_us - rising_us;
                let gained = if over_us > 0.0 { (to - from) * rising_us / over_us / 2.0 } else { 0.0 };
                ((from + gained) * rising_us + to * steady_us) / SECOND_US
            }
            Self::SquareWave { per_second, on, off } => {
                let (on_us, cycle_us) = (micros(on), micros(on + off).max(1));
                let elapsed_us = at_us + 1;
                let past_us = elapsed_us / cycle_us * on_us;
                let on_us = past_us + (elapsed_us % cycle_us).min(on_us);
                on_us as f64 * per_second / SECOND_US
            }
            Self::Sine { mean, swing, period } => {
                let radians_per_us = TAU / micros(period).max(1) as f64;
                let swung_us = swing * (1.0 - (elapsed_us * radians_per_us).cos()) / radians_per_us;
                (elapsed_us + swung_us) * mean / SECOND_US
            }
        }
    }
}

/// The distribution of calls around the times at which they are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// Exactly when they are due.
    Even,
    /// As from many independent callers: a Poisson process.
    Poisson,
}

/// A generator of the times of calls.
#[derive(Debug, Clone)]
pub struct Arrivals {
    shape: Shape,
    spacing: Spacing,
    random: Random,
    /// The next call is made when more than this many calls are due.
    level: f64,
    /// The time of the last call.
    last_us: u64,
}

impl Arrivals {
    /// Creates the calls of `shape`. Randomness, if `spacing` needs it, comes from `random`.
    pub fn new(shape: Shape, spacing: Spacing, random: Random) -> Self {
        let mut arrivals = Self { shape, spacing, random, level: 0.0, last_us: 0 };
        if spacing == Spacing::Poisson {
            arrivals.level = arrivals.gap();
        }
        arrivals
    }

    /// Returns the time of the next call, in microseconds from the start; `None` if it is not before
    /// `end_us`.
    pub fn next_before(&mut self, end_us: u64) -> Option<u64> {
        let is_due = |at_us: u64| self.shape.due_through(at_us) > self.level;
        // Exponential search until a call is due, then bisection to the first such time.
        let (mut early, mut reach) = (self.last_us, 1);
        let mut late = early;
        while !is_due(late) {
            if late >= end_us {
                return None;
            }
            early = late + 1;
            late = (late + reach).min(end_us);
            reach *= 2;
        }
        while early < late {
            let middle = early + (late - early) / 2;
            if is_due(middle) {
                late = middle;
            } else {
                early = middle + 1;
            }
        }
        if late >= end_us {
            return None;
        }
        self.last_us = late;
        self.level += self.gap();
        Some(late)
    }

    /// Returns the number of calls that have to become due before the next call is made.
    fn gap(&mut self) -> f64 {
        match self.spacing {
            Spacing::Even => 1.0,
            Spacing::Poisson => -(1.0 - share(&mut self.random)).ln(),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(shape: Shape, spacing: Spacing, seconds: u64) -> Vec<u64> {
        let mut arrivals = Arrivals::new(shape, spacing, Random::seeded(1));
        std::iter::from_fn(|| arrivals.next_before(seconds * 1_000_000)).collect()
    }

    fn per_second(times: &[u64], seconds: u64) -> Vec<usize> {
        (0..seconds).map(|second| times.iter().filter(|at| *at / 1_000_000 == second).count()).collect()
    }

    #[test]
    fn even_calls_are_evenly_spaced_from_the_start() {
        let steady = Shape::Steady { per_second: 2.5 };
        assert_eq!(arrivals(steady, Spacing::Even, 2), [0, 400_000, 800_000, 1_200_000, 1_600_000]);
        let none = Shape::Steady { per_second: 0.0 };
        assert!(arrivals(none, Spacing::Even, 2).is_empty());
    }

    #[test]
    fn bursts_come_at_one_instant() {
        let bursts = Shape::Bursts { size: 3, every: Duration::from_millis(1_500) };
        let expected = [0, 0, 0, 1_500_000, 1_500_000, 1_500_000];
        assert_eq!(arrivals(bursts, Spacing::Even, 3), expected);
    }

    #[test]
    fn a_ramp_rises_and_then_stays() {
        let ramp = Shape::Ramp { from: 0.0, to: 40.0, over: Duration::from_secs(4) };
        let times = arrivals(ramp, Spacing::Even, 6);
        assert_eq!(per_second(&times, 6), [5, 15, 25, 35, 40, 40]);
    }

    #[test]
    fn a_square_wave_is_silent_while_off() {
        let wave =
            Shape::SquareWave { per_second: 10.0, on: Duration::from_secs(2), off: Duration::from_secs(1) };
        let times = arrivals(wave, Spacing::Even, 6);
        assert_eq!(per_second(&times, 6), [10, 10, 0, 10, 10, 0]);
    }

    #[test]
    fn a_day_has_its_peak_and_keeps_its_mean() {
        let day = Shape::Sine { mean: 100.0, swing: 0.9, period: Duration::from_secs(24) };
        let times = arrivals(day, Spacing::Even, 24);
        let hours = per_second(&times, 24);
        assert!(times.len().abs_diff(2_400) <= 1, "{}", times.len());
        assert!(hours[5] > 185 && hours[17] < 15, "{hours:?}");
    }

    #[test]
    fn poisson_calls_keep_their_mean_and_their_spread() {
        let steady = Shape::Steady { per_second: 100.0 };
        let counts = per_second(&arrivals(steady, Spacing::Poisson, 400), 400);
        let mean = counts.iter().sum::<usize>() as f64 / 400.0;
        let spread = |count: &usize| (*count as f64 - mean).powi(2);
        let variance = counts.iter().map(spread).sum::<f64>() / 399.0;
        assert!((95.0..105.0).contains(&mean), "{mean}");
        assert!(
            (75.0..125.0).contains(&variance),
            "the variance of a Poisson process is its mean: {variance}"
        );
    }
}
