//! The admin listener and its generated token, as users of the binary see them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use trypema_testkit::program::{FreePort, Program};

use super::Ran;
use crate::folder::Folder;
use crate::harness::{Service, trypema};

/// Starts a server with its admin listener on `port`, and its token file below `session`.
fn serve(session: &Path, port: &FreePort) -> Service {
    let listen = format!("127.0.0.1:{}", port.number());
    Service::of(|_| {
        let mut command = trypema();
        command.env("XDG_RUNTIME_DIR", session);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", &listen]);
        command
    })
}

fn token_in(session: &Path, port: &FreePort) -> String {
    let file = session.join(format!("trypema/admin-token-{}", port.number()));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::read_to_string(file).unwrap().trim().to_owned()
}

/// Runs a client as the user of a session.
fn as_user(session: &Path, arguments: &[&str]) -> Ran {
    let mut command = trypema();
    // The client must not send the token through a proxy.
    command.env("HTTP_PROXY", "http://127.0.0.1:1").env("ALL_PROXY", "http://127.0.0.1:1");
    command.env("XDG_RUNTIME_DIR", session).args(arguments).output().unwrap().into()
}

#[test]
fn a_generated_token_survives_a_restart_and_is_found() {
    let (folder, port) = (Folder::new(), FreePort::any().unwrap());
    let session = folder.path();
    let mut service = serve(session, &port);
    let token = token_in(session, &port);
    let log = service.program.log();
    assert!(log.contains(&format!("trypema/admin-token-{}", port.number())), "{log}");
    for host in ["127.0.0.1", "localhost"] {
        let server = format!("http://{host}:{}", port.number());
        let shown = as_user(session, &["keys", "show", "per-user|user=ann", "--server", &server]);
        assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""), "{shown:?}");
        let explained = as_user(session, &["explain", "user=ann", "--server", &server]);
        assert_eq!(explained.code, Some(0), "{explained:?}");
    }
    assert!(service.stop().success());
    assert!(!service.program.log().contains(&token), "a log keeps what it is given");

    let again = serve(session, &port);
    assert_eq!(token_in(session, &port), token);
    let server = format!("http://127.0.0.1:{}", port.number());
    let elsewhere = Folder::new();
    let unknown = as_user(elsewhere.path(), &["keys", "show", "per-user|user=ann", "--server", &server]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.err.contains("401") && unknown.err.contains("--admin-token-file"), "{}", unknown.err);
    drop(again);
}

#[test]
fn a_service_manager_may_give_the_directory() {
    let folder = Folder::new();
    let service = Service::of(|_| {
        let mut command = trypema();
        command.env("RUNTIME_DIRECTORY", folder.path()).env("XDG_RUNTIME_DIR", "/nowhere");
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command
    });
    let file = folder.path().join(format!("admin-token-{}", service.admin_address().port()));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let server = format!("http://{}", service.admin_address());
    let mut client = trypema();
    client.env("RUNTIME_DIRECTORY", folder.path()).args(["explain", "user=ann", "--server", &server]);
    assert_eq!(client.output().unwrap().status.code(), Some(0));
}

/// `script` gives the server a terminal.
#[test]
fn a_terminal_is_told_the_token() {
    let (folder, port) = (Folder::new(), FreePort::any().unwrap());
    let binary = trypema().get_program().to_owned();
    let line = format!(
        "{} serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:{}",
        binary.to_str().unwrap(),
        port.number()
    );
    let mut program = Program::start(|_| {
        let mut command = Command::new("script");
        command.args(["--quiet", "--flush", "--command", &format!("exec {line}"), "/dev/null"]);
        command.env_remove("RUNTIME_DIRECTORY").env("XDG_RUNTIME_DIR", folder.path());
        command
    })
    .unwrap();
    let printed = program.line("token: ").unwrap();
    assert_eq!(printed.trim(), format!("token: {}", token_in(folder.path(), &port)));
    // Killed, `script` would leave the server behind.
    program.signal("TERM").unwrap();
    program.end().unwrap();
}

