//! Rules in PostgreSQL that change while a server decides: `cargo xtask bench reload`.

mod disturb;
mod load;
mod report;
mod rules;
mod scene;
mod steady;

use std::process::ExitCode;

use crate::measure::Effort;
use crate::report::print_and_keep;
use crate::server::place::build_ours;

/// The number of rules that the bars apply to. `FEWER` shows the cost per rule.
const MANY: usize = 10_000;
const FEWER: usize = 1_000;

pub fn run(effort: Effort<'_>) -> ExitCode {
    match measured(effort) {
        Ok(text) => print_and_keep(&text, ("reload", effort)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measured(effort: Effort<'_>) -> Result<String, String> {
    let program = build_ours()?;
    let mut samples = Vec::new();
    // A quick run with a title measures only the other table, whose columns have titles.
    let counts = if matches!(effort, Effort::Full | Effort::Quick("")) { &[FEWER, MANY][..] } else { &[] };
    for &count in counts {
        eprintln!("measuring: {count} rules");
        samples.push(load::measured(&program, count)?);
    }
    eprintln!("measuring: checks while rules change");
    let harms = disturb::measured(&program, (MANY, effort))?;
    Ok(report::text(&samples, &harms))
}
