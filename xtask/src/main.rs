//! `cargo xtask`: the project's own commands. Each is a short list of programs to run.

mod imports;
mod install;
mod links;
mod lint;
mod makefile;
mod report;
mod test;

use std::ffi::OsStr;
use std::process::{Command, ExitCode};

use self::test::Tests;

const HELP: &str = "\
cargo xtask <command>

  test               run everything that CI runs: unit tests, traces, properties, model checks, docs, lints;
                     installs what is missing, and prints the time of each suite; --nextest uses cargo-nextest
  test redis         run the tests of the library, with Redis, and install only what they need
  lint               check formatting, clippy, docs, and each feature alone
  bench local        measure the in-process limiters and their peers; updates docs/performance.md
  bench counts       count their instructions and cache misses, with valgrind
  bench redis        the same with Redis, which the command starts
  bench quick        measure how much time the usual case of each Redis script (quick/*.lua) saves
  bench rules        compare 10,000 rules with 10, and the Tower layer with tower_governor
  bench reservations compare reserving and settling with two plain checks, on each provider
  bench hybrid       compare a fleet on leases with the Redis provider and with trypema 2.2.1
  bench server       compare the server over HTTP with axum without a limiter, and with throttlecrab-server,
                     which the command installs outside the repository
  bench reload       change 10,000 rules in PostgreSQL while a server decides
                     every bench takes --quick, and then updates nothing
  soak [strategy]    run the random tests at full length: a million traces per strategy; --redis runs them on Redis
  soak faults [row]  measure how late calls return while Redis fails, and how soon they succeed again
  soak connections   measure the p99 of one client, and the memory of the server, while other addresses send slowly,
                     read slowly, send large bodies and reconnect at once; takes half a minute
  simulate hybrid    simulate fleets that lease from one store; updates docs/scale.md;
                     with --seeds N [--from S], simulate random faults instead
  plot suppressed    draw docs/img/suppressed.svg from the simulator
  plot strategies    draw docs/img/strategies.svg: one burst through the six strategies that limit a rate
";

/// The manifest of the benchmarks. They are a separate workspace, because one of the measured peers is also
/// named trypema.
const BENCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/trypema-bench/Cargo.toml");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test", rest @ ..] => match Tests::of(rest) {
            Some(tests) => tests.run(),
            None => Err(unknown(&words)),
        },
        ["lint"] => lint::run(),
        ["bench", rest @ ..] => {
            cargo(["run", "--release", "--manifest-path", BENCH, "--"].iter().chain(rest))
        }
        ["soak", "faults", rest @ ..] => soak("faults", rest),
        ["soak", "connections", rest @ ..] => cargo(["build", "--release", "--package", "trypema-server"])
            .and_then(|()| soak("connections", rest)),
        ["soak", rest @ ..] => soak("soak", rest),
        ["simulate", rest @ ..] => soak("simulate", rest),
        ["plot", rest @ ..] => {
            let plot = ["run", "--release", "--package", "trypema-testkit", "--bin", "plot", "--"];
            cargo(plot.iter().chain(rest))
        }
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [] => Err(HELP.to_owned()),
        _ => Err(unknown(&words)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn unknown(words: &[&str]) -> String {
    format!("unknown command `{}`\n\n{HELP}", words.join(" "))
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

/// Returns a command as it is shown to the user.
fn shown(command: &Command) -> String {
    format!("{command:?}").replace('"', "")
}

/// Runs a program to its end, showing its output.
fn run(command: &mut Command) -> Step {
    let shown = shown(command);
    println!("$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` ended with {status}")),
        Err(error) => Err(format!("`{shown}` could not be started: {error}")),
    }
}
