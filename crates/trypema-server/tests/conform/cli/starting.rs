//! The output at the start, and while the server runs.

use std::net::SocketAddr;

use serde_json::{Value, json};
use trypema_testkit::program::Program;

use crate::client::Client;
use crate::harness::{Service, trypema};

/// The first `curl` line contains the server's address. Its request is denied after enough repetitions.
#[test]
fn with_nothing_configured_it_says_what_to_try() {
    let mut service = Service::start(&[]);
    let line = service.program.line("curl -i").unwrap();
    let url = line.split('\'').nth(1).unwrap();
    let body = line.split('\'').nth(3).unwrap();
    let path = url.strip_prefix(&format!("http://{}", service.address)).unwrap();
    let mut client = service.client();
    let statuses: Vec<u16> = (0..6).map(|_| client.send("POST", path, &[], body).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let denied = client.send("POST", path, &[], body);
    assert!(denied.header("retry-after").is_some() && denied.header("ratelimit").is_some(), "{denied:?}");
    let log = service.program.log();
    for line in log.lines().filter(|line| line.trim_start().starts_with("curl")) {
        let listener = if line.contains("/metrics") { service.admin_address() } else { service.address };
        assert!(line.contains(&format!("http://{listener}/")), "{line}");
    }
    assert!(log.contains("--rules rules.yaml"), "{log}");
}

/// With JSON logs, every line is an object, and one of them contains the address.
#[test]
fn logs_can_be_read_by_programs() {
    let mut program = Program::start(|_| {
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug"]);
        command
    })
    .unwrap();
    let started: Value = serde_json::from_str(&program.line("listening").unwrap()).unwrap();
    let address: SocketAddr = started["address"].as_str().unwrap().parse().unwrap();
    let mut client = Client::connect(address);
    let question = json!({"attributes": {"user": "ann"}, "cost": 6}).to_string();
    assert_eq!(client.send("POST", "/v1/check", &[], &question).json()["allowed"], json!(false));
    program.line("denied").unwrap();
    program.signal("TERM").unwrap();
    assert!(program.end().unwrap().success());
    let log = program.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let denied = lines.iter().find(|line| line["message"] == json!("requests: request denied")).unwrap();
    assert_eq!((&denied["rule"], &denied["key"]), (&json!("per-user"), &json!("per-user|user=ann")));
    assert!(lines.iter().all(|line| line["level"].is_string() && line["timestamp"].is_string()), "{log}");
}
