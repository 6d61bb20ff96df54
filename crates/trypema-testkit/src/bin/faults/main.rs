//! Measures two numbers for each fault: how far calls exceed their deadline, and how soon they are served
//! again.
//!
//! `faults [row]` measures all faults, or those whose name contains the word. The looser bounds that must
//! hold in every run are asserted by `tests/redis/faults.rs`.

mod callers;
mod rows;

use std::process::ExitCode;
use std::time::Duration;

use callers::Callers;
use rows::{ROWS, Row, Stage};

/// The maximum time by which a call may exceed its deadline.
const LATENESS: Duration = Duration::from_millis(5);

/// The maximum time from the end of the fault until all callers are served again.
const RECOVERY: Duration = Duration::from_secs(1);

/// The duration of a fault: longer than the circuit breaker's pause, so that calls meet it closed, open and
/// half-open.
const FAULT: Duration = Duration::from_millis(700);

/// The number of measurements of each fault. The worst counts.
const ROUNDS: usize = 5;

/// The measurements of one fault.
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
