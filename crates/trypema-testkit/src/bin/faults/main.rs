//! Measures the tight numbers of the fault table: how late calls return, and how soon they are served again.
//!
//! `faults [row]`: all rows, or those whose name contains the word. What must hold in every run, with looser
//! bounds, is asserted by `tests/redis/faults.rs`.

mod callers;
mod rows;

use std::process::ExitCode;
use std::time::Duration;

use callers::Callers;
use rows::{ROWS, Row, Stage};

/// How much later than its deadline a call may return.
const LATENESS: Duration = Duration::from_millis(5);

/// How soon after the fault calls are to be served again.
const RECOVERY: Duration = Duration::from_secs(1);

/// How long a fault lasts: longer than the breaker's pause, so that it is met open, closed and probing.
const FAULT: Duration = Duration::from_millis(700);

/// Each row is measured so often; the worst counts.
const ROUNDS: usize = 5;

/// What was seen of a row.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    calls: u64,
    failed: u64,
    lateness: Duration,
    recovery: Duration,
}

impl Seen {
    fn worse_of(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            failed: self.failed + other.failed,
            lateness: self.lateness.max(other.lateness),
            recovery: self.recovery.max(other.recovery),
        }
    }

    fn is_good(&self) -> bool {
        self.lateness <= LATENESS && self.recovery < RECOVERY
    }
}

fn main() -> ExitCode {
    let chosen = std::env::args().nth(1).unwrap_or_default();
    println!("{:<26} {:>8} {:>8} {:>14} {:>12}", "fault", "calls", "failed", "late by", "recovery");
    let mut is_good = true;
    for row in ROWS.iter().filter(|row| row.name.contains(&chosen)) {
        match measure(row) {
            Ok(seen) => {
                let verdict = if seen.is_good() { "" } else { "  missed" };
                let (late, recovery) = (millis(seen.lateness), millis(seen.recovery));
                println!(
                    "{:<26} {:>8} {:>8} {late:>11} ms {recovery:>9} ms{verdict}",
                    row.name, seen.calls, seen.failed
                );
                is_good &= seen.is_good();
            }
            Err(error) => {
                println!("{:<26} {error}", row.name);
                is_good = false;
            }
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn millis(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1_000.0)
}

fn measure(row: &Row) -> Result<Seen, Box<dyn std::error::Error>> {
    let mut worst = Seen::default();
    for _ in 0..ROUNDS {
        let stage = Stage::set(row)?;
        let callers = Callers::start(&stage.url)?;
        (row.strike)(&stage)?;
        std::thread::sleep(FAULT);
        (row.heal)(&stage)?;
        worst = worst.worse_of(callers.finish_when_served()?);
    }
    Ok(worst)
}