/// The default port may be in use on any machine. The test makes sure that it is, or that there is no
/// directory for a token.
#[test]
fn without_a_default_the_service_starts_without_administration() {
    let taken = TcpListener::bind("127.0.0.1:8081");
    let without = |session: &str| {
        Service::of(|_| {
            let mut command = trypema();
            command.env_remove("TRYPEMA_ADMIN_LISTEN").env("XDG_RUNTIME_DIR", session);
            command.args(["serve", "--listen", "127.0.0.1:0"]);
            command
        })
    };
    let folder = Folder::new();
    let service = without(folder.path().to_str().unwrap());
    assert!(service.admin.is_none());
    let log = service.program.log();
    assert!(log.contains("administration and /metrics are off"), "{log}");
    assert!(log.contains("admin_listen: 127.0.0.1:8081: Address already in use"), "{log}");
    assert_eq!(service.post("/v1/check", r#"{"attributes": {"user": "ann"}}"#).status, 200);
    drop(taken);
    for session in ["/nowhere", "/proc", ""] {
        let service = without(session);
        assert!(service.admin.is_none(), "{session}");
        assert!(service.program.log().contains("administration and /metrics are off"), "{session}");
        assert_eq!(service.get("/healthz").status, 200);
    }
}

#[test]
fn administration_can_be_switched_off() {
    let service = Service::start(&["--admin-listen", "off"]);
    assert!(service.admin.is_none() && !service.program.log().contains("WARN"), "{}", service.program.log());
    assert_eq!(service.post("/v1/reserve", r#"{"attributes": {"user": "ann"}}"#).status, 200);
}

/// An explicitly configured address or token that does not work is fatal.
#[test]
fn what_is_explicit_and_fails_is_fatal() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let shared = Folder::new();
    let ours = shared.path().join("trypema");
    fs::create_dir(&ours).unwrap();
    fs::set_permissions(&ours, fs::Permissions::from_mode(0o777)).unwrap();
    let shared = shared.path().to_str().unwrap();
    let free = ["--admin-listen", "127.0.0.1:0"];
    let cases: [(&str, &[&str], i32, &str); 11] = [
        ("", &["--admin-listen", &taken, "--admin-token", "0123456789abcdef"], 1, "admin_listen: 127.0.0.1:"),
        ("", &free, 2, "set RUNTIME_DIRECTORY or XDG_RUNTIME_DIR"),
        ("/nowhere", &free, 2, "/nowhere/trypema: No such file"),
        (shared, &free, 2, "others may write to it"),
        ("", &["--admin-listen", "here"], 2, "ADDRESS:PORT"),
        ("", &["--admin-token-file", "/nowhere/token"], 2, "admin_token: /nowhere/token: No such file"),
        ("", &["--reader-token-file", "/nowhere/token"], 2, "reader_token: /nowhere/token: No such file"),
        ("", &["--admin-token", "fifteen-letters"], 2, "admin_token: a token needs at least 16 characters"),
        ("", &["--reader-token", "short"], 2, "reader_token: a token needs at least 16 characters"),
        ("", &["--caller-token-file", "/nowhere/token"], 2, "caller_token: /nowhere/token: No such file"),
        ("", &["--caller-token", "fifteen-letters"], 2, "caller_token: a token needs at least 16 characters"),
    ];
    for (session, flags, code, told) in cases {
        let mut command = trypema();
        command.env_remove("XDG_RUNTIME_DIR").args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
        if !session.is_empty() {
            command.env("XDG_RUNTIME_DIR", session);
        }
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, Some(code), "{flags:?}: {ran:?}");
        assert!(ran.err.contains(told), "{flags:?}: {}", ran.err);
        assert!(!ran.err.contains("fifteen-letters"), "{}", ran.err);
    }
}

/// Each failed login is logged with its address and the consequence.
#[test]
fn failed_logins_are_logged() {
    let mut service = Service::start(&[]);
    for _ in 0..12 {
        service.admin_client().send("GET", "/v1/rules", &[("authorization", "Bearer guessed-token")], "");
    }
    let line = service.program.line("answering 429").unwrap();
    assert!(line.contains("WARN") && line.contains("127.0.0.1") && line.contains("60 s"), "{line}");
    let log = service.program.log();
    assert_eq!(log.matches("login failed: wrong token").count(), 10, "{log}");
    assert!(!log.contains("guessed-token"), "{log}");
}
