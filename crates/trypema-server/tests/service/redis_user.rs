//! A Redis user with the permissions that `trypema redis acl` prints.

use std::io::Write;
use std::process::{Command, Stdio};

use trypema_testkit::redis::Server;

use crate::harness::trypema;

/// The password of the user.
pub const PASSWORD: &str = "secret & long";
/// The password in a URL.
pub const ENCODED: &str = "secret%20%26%20long";

/// Prints the command for a user of this name, whose password comes from standard input.
pub fn printed(user: &str, arguments: &[&str]) -> String {
    let mut command = trypema();
    command.args(["redis", "acl", "--user", user, "--password-file", "-"]).args(arguments);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(format!("{PASSWORD}\n").as_bytes()).unwrap();
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success());
    String::from_utf8(ended.stdout).unwrap()
}

/// Sends the printed command as an operator does: through `redis-cli`.
pub fn apply(server: &Server, command: &str) {
    let port = server.port().to_string();
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &port]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = cli.spawn().unwrap();
    running.stdin.take().unwrap().write_all(command.as_bytes()).unwrap();
    let answer = running.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8(answer).unwrap().trim(), "OK", "{command}");
}

/// Returns the address of the server, with the login of the user.
pub fn url(server: &Server) -> String {
    server.url_as("access-limiter", ENCODED)
}

/// Sends a command as an operator.
pub fn command(server: &Server, words: &[&str]) {
    server.control().unwrap().command(words).unwrap();
}

/// Asserts that no user was refused anything.
pub fn assert_nothing_was_refused(server: &Server) {
    let log = server.control().unwrap().command(&["ACL", "LOG"]).unwrap();
    assert!(log.items().is_empty(), "{log:?}");
}
