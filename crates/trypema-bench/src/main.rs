//! Benchmarks against the peers, side by side in one run: `cargo xtask bench local`, `counts`, `redis`, `rules`,
//! `reservations`, `hybrid`, `server` and `reload`.

mod allocator;
mod bars;
mod contender;
mod counts;
mod floors;
mod hybrid;
mod keys;
mod layers;
mod measure;
mod ours;
mod peers;
mod process;
mod redis;
mod reload;
mod report;
mod reservations;
mod rules;
mod server;

use std::process::ExitCode;

use measure::Effort;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

const HELP: &str = "\
cargo xtask bench local [--quick [TITLE]]
cargo xtask bench counts [--quick [TITLE]]
cargo xtask bench redis [--quick [TITLE [CONTENDER]]]
cargo xtask bench quick
cargo xtask bench rules [--quick]
cargo xtask bench reservations [--quick]
cargo xtask bench hybrid [--quick]
cargo xtask bench server [--quick [TITLE]]
cargo xtask bench reload [--quick [TITLE]]

Inside the process, on a Redis server that is started for it, rules and middleware, reservations, a fleet on leases,
the service over HTTP, or the service while its rules in PostgreSQL change.

`counts` counts instructions and cache misses with valgrind. The others measure every contender on every workload in
interleaved rounds and print medians, ratios and bars. A full run rewrites the measured part of docs/performance.md.
`--quick` does fewer rounds, only of the columns whose title contains TITLE if one is given (on Redis also only of
contenders whose name contains CONTENDER), and writes nothing.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["local"] => report::local(Effort::Full),
        ["local", "--quick"] => report::local(Effort::Quick("")),
        ["local", "--quick", title] => report::local(Effort::Quick(title)),
        ["counts"] => counts::run(Effort::Full),
        ["counts", "--quick"] => counts::run(Effort::Quick("")),
        ["counts", "--quick", title] => counts::run(Effort::Quick(title)),
        ["redis"] => redis::run(Effort::Full, ""),
        ["redis", "--quick"] => redis::run(Effort::Quick(""), ""),
        ["redis", "--quick", title] => redis::run(Effort::Quick(title), ""),
        ["redis", "--quick", title, contender] => redis::run(Effort::Quick(title), contender),
        ["quick"] => redis::run_quick(),
        ["hybrid"] => hybrid::run(Effort::Full),
        ["hybrid", "--quick"] => hybrid::run(Effort::Quick("")),
        ["rules"] => rules::run(Effort::Full),
        ["rules", "--quick"] => rules::run(Effort::Quick("")),
        ["reservations"] => reservations::run(Effort::Full),
        ["reservations", "--quick"] => reservations::run(Effort::Quick("")),
        ["server"] => server::run(Effort::Full),
        ["server", "--quick"] => server::run(Effort::Quick("")),
        ["server", "--quick", title] => server::run(Effort::Quick(title)),
        ["reload"] => reload::run(Effort::Full),
        ["reload", "--quick"] => reload::run(Effort::Quick("")),
        ["reload", "--quick", title] => reload::run(Effort::Quick(title)),
        // Subcommands that `server` and `reload` start as child processes.
        ["floor", rules, address] => server::serve_floor(rules, address),
        ["tethered", program, arguments @ ..] => server::become_tethered(program, arguments),
        // Subcommands that `local` and `counts` start as child processes.
        ["memory", contender, keys] => process::memory(contender, keys),
        ["calls", contender, title, count] => counts::calls(contender, title, count),
        ["buckets", count] => process::buckets(count),
        ["growth", contender] => process::growth(contender),
        _ => {
            eprint!("{HELP}");
            ExitCode::from(2)
        }
    }
}
