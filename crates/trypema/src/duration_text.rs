//! Durations as text, such as `1h30m`, for errors and rules.

use std::fmt;
use std::time::Duration;

/// A unit of time in texts such as `1h30m`.
pub(crate) struct TimeUnit {
    pub(crate) name: &'static str,
    pub(crate) micros: u128,
}

/// The units of time, largest first: the order in which a duration is written.
pub(crate) const TIME_UNITS: [TimeUnit; 6] = [
    TimeUnit { name: "d", micros: 86_400_000_000 },
    TimeUnit { name: "h", micros: 3_600_000_000 },
    TimeUnit { name: "m", micros: 60_000_000 },
    TimeUnit { name: "s", micros: 1_000_000 },
    TimeUnit { name: "ms", micros: 1_000 },
    TimeUnit { name: "us", micros: 1 },
];

/// Displays a duration with as few units as possible, rounded up to a microsecond: `1h30m`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DurationText(pub(crate) Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos().div_ceil(1_000);
        if rest == 0 {
            return f.write_str("0s");
        }
        for unit in &TIME_UNITS {
            let number = rest / unit.micros;
            rest %= unit.micros;
            if number > 0 {
                write!(f, "{number}{}", unit.name)?;
            }
        }
        Ok(())
    }
}
