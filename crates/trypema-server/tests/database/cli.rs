//! `trypema rules` and `trypema keys` with rules in PostgreSQL, as people and scripts use them.

#[path = "cli/changes.rs"]
mod changes;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/locks.rs"]
mod locks;
#[path = "cli/tables.rs"]
mod tables;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::access::guarded;
use crate::harness::{Service, trypema};
use crate::scene::{Scene, done, is_allowed, per_user};

/// The output and the exit code of a command.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn ran(arguments: &[&str]) -> Ran {
    ran_as(trypema().args(arguments))
}

fn ran_as(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Runs a command against a server, as the same user, so that it finds the generated token.
fn at(service: &Service, arguments: &[&str]) -> Ran {
    let server = format!("http://{}", service.admin_address());
    let mut command = trypema();
    command.env("XDG_RUNTIME_DIR", service.program.directory());
    ran_as(command.args(arguments).args(["--server", &server]))
}

/// Runs a command against a server, which must succeed, and returns its output.
fn told(service: &Service, arguments: &[&str]) -> String {
    let ran = at(service, arguments);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{arguments:?}: {ran:?}");
    ran.out
}

/// Writes a file into the server's directory and returns its path.
fn file(service: &Service, name: &str, text: &str) -> PathBuf {
    let path = service.program.directory().join(name);
    fs::write(&path, text).unwrap();
    path
}

const RULES: &str = "
rules:
  - id: per-user
    scope: user
    strategy: {fixed_window: {limit: 2, window: 300d}}
  - id: next
    scope: user
    candidate_for: per-user
    strategy: {fixed_window: {limit: 1, window: 300d}}
overrides:
  - {rule: per-user, key: {user: bob}, verdict: block}
allow:
  ip: [10.0.0.0/8]
";

#[test]
fn a_file_is_applied_once() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let path = file(&service, "new.yaml", RULES);
    let path = path.to_str().unwrap();
    let shown = told(&service, &["rules", "apply", path, "--dry-run"]);
    for line in [
        "+ rule per-user\n",
        "    strategy.fixed_window.limit: 2\n",
        "+ rule next\n",
        "+ override per-user",
        "+ list allow ip 10.0.0.0/8\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(shown.ends_with("4 changes to revision 0; nothing was changed\n"), "{shown}");
    assert_eq!(service.get("/v1/ruleset").header("etag"), Some("\"0\""));

    let applied = told(&service, &["rules", "apply", path, "--yes"]);
    assert!(applied.ends_with("4 changes, revision 1\n"), "{applied}");
    let again = told(&service, &["rules", "apply", path, "--yes"]);
    assert_eq!(again, "no changes: revision 1 already matches\n");
    assert_eq!([(); 3].map(|()| is_allowed(&service, "ann")), [true, true, false]);

    let changed = file(
        &service,
        "changed.yaml",
        &RULES.replace("limit: 2", "limit: 3").replace("allow:\n  ip: [10.0.0.0/8]\n", ""),
    );
    let shown = told(&service, &["rules", "apply", changed.to_str().unwrap(), "--yes"]);
    let expected = "~ rule per-user\n    strategy.fixed_window.limit: 2 -> 3\n- list allow ip 10.0.0.0/8\n2 changes, revision 2\n";
    assert_eq!(shown, expected);
    assert!(is_allowed(&service, "ann"));
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_line() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let wrong =
        file(&service, "wrong.yaml", &RULES.replace("limit: 2", "limit: 0").replace("user: bob", "usr: bob"));
    for arguments in [&["rules", "apply"][..], &["rules", "apply", "--dry-run"]] {
        let refused = at(&service, &[arguments, &[wrong.to_str().unwrap()]].concat());
        assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
        assert!(refused.err.contains("wrong.yaml:5: ") && refused.err.contains("per-user"), "{refused:?}");
    }
    let none = at(&service, &["rules", "apply", "/nowhere/rules.yaml"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("/nowhere/rules.yaml"), "{none:?}");
    let unknown = at(&service, &["rules", "revert", "7"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("404") && unknown.err.contains("there is no revision 7"), "{unknown:?}");
    assert_eq!(service.get("/v1/ruleset").header("etag"), Some("\"0\""));
}

/// If another client changes the rules after they were shown, the command does not overwrite that change.
#[test]
fn only_what_was_shown_is_changed() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let path = file(&service, "new.yaml", RULES);
    let other = per_user("other", 1);
    let before_the_second = || {
        done(&service, "POST", "/v1/rules", &other);
    };
    let refused = thread::scope(|scope| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        scope.spawn(|| {
            let listener = listener;
            pass_on(&listener.accept().unwrap().0, service.admin_address());
            let second = listener.accept().unwrap().0;
            before_the_second();
            pass_on(&second, service.admin_address());
        });
        let token = service.admin.as_ref().unwrap().token.clone().unwrap();
        let server = format!("http://{address}");
        ran(&[
            "rules",
            "apply",
            "--yes",
            path.to_str().unwrap(),
            "--admin-token",
            &token,
            "--server",
            &server,
        ])
    });
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("409") && refused.err.contains("changed meanwhile"), "{refused:?}");
    let stored = done(&service, "GET", "/v1/ruleset", &Value::Null);
    assert_eq!((&stored["rules"][0]["id"], stored["rules"].as_array().unwrap().len()), (&json!("other"), 1));
}

