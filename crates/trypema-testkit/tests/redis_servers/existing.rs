//! A server that runs already is used in place of one of our own, if a variable names it.

use std::process::Command;

use trypema_testkit::redis::Server;

/// Set in a child process, to the address that its tests are to use.
const EXPECTED: &str = "TRYPEMA_EXPECTED_SERVER";

/// This very test, in a process with these variables; it has to pass there.
fn run_with(variables: &[(&str, &str)], server: &Server) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "existing::variables_name_a_server"]).env(EXPECTED, server.url());
    let output =
        child.env_remove("REDIS_URL").env_remove("REDIS_PORT").envs(variables.iter().copied()).output();
    let output = output.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{variables:?}: {printed}");
}

#[test]
fn variables_name_a_server() {
    if let Ok(expected) = std::env::var(EXPECTED) {
        return use_it(&expected);
    }
    let server = Server::start().unwrap();
    let (url, port) = (server.url(), server.port().to_string());
    run_with(&[("REDIS_URL", &url)], &server);
    run_with(&[("REDIS_PORT", &port)], &server);
    run_with(&[("REDIS_URL", &url), ("REDIS_PORT", "1")], &server);
    let keys = server.control().unwrap().command(&["KEYS", "*"]).unwrap();
    assert_eq!(keys.items().len(), 3, "each process has used the server, with a prefix of its own: {keys:?}");
}

fn use_it(expected: &str) {
    let shared = Server::shared().unwrap();
    assert_eq!(shared.url(), expected);
    let key = shared.unique_prefix();
    shared.control().unwrap().command(&["SET", &key, "here", "PX", "60000"]).unwrap();
}
