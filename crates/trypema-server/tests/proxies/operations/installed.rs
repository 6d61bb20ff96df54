//! The sample configuration, installed as the unit expects it and started with the unit's command.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use trypema_testkit::program::Program;

use crate::client::Client;
use crate::harness::trypema;
use crate::text_of;

use super::run;
use super::systemd::Unit;

const TOKEN: &str = "a-token-of-the-test";

#[test]
fn it_starts_reloads_and_stops() {
    let mut program = Program::start(|directory| {
        install(directory);
        start(directory)
    })
    .unwrap();
    let line: Value = serde_json::from_str(&program.line("listening").unwrap()).unwrap();
    let mut client = Client::connect(line["address"].as_str().unwrap().parse().unwrap());
    let mut admin = Client::connect(line["admin_address"].as_str().unwrap().parse().unwrap());
    assert_eq!(admin.send("GET", "/v1/rules", &[], "").status, 401, "the credential is in use");
    let token = format!("Bearer {TOKEN}");
    let rules = admin.send("GET", "/v1/rules", &[("authorization", &token)], "");
    assert_eq!(rules.status, 200);
    assert!(rules.body.contains("per-address"), "{rules:?}");
    // The shell has `kill` as a builtin.
    let reload = Unit::read().only("ExecReload").replace("/bin/kill", "kill");
    run(Command::new("sh").args(["-c", &reload]).env("MAINPID", program.id().to_string()));
    program.line("rules: reloaded ").unwrap();
    assert_eq!(client.send("GET", "/readyz", &[], "").status, 200);
    program.signal("TERM").unwrap();
    assert_eq!(program.end().unwrap().code(), Some(0));
}

#[test]
fn the_sample_rules_are_valid_and_do_what_they_say() {
    let rules = crate::deployed("trypema/rules.yaml");
    run(trypema().args(["rules", "validate"]).arg(&rules));
    let service = crate::harness::Service::start(&["--rules", rules.to_str().unwrap()]);
    let login = r#"{"attributes":{"ip":"203.0.113.9","endpoint":"/login","method":"POST"}}"#;
    let allowed = (0..12).map(|_| service.post("/v1/check", login).json()["allowed"] == true);
    assert_eq!(allowed.collect::<Vec<_>>(), [[true; 10].as_slice(), &[false; 2]].concat());
}

/// Copies the files that an operator copies to `/etc/trypema`.
fn install(directory: &Path) {
    for name in ["trypema.yaml", "rules.yaml"] {
        let text = text_of(&format!("trypema/{name}"));
        let here = directory.to_str().unwrap();
        let text = text
            .replace("/etc/trypema", here)
            .replace("127.0.0.1:8080", "127.0.0.1:0")
            .replace("127.0.0.1:8081", "127.0.0.1:0");
        fs::write(directory.join(name), text).unwrap();
    }
    fs::write(directory.join("admin-token"), format!("{TOKEN}\n")).unwrap();
    fs::write(directory.join("hash-secret"), "0123456789abcdef0123456789abcdef\n").unwrap();
}

/// Returns the command and the environment that systemd makes of the unit, without its privileges.
fn start(directory: &Path) -> Command {
    let here = directory.to_str().unwrap();
    let unit = Unit::read();
    let words = unit.only("ExecStart").replace("/etc/trypema", here);
    let words = words.strip_prefix("/usr/local/bin/trypema ").unwrap();
    let mut command = trypema();
    command.env_remove("TRYPEMA_ADMIN_LISTEN").args(words.split(' '));
    for variable in unit.all("Environment") {
        let (name, value) = variable.split_once('=').unwrap();
        command.env(name, value.replace("%d", here));
    }
    command
}
