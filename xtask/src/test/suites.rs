//! Runs `cargo test`, shows its output, and takes the time of each suite from it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::report::Report;
use crate::{Step, shown};

/// Runs a `cargo test` command. Its steps in the report begin with `prefix`.
pub(super) fn run(command: &mut Command, prefix: &str, report: &mut Report) -> Step {
    let shown = shown(command);
    println!("$ {shown}");
    let failed = |error: std::io::Error| format!("`{shown}` could not be started: {error}");
    // One pipe for both streams: cargo names a suite on standard error, and the suite writes to standard output.
    let (output, writer) = std::io::pipe().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut cargo = command.spawn().map_err(failed)?;
    // The command keeps the pipe open, and the output would not end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut step = format!("{prefix}: build");
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        if let Some(suite) = suite_of(&text) {
            report.end_of(&std::mem::replace(&mut step, format!("{prefix}: {suite}")));
        }
        line.clear();
    }
    report.end_of(&step);
    match cargo.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` ended with {status}, in {step}")),
        Err(error) => Err(failed(error)),
    }
}

/// Returns the suite that begins after this line of cargo's.
fn suite_of(line: &str) -> Option<String> {
    if let Some(library) = line.trim().strip_prefix("Doc-tests ") {
        return Some(format!("examples of {library}"));
    }
    let (source, program) = line.trim().strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?;
    // The name of the program ends in a hash.
    let (name, _) = program.rsplit('/').next()?.rsplit_once('-')?;
    Some(if source.starts_with("unittests ") { format!("{name}, unit tests") } else { name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_found_in_the_output_of_cargo() {
        let suites = [
            ("     Running tests/redis/main.rs (target/debug/deps/redis-99a48a7a36c6b9ae)\n", Some("redis")),
            (
                "     Running unittests src/lib.rs (target/debug/deps/trypema_server-747e8a157c88f342)\n",
                Some("trypema_server, unit tests"),
            ),
            ("   Doc-tests trypema\n", Some("examples of trypema")),
            ("running 12 tests\n", None),
            ("test redis::Running ... ok\n", None),
            ("   Compiling trypema v0.1.0 (/src/crates/trypema)\n", None),
            ("    Finished `test` profile [optimized] target(s) in 0.22s\n", None),
        ];
        for (line, suite) in suites {
            assert_eq!(suite_of(line).as_deref(), suite, "{line}");
        }
    }

    #[test]
    fn a_failure_names_its_suite() {
        let script = "echo ' Running tests/a.rs (target/a-1)' >&2; echo 'test x ... FAILED'; exit 101";
        let mut report = Report::new();
        let error = run(Command::new("sh").args(["-c", script]), "all", &mut report).unwrap_err();
        assert!(error.ends_with("in all: a"), "{error}");
        assert!(report.table().contains("| total | 0 |"), "{}", report.table());
    }
}
