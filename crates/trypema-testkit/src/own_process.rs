//! Tests that measure or change something of their whole process.
//!
//! `cargo test` runs the tests of a binary as threads of one process, so its memory, its threads and its log
//! belong to all of them.
#![allow(clippy::panic, reason = "a test that cannot be run has failed")]

use std::env;
use std::process::{Command, Stdio};

/// The variable that names the test in its own process.
const TEST: &str = "TRYPEMA_OWN_PROCESS";

/// Runs `body` in a process in which no other test runs. `test` is the path of the calling test, as the test
/// binary prints it.
///
/// # Panics
///
/// The body has panicked there, or the process could not be started, or no test has this path.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    if env::var_os(TEST).is_some_and(|running| running == test) {
        return body();
    }
    let program = env::current_exe().unwrap_or_else(|error| panic!("no test binary: {error}"));
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env(TEST, test).stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|error| panic!("{test} was not started: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Printed again, so that the output of a failure belongs to the calling test.
    print!("{stdout}");
    eprint!("{stderr}");
    assert!(output.status.success(), "{test} ended with {} in its own process", output.status);
    assert!(stdout.contains("\ntest result: ok. 1 passed"), "there is no test `{test}`");
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn is_there(test: &str) -> bool {
        env::var_os(TEST).is_some_and(|running| running == test)
    }

    #[test]
    fn the_body_runs_there_and_not_here() {
        let test = "own_process::tests::the_body_runs_there_and_not_here";
        let mut has_run_here = false;
        in_own_process(test, || has_run_here = true);
        assert_eq!(has_run_here, is_there(test));
    }

    #[test]
    fn a_failure_there_is_one_here() {
        let test = "own_process::tests::a_failure_there_is_one_here";
        let fail = || in_own_process(test, || panic!("on purpose"));
        if is_there(test) {
            return fail();
        }
        assert!(catch_unwind(fail).is_err());
        let misspelt = || in_own_process("own_process::tests::no_such_test", || ());
        assert!(catch_unwind(misspelt).is_err(), "a test that was renamed must not pass by doing nothing");
    }
}
