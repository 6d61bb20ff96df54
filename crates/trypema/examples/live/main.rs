//! Limits real traffic, and draws the result in the terminal.
//!
//! ```text
//! cargo run --release --example live
//! cargo run --release --example live -- --help
//! ```

mod arguments;
mod ledger;
mod plain;
mod screen;
mod status;
mod strategy_run;
mod summary;
mod traffic;

use std::process::ExitCode;
use std::time::Duration;

use arguments::{Command, Plan};
use ledger::Ledger;
use strategy_run::StrategyRun;
use traffic::Run;

/// The redraw interval: short enough to look smooth, and long enough to cost little.
const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// The interval between two lines of plain output, suitable for a log.
const PRINT_EVERY: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = match arguments::parse(&words) {
        Ok(Command::Help) => {
            print!("{}", arguments::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Command::Run(plan)) => plan,
        Err(message) => return refuse(&message),
    };
    match strategy_run::create_all(&plan) {
        Ok(strategies) => run(&plan, &strategies),
        Err(message) => refuse(&message),
    }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("live: {message}\nTry `cargo run --release --example live -- --help`.");
    ExitCode::from(2)
}

/// Sends the traffic, shows it while it runs, and prints a summary.
fn run(plan: &Plan, strategies: &[StrategyRun]) -> ExitCode {
    let run = Run::starting_now(plan);
    let ledgers: Vec<Ledger> = strategies.iter().map(|_| Ledger::new(plan.seconds)).collect();
    std::thread::scope(|scope| {
        for _ in 0..traffic::WORKERS {
            scope.spawn(|| traffic::send(&run, strategies, &ledgers));
        }
        match screen::Screen::of_terminal(plan, strategies) {
            Some(mut screen) => {
                run.every(REDRAW_EVERY, |now| screen.draw(now, strategies, &ledgers));
            }
            None => {
                plain::print_header(plan, strategies);
                run.every(PRINT_EVERY, |now| plain::print_second(now, strategies, &ledgers));
            }
        }
    });
    summary::print(plan, strategies, &ledgers)
}
