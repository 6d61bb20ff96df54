//! Prints the summary of a run.

use std::process::ExitCode;

use crate::arguments::Plan;
use crate::lanes::Lane;
use crate::ledger::Ledger;
use crate::plain::print_line;

/// Prints the totals and the worst window of each lane. Fails if a lane admitted more than its bound.
pub(crate) fn print(plan: &Plan, lanes: &[Lane], ledgers: &[Ledger]) -> ExitCode {
    let worst_of = format!("worst {} s", plan.window.as_secs());
    print_line(&format!(
        "\n {:<14} {:>8} {:>8} {:>8} {:>11}   {:<7} {}",
        "", "offered", "admitted", "denied", worst_of, "at most", "because of"
    ));
    let mut is_within = true;
    for (lane, ledger) in lanes.iter().zip(ledgers) {
        let (total, worst) = (ledger.total(), ledger.worst(plan.window));
        is_within &= worst <= lane.bound;
        print_line(&format!(
            " {:<14} {:>8} {:>8} {:>8} {:>11} {} {:<7} {}",
            lane.name.text(),
            total.offered(),
            total.admitted,
            total.denied,
            worst,
            if worst <= lane.bound { '≤' } else { '>' },
            lane.bound,
            lane.reason,
        ));
    }
    if is_within {
        print_line("\n No window admitted more than its strategy allows. Why: docs/guarantees.md");
        ExitCode::SUCCESS
    } else {
        print_line("\n A window admitted more than its strategy allows: please report this.");
        ExitCode::FAILURE
    }
}
