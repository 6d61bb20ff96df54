//! The log, as operators and programs read it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use trypema_testkit::program::Program;

use crate::client::Client;
use crate::harness::{Service, trypema};

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1, window: 365d}}}
  - {id: per-tenant, scope: tenant, action: throttle, max_delay: 1h, strategy: {token_bucket: {limit: 1, window: 1m}}}
block: {user: [eve]}
";

/// A server that logs JSON.
struct Logging {
    program: Program,
    client: Client,
}

impl Logging {
    fn start(flags: &[&str]) -> Self {
        let mut program = Program::start(|directory| {
            let mut command = trypema();
            fs::write(directory.join("rules.yaml"), RULES).unwrap();
            command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--rules"]);
            command.arg(directory.join("rules.yaml")).args(flags);
            command
        })
        .unwrap();
        let started: Value = serde_json::from_str(&program.line("server: listening").unwrap()).unwrap();
        let client = Client::connect(started["address"].as_str().unwrap().parse().unwrap());
        Self { program, client }
    }

    fn check(&mut self, attributes: &Value) -> Value {
        let question = json!({"attributes": attributes}).to_string();
        self.client.send("POST", "/v1/check", &[], &question).json()
    }

    /// Stops the server; all lines of its log.
    fn lines(mut self) -> Vec<Value> {
        self.program.signal("TERM").unwrap();
        assert!(self.program.end().unwrap().success(), "{}", self.program.log());
        let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        self.program.log().lines().map(parsed).collect()
    }
}

/// The lines with this text, of those at level `info`.
fn with<'l>(lines: &'l [Value], text: &str) -> Vec<&'l Value> {
    let has_text =
        |line: &&Value| line["message"].as_str().unwrap().contains(text) && line["level"] == "INFO";
    lines.iter().filter(has_text).collect()
}

