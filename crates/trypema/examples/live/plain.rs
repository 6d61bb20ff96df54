//! Prints one line per second, for logs and pipes.

use std::io::Write as _;
use std::time::Duration;

use crate::arguments::Plan;
use crate::ledger::{Ledger, Tally};
use crate::strategy_run::StrategyRun;

const SECOND: Duration = Duration::from_secs(1);

/// Prints a line. Ignores a closed pipe instead of panicking.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

pub(crate) fn print_header(plan: &Plan, strategies: &[StrategyRun]) {
    let (limit, window, load) = (plan.limit, plan.window.as_secs(), plan.load.text());
    print_line(&format!("{limit} calls allowed per {window} s on one key, load: {load}; each second:"));
    let columns: String = match strategies {
        [strategy] => format!("{:>10}{:>10}   {}", "admitted", "denied", strategy.name.text()),
        _ => strategies.iter().map(|strategy| format!("{:>15}", strategy.name.text())).collect(),
    };
    print_line(&format!("second   offered{columns}"));
}

/// Prints the second before `now`: the admitted requests of each strategy, or all details of a single strategy.
pub(crate) fn print_second(now: Duration, strategies: &[StrategyRun], ledgers: &[Ledger]) {
    let tally = |ledger: &Ledger| ledger.tally(now.saturating_sub(SECOND)..now);
    let tallies: Vec<Tally> = ledgers.iter().map(tally).collect();
    let columns: String = match (strategies, tallies.as_slice()) {
        ([strategy], [Tally { admitted, denied }]) => {
            format!("{admitted:>10}{denied:>10}   {}", strategy.status())
        }
        _ => tallies.iter().map(|tally| format!("{:>15}", tally.admitted)).collect(),
    };
    let offered = tallies.first().map_or(0, |tally| tally.offered());
    print_line(&format!("{:>6.0} {offered:>9}{columns}", now.as_secs_f64()));
}
