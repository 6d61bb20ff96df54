//! `cargo xtask simulate hybrid`: simulates fleets of instances that lease from one store, on virtual time.
//!
//! The same code always gives the same numbers, so a page that changes in a diff shows a change of
//! behaviour.

mod chart;
mod day;
mod hot_key;
mod report;
mod seeds;

use std::process::ExitCode;

const HELP: &str = "\
simulate hybrid                              rewrites the tables of docs/scale.md and their pictures
simulate hybrid --seeds N [--from SEED]      plays N random fleets with faults and says which break the invariant
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["hybrid"] => Ok(report::write()),
        ["hybrid", "--seeds", count] => numbers([count, "0"]).map(seeds::play),
        ["hybrid", "--seeds", count, "--from", first] => numbers([count, first]).map(seeds::play),
        _ => Err(HELP.to_owned()),
    };
    match done {
        Ok(code) => code,
        Err(message) => {
            eprint!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn numbers(words: [&str; 2]) -> Result<[u64; 2], String> {
    let [first, second] = words.map(|word| word.parse().map_err(|_| format!("`{word}` is no number\n")));
    Ok([first?, second?])
}
