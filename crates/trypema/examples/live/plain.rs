//! Prints one line per second, for logs and pipes.

use std::io::Write as _;
use std::time::Duration;

use crate::arguments::Plan;
use crate::lanes::Lane;
use crate::ledger::{Ledger, Tally};

const SECOND: Duration = Duration::from_secs(1);

/// Prints a line. Ignores a closed pipe instead of panicking.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

pub(crate) fn print_header(plan: &Plan, lanes: &[Lane]) {
    let (limit, window, load) = (plan.limit, plan.window.as_secs(), plan.load.text());
    print_line(&format!("{limit} calls allowed per {window} s on one key, load: {load}; each second:"));
    let columns: String = match lanes {
        [lane] => format!("{:>10}{:>10}   {}", "admitted", "denied", lane.name.text()),
        _ => lanes.iter().map(|lane| format!("{:>15}", lane.name.text())).collect(),
    };
    print_line(&format!("second   offered{columns}"));
}

/// Prints the second before `now`: the admitted requests of each lane, or all details of a single lane.
pub(crate) fn print_second(now: Duration, lanes: &[Lane], ledgers: &[Ledger]) {
    let tally = |ledger: &Ledger| ledger.tally(now.saturating_sub(SECOND)..now);
    let tallies: Vec<Tally> = ledgers.iter().map(tally).collect();
    let columns: String = match (lanes, tallies.as_slice()) {
        ([lane], [Tally { admitted, denied }]) => {
            format!("{admitted:>10}{denied:>10}   {}", lane.status())
        }
        _ => tallies.iter().map(|tally| format!("{:>15}", tally.admitted)).collect(),
    };
    let offered = tallies.first().map_or(0, |tally| tally.offered());
    print_line(&format!("{:>6.0} {offered:>9}{columns}", now.as_secs_f64()));
}