/// Forwards bytes between a client and a server until the client closes the connection.
fn pass_on(client: &TcpStream, service: SocketAddr) {
    let service = TcpStream::connect(service).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| io::copy(&mut &service, &mut &*client));
        let _ = io::copy(&mut &*client, &mut &service);
        let _ = service.shutdown(std::net::Shutdown::Both);
    });
}

#[test]
fn what_is_exported_can_be_applied_again() {
    let scene = Scene::start();
    let service = guarded(&scene);
    let with =
        |token: &str, arguments: &[&str]| at(&service, &[arguments, &["--admin-token", token]].concat());
    let path = file(&service, "new.yaml", RULES);
    let denied = with("secret-token-to-look", &["rules", "apply", "--yes", path.to_str().unwrap()]);
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert!(denied.err.contains("403"), "{denied:?}");
    let applied = with("secret-token-to-edit", &["rules", "apply", "--yes", path.to_str().unwrap()]);
    assert_eq!(applied.code, Some(0), "{applied:?}");

    let exported = with("secret-token-to-look", &["rules", "export"]);
    let exported = file(&service, "exported.yaml", &exported.out);
    let exported = exported.to_str().unwrap();
    let valid = ran(&["rules", "validate", exported]);
    assert_eq!(valid.code, Some(0), "{valid:?}");
    let again = with("secret-token-to-deploy", &["rules", "apply", exported]);
    assert_eq!(again.out, "no changes: revision 1 already matches\n", "{again:?}");

    let unknown = at(&service, &["rules", "export"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(1), ""), "{unknown:?}");
    assert!(unknown.err.contains("401"), "{unknown:?}");
}

#[test]
fn history_is_told_and_gone_back_in() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    for (name, text) in [("1.yaml", RULES.to_owned()), ("2.yaml", RULES.replace("limit: 2", "limit: 9"))] {
        let path = file(&service, name, &text);
        told(&service, &["rules", "apply", path.to_str().unwrap(), "--yes"]);
    }
    let first = told(&service, &["rules", "export", "--revision", "1"]);
    let history = told(&service, &["rules", "history", "--limit", "1"]);
    assert!(history.starts_with("revision 2 by admin at 2"), "{history}");
    assert!(history.ends_with("~ rule per-user\n    strategy.fixed_window.limit: 2 -> 9\n"), "{history}");
    let about = told(&service, &["rules", "history", "--about", "next"]);
    assert_eq!(about.lines().filter(|line| line.starts_with("revision ")).count(), 1, "{about}");
    assert_eq!(told(&service, &["rules", "history", "--about", "no&body=here#"]), "");

    let shown = told(&service, &["rules", "revert", "1", "--dry-run"]);
    let change = "~ rule per-user\n    strategy.fixed_window.limit: 9 -> 2\n";
    assert_eq!(shown, format!("{change}1 change to revision 2; nothing was changed\n"));
    assert_eq!(told(&service, &["rules", "revert", "1", "--yes"]), format!("{change}1 change, revision 3\n"));
    assert_eq!(told(&service, &["rules", "export"]), first);
    assert_eq!(told(&service, &["rules", "revert", "1"]), "no changes: revision 3 already matches\n");
}

#[test]
fn candidates_and_keys_are_told() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    assert_eq!(told(&service, &["rules", "candidates"]), "there are no candidates\n");
    let path = file(&service, "new.yaml", RULES);
    told(&service, &["rules", "apply", path.to_str().unwrap(), "--yes"]);
    assert_eq!([(); 3].map(|()| is_allowed(&service, "ann")), [true, true, false]);
    let report = told(&service, &["rules", "candidates"]);
    assert!(report.starts_with("next for per-user, share 1"), "{report}");
    assert!(report.contains("only the candidate would have denied: 1\n"), "{report}");
    let promoted = "~ rule per-user\n    strategy.fixed_window.limit: 2 -> 1\n";
    let shown = told(&service, &["rules", "promote", "next", "--dry-run"]);
    assert!(shown.contains("- rule next\n") && shown.contains(promoted), "{shown}");
    assert!(shown.ends_with("2 changes to revision 1; nothing was changed\n"), "{shown}");

    let key = |verb: &str| told(&service, &["keys", verb, "per-user|user=ann"]);
    let shown: Value = serde_json::from_str(&key("show")).unwrap();
    assert_eq!((&shown["limit"], &shown["remaining"]), (&json!(2), &json!(0)));
    key("reset");
    assert!(is_allowed(&service, "ann"));
    let shown = key("block");
    assert!(shown.starts_with("+ override per-user user=\"ann\"\n"), "{shown}");
    assert!(
        shown.contains("    verdict: \"block\"\n") && shown.ends_with("1 change, revision 2\n"),
        "{shown}"
    );
    assert_eq!(key("block"), "no changes: revision 2 already matches\n");
    assert!(!is_allowed(&service, "ann"));
    assert_eq!(
        key("allow"),
        "~ override per-user user=\"ann\"\n    verdict: \"block\" -> \"allow\"\n1 change, revision 3\n"
    );
    assert_eq!([(); 3].map(|()| is_allowed(&service, "ann")), [true; 3]);
    assert_eq!(key("unblock"), "- override per-user user=\"ann\"\n1 change, revision 4\n");
    assert_eq!([(); 2].map(|()| is_allowed(&service, "ann")), [true, false]);
    let none = at(&service, &["keys", "unblock", "per-user|user=ann"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("this key has no override"), "{none:?}");
    let unknown = at(&service, &["keys", "block", "nobody"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
}
