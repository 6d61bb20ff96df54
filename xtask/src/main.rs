//! `cargo xtask`: the project's own commands. Each is a short list of programs to run.

mod imports;
mod install;
mod links;
mod lint;
mod test;

use std::ffi::OsStr;
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask <command>

  test               everything CI runs: unit tests, traces, properties, model checks, docs, lints
  lint               formatting, clippy, docs, each feature alone
  bench local        the in-process benchmarks beside the peers; updates docs/performance.md
  bench redis        the same on a Redis started for it
  bench quick        what the usual case of each Redis script (quick/*.lua) saves
  bench rules        10,000 rules beside 10, and the layer beside tower_governor
  bench hybrid       a fleet on leases beside the Redis provider and trypema 2.2.1
  bench server       the service over HTTP beside axum without a limiter and throttlecrab-server, which it installs
                     outside of the repository
  bench reload       10,000 rules in PostgreSQL that change while a server decides; every bench takes --quick,
                     and then updates nothing
  soak [strategy]    the random tests at full length: a million traces per strategy; --redis plays them on a Redis
  soak faults [row]  how late calls return when Redis fails, and how soon they are served again
  soak connections   slow readers, large bodies and trickled heads from addresses that reconnect at once, and a good client
                     beside them: its p99, and the service's memory; half a minute
  simulate hybrid    fleets that lease from one store: updates docs/scale.md; --seeds N [--from S] plays random faults instead
  archive VERSION    keeps the present Redis scripts in testdata/redis-scripts, for tests of upgrades from this version
  plot suppressed    draws docs/img/suppressed.svg from the simulator
  plot strategies    draws docs/img/strategies.svg: one burst through all six strategies
";

/// The manifest of the benchmarks. They are a separate workspace, because one of the measured peers is also
/// named trypema.
const BENCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/trypema-bench/Cargo.toml");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test"] => test::run(),
        ["lint"] => lint::run(),
        ["bench", rest @ ..] => {
            cargo(["run", "--release", "--manifest-path", BENCH, "--"].iter().chain(rest))
        }
        ["soak", "faults", rest @ ..] => soak("faults", rest),
        ["soak", "connections", rest @ ..] => cargo(["build", "--release", "--package", "trypema-server"])
            .and_then(|()| soak("connections", rest)),
        ["soak", rest @ ..] => soak("soak", rest),
        ["simulate", rest @ ..] => soak("simulate", rest),
        ["archive", version] => soak("archive", &[version]),
        ["plot", rest @ ..] => {
            let plot = ["run", "--release", "--package", "trypema-testkit", "--bin", "plot", "--"];
            cargo(plot.iter().chain(rest))
        }
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [] => Err(HELP.to_owned()),
        _ => Err(format!("unknown command `{}`\n\n{HELP}", words.join(" "))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a program of the testkit that needs the Redis provider.
fn soak(program: &str, arguments: &[&str]) -> Step {
    let run =
        ["run", "--release", "--package", "trypema-testkit", "--features", "redis", "--bin", program, "--"];
    cargo(run.iter().chain(arguments))
}

/// The result of a step: nothing, or an error message for the user.
type Step = Result<(), String>;

fn cargo<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Step {
    run(Command::new(env!("CARGO")).args(arguments))
}

/// Runs a program to its end, showing its output.
fn run(command: &mut Command) -> Step {
    let shown = format!("{command:?}").replace('"', "");
    println!("$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` ended with {status}")),
        Err(error) => Err(format!("`{shown}` could not be started: {error}")),
    }
}
