//! Prints the summary of a run.

use std::process::ExitCode;

use crate::arguments::Plan;
use crate::ledger::Ledger;
use crate::plain::print_line;
use crate::strategy_run::StrategyRun;

/// Prints the totals and the worst window of each strategy. Fails if a strategy admitted more than its bound.
pub(crate) fn print(plan: &Plan, strategies: &[StrategyRun], ledgers: &[Ledger]) -> ExitCode {
    let worst_of = format!("worst {} s", plan.window.as_secs());
    print_line(&format!(
        "\n {:<14} {:>8} {:>8} {:>8} {:>11}   {:<7} {}",
        "", "offered", "admitted", "denied", worst_of, "at most", "because of"
    ));
    let mut is_within = true;
    for (strategy, ledger) in strategies.iter().zip(ledgers) {
        let (total, worst) = (ledger.total(), ledger.worst(plan.window));
        is_within &= worst <= strategy.bound;
        print_line(&format!(
            " {:<14} {:>8} {:>8} {:>8} {:>11} {} {:<7} {}",
            strategy.name.text(),
            total.offered(),
            total.admitted,
            total.denied,
            worst,
            if worst <= strategy.bound { '≤' } else { '>' },
            strategy.bound,
            strategy.reason,
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
