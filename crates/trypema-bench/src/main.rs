//! Side by side with the peers, in one run: `cargo xtask bench local`.

mod allocator;
mod bars;
mod contender;
mod floors;
mod keys;
mod measure;
mod ours;
mod peers;
mod process;
mod report;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

const HELP: &str = "\
cargo xtask bench local [--quick [TITLE]]

Measures every contender on every workload in interleaved rounds and prints medians, ratios and bars;
rewrites the measured part of docs/performance.md. `--quick` does fewer rounds, only of the columns whose
title contains TITLE if one is given, and writes nothing.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["local"] => report::local(measure::Effort::Full),
        ["local", "--quick"] => report::local(measure::Effort::Quick("")),
        ["local", "--quick", title] => report::local(measure::Effort::Quick(title)),
        // What `local` starts in processes of their own.
        ["memory", contender, keys] => process::memory(contender, keys),
        ["buckets", count] => process::buckets(count),
        ["growth", contender] => process::growth(contender),
        _ => {
            eprint!("{HELP}");
            ExitCode::from(2)
        }
    }
}
