//! Limits real traffic, and draws the result in the terminal.
//!
//! ```text
//! cargo run --release --example live
//! cargo run --release --example live -- --help
//! ```

mod arguments;
mod lanes;
mod ledger;
mod plain;
mod screen;
mod status;
mod summary;
mod traffic;

use std::process::ExitCode;
use std::time::Duration;

use arguments::{Asked, Plan};
use lanes::Lane;
use ledger::Ledger;
use traffic::Run;

/// The redraw interval: short enough to look smooth, and long enough to cost little.
const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// The interval between two lines of plain output, suitable for a log.
const PRINT_EVERY: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = match arguments::parse(&words) {
        Ok(Asked::Help) => {
            print!("{}", arguments::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Run(plan)) => plan,
        Err(message) => return refuse(&message),
    };
    match lanes::of(&plan) {
        Ok(lanes) => run(&plan, &lanes),
        Err(message) => refuse(&message),
    }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("live: {message}\nTry `cargo run --release --example live -- --help`.");
    ExitCode::from(2)
}

/// Sends the traffic, shows it while it runs, and prints a summary.
fn run(plan: &Plan, lanes: &[Lane]) -> ExitCode {
    let run = Run::starting_now(plan);
    let ledgers: Vec<Ledger> = lanes.iter().map(|_| Ledger::new(plan.seconds)).collect();
    std::thread::scope(|scope| {
        for _ in 0..traffic::WORKERS {
            scope.spawn(|| traffic::send(&run, lanes, &ledgers));
        }
        match screen::Screen::of_terminal(plan, lanes) {
            Some(mut screen) => {
                run.every(REDRAW_EVERY, |now| screen.draw(now, lanes, &ledgers));
            }
            None => {
                plain::print_header(plan, lanes);
                run.every(PRINT_EVERY, |now| plain::print_second(now, lanes, &ledgers));
            }
        }
    });
    summary::print(plan, lanes, &ledgers)
}