#[test]
fn the_start_is_logged_with_what_is_in_force() {
    let lines = Logging::start(&[]).lines();
    let started = with(&lines, "server: listening")[0];
    assert_eq!(started["version"], env!("CARGO_PKG_VERSION"), "{started}");
    assert_eq!((&started["provider"], &started["rules"]), (&json!("memory"), &json!(2)), "{started}");
    assert_eq!(
        (&started["rules_from"], started.get("on_store_failure")),
        (&json!("file"), None),
        "{started}"
    );

    let flags = ["--redis-url", "redis://127.0.0.1:1", "--on-store-failure", "deny"];
    let lines = Logging::start(&flags).lines();
    let started = with(&lines, "server: listening")[0];
    assert_eq!((&started["provider"], &started["on_store_failure"]), (&json!("redis"), &json!("deny")));

    let mut pretty = Service::with_rules(RULES, &flags);
    let line = pretty.program.line("server: listening").unwrap();
    for part in [env!("CARGO_PKG_VERSION"), "provider=\"redis\"", "on_store_failure=\"deny\"", "rules=2"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn the_signal_that_stops_the_server_is_named() {
    for signal in ["TERM", "INT"] {
        let mut service = Service::start(&["--shutdown-deadline", "1500ms"]);
        service.program.signal(signal).unwrap();
        service.program.end().unwrap();
        let log = service.program.log();
        let line = log.lines().find(|line| line.contains("stopping")).unwrap();
        let reason = format!("server: received SIG{signal}; stopping");
        assert!(line.contains(&reason) && line.contains("1s500ms (shutdown_deadline)"), "{log}");
    }
}

#[test]
fn a_reload_is_logged_with_its_changes() {
    let mut service = Service::with_rules(RULES, &[]);
    let rules = RULES.replace("limit: 1", "limit: 2").replace("id: per-tenant", "id: tenant");
    fs::write(service.rules_file(), rules.replace("eve", "mallory")).unwrap();
    service.program.signal("HUP").unwrap();
    service.program.line("server: received SIGHUP; reloading rules, tokens and certificates").unwrap();
    let line = service.program.line("rules: reloaded ").unwrap();
    let changes = "added tenant; changed per-user; removed per-tenant; lists changed";
    assert!(line.contains(changes) && line.contains("rules.yaml"), "{line}");
    service.program.signal("HUP").unwrap();
    service.program.line("nothing changed").unwrap();
}

#[test]
fn denials_are_logged_on_request() {
    for (flags, logged) in [(&[][..], 0), (&["--log-denials", "off"], 0), (&["--log-denials", "all"], 30)] {
        let mut logging = Logging::start(flags);
        (0..31).for_each(|_| drop(logging.check(&json!({"user": "ann\u{1b}"}))));
        let lines = logging.lines();
        let denied = with(&lines, "requests: request denied");
        assert_eq!(denied.len(), logged, "{flags:?}");
        for line in denied {
            assert_eq!(line["rule"], "per-user", "{line}");
            assert_eq!(line["key"], "per-user|user=ann~1b", "{line}");
            assert!(line["retry_after_ms"].as_u64().unwrap() > 0, "{line}");
        }
    }
}

/// Each denial is logged or counted, and there are no more than ten lines a second.
#[test]
fn sampled_denials_are_bounded_and_the_rest_is_counted() {
    const DENIED: usize = 400;
    let mut logging = Logging::start(&["--log-denials", "sampled"]);
    (0..=DENIED).for_each(|_| drop(logging.check(&json!({"user": "ann"}))));
    let lines = logging.lines();
    let (denied, summaries) =
        (with(&lines, "requests: request denied"), with(&lines, "more denials not logged"));
    let left_out: u64 = summaries.iter().map(|line| line["left_out"].as_u64().unwrap()).sum();
    assert_eq!(denied.len() + left_out as usize, DENIED);
    assert!(!denied.is_empty() && denied.len() <= 10 * (summaries.len() + 1), "{} lines", denied.len());
    assert!(summaries[0]["message"].as_str().unwrap().contains("log_denials=sampled logs 10 a second"));
}

#[test]
fn a_throttled_request_and_a_look_are_not_logged_as_denied() {
    let mut logging = Logging::start(&["--log-denials", "all", "--log-level", "debug"]);
    let asked = [(); 2].map(|()| logging.check(&json!({"tenant": "acme"}))["outcome"].clone());
    assert_eq!(asked, [json!("allowed"), json!("throttled")]);
    let peek = json!({"attributes": {"user": "ann"}, "cost": 2, "mode": "peek"}).to_string();
    assert_eq!(logging.client.send("POST", "/v1/check", &[], &peek).json()["outcome"], json!("denied"));
    logging.check(&json!({"user": "eve"}));
    let lines = logging.lines();
    let denied = with(&lines, "denied");
    assert_eq!(denied.len(), 1, "{denied:?}");
    assert_eq!((&denied[0]["listed_by"], denied[0].get("rule")), (&json!("user"), None), "{denied:?}");
    assert_eq!(denied[0]["listed_entry"], "eve", "{denied:?}");
    let at_debug = |text: &str| lines.iter().any(|line| line["message"] == text && line["level"] == "DEBUG");
    assert!(at_debug("requests: request throttled: the client should wait"), "{lines:?}");
    assert!(at_debug("requests: request denied"), "a peek: {lines:?}");
}

/// Every line is the server's own, names its component, and is free of Rust's notation.
#[test]
fn only_the_server_logs() {
    let flags = ["--redis-url", "redis://127.0.0.1:1", "--log-level", "trace"];
    let mut logging = Logging::start(&flags);
    logging.check(&json!({"user": "ann"}));
    logging.program.signal("HUP").unwrap();
    logging.program.line("rules: reloaded").unwrap();
    let lines = logging.lines();
    for line in &lines {
        assert!(line["target"].as_str().unwrap().starts_with("trypema"), "{line}");
        let message = line["message"].as_str().unwrap();
        let (component, _) = message.split_once(": ").unwrap_or_else(|| panic!("{line}"));
        assert!(component.chars().all(|c| c.is_ascii_lowercase()), "{line}");
        for notation in ["Some(", "Ok(", "Err(", "{ "] {
            assert!(!message.contains(notation), "{line}");
        }
    }
}

#[test]
fn a_value_that_log_denials_does_not_know_is_refused() {
    let output = trypema().args(["serve", "--log-denials", "some"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("off, sampled, all"), "{said}");
}

#[test]
fn a_failed_start_is_logged_as_json() {
    for flags in [&["--provider", "redis"][..], &["--rules", "/nowhere/rules.yaml"]] {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--log-format", "json"];
        let output = trypema().args(serve).args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let line: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(line["level"], "ERROR", "{line}");
        assert!(line["message"].as_str().unwrap().starts_with("server: "), "{line}");
    }
}

/// Nothing else tells an operator of these mistakes.
#[test]
fn a_start_warns_of_open_listeners_and_readable_secrets() {
    let log = |listen: &str, mode: u32| {
        let mut service = Service::of(|directory| {
            let file = directory.join("tokens");
            fs::write(&file, "a-caller-token-of-the-test\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let mut command = trypema();
            command.args(["serve", "--listen", listen]);
            if mode > 0 {
                command.arg("--caller-token-file").arg(file);
            }
            command
        });
        service.stop();
        service.program.log()
    };
    let (open, readable) = ("can be reached from other machines", "every user can read");
    let warns = |log: &str| [open, readable].map(|text| log.contains(text));
    assert_eq!(warns(&log("0.0.0.0:0", 0)), [true, false]);
    assert_eq!(warns(&log("127.0.0.1:0", 0)), [false, false]);
    assert_eq!(warns(&log("0.0.0.0:0", 0o600)), [false, false]);
    assert_eq!(warns(&log("127.0.0.1:0", 0o640)), [false, false]);
    let log = log("127.0.0.1:0", 0o644);
    assert_eq!(warns(&log), [false, true]);
    assert!(log.contains("tokens (caller_token_file, mode 644)"), "{log}");
}
