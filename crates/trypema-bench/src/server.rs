//! The service next to axum without a limiter and throttlecrab-server: `cargo xtask bench server`.

mod attack;
pub mod client;
mod contender;
mod floor;
mod load;
mod measure;
mod memory;
pub mod place;
pub mod process;
mod report;
mod workload;

use std::process::ExitCode;

pub use floor::serve as serve_floor;
pub use process::become_tethered;

use crate::measure::Effort;
use crate::report::print_and_keep;
use place::Place;
use report::Column;
use workload::WORKLOADS;

pub fn run(effort: Effort<'_>) -> ExitCode {
    match measured(effort) {
        Ok(text) => print_and_keep(&text, ("server", effort)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measured(effort: Effort<'_>) -> Result<String, String> {
    let place = Place::prepare()?;
    let title = if let Effort::Quick(title) = effort { title } else { "" };
    let mut columns = Vec::new();
    for workload in WORKLOADS.into_iter().filter(|workload| workload.title.contains(title)) {
        eprintln!("measuring: {}", workload.title);
        columns.push(Column { workload, samples: measure::column(&workload, &place, effort)? });
    }
    let mut idle = Vec::new();
    if title.is_empty() {
        eprintln!("measuring: idle connections");
        idle = memory::measured(&place)?;
    }
    let mut harms = Vec::new();
    if title.is_empty() || "hostile".contains(title) {
        eprintln!("measuring: a good client beside hostile ones");
        harms = attack::measured(&place)?;
    }
    Ok(report::text(&columns, &idle, &harms))
}
