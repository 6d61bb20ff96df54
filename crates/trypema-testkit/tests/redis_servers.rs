//! The servers that other tests rely on do what they are asked, on every program that is supported.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

#[path = "redis_servers/existing.rs"]
mod existing;
#[path = "redis_servers/proxy.rs"]
mod proxy;
#[path = "redis_servers/topologies.rs"]
mod topologies;

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use trypema_testkit::redis::{Binary, Control, Reply, Server, wait_until};

/// Set in the child process that a test kills.
const VICTIM: &str = "TRYPEMA_VICTIM_REPORTS_TO";
/// Time enough for a reply on loopback, if there were one.
const SILENCE: Duration = Duration::from_millis(300);

#[test]
fn every_program_starts_and_says_its_version() {
    for binary in Binary::every().unwrap() {
        let server = Server::builder().binary(binary.clone()).start().unwrap();
        let info = server.info("server").unwrap();
        let (field, expected) = match binary.name() {
            "Redis 6.2" => ("redis_version", "6.2"),
            "Valkey" => ("valkey_version", "8"),
            _ => ("redis_version", "7"),
        };
        let version = info.text(field);
        assert!(version.starts_with(&format!("{expected}.")), "{}: {version}", binary.name());
    }
}

#[test]
fn a_killed_server_is_gone_and_comes_back_empty_on_its_port() {
    let server = Server::start().unwrap();
    server.control().unwrap().command(&["SET", "key", "value"]).unwrap();
    server.kill_9().unwrap();
    let refused = TcpStream::connect(server.addr()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(server.kill_9().is_err(), "it is not running");
    server.restart().unwrap();
    assert_eq!(server.control().unwrap().command(&["GET", "key"]).unwrap(), Reply::Nil);
}

#[test]
fn what_is_appended_outlives_a_kill() {
    let server = Server::builder().set("appendonly", "yes").set("appendfsync", "always").start().unwrap();
    server.control().unwrap().command(&["SET", "key", "value"]).unwrap();
    server.restart().unwrap();
    assert_eq!(server.control().unwrap().command(&["GET", "key"]).unwrap().text(), "value");
}

#[test]
fn a_stopped_server_accepts_and_answers_only_once_it_goes_on() {
    let server = Server::start().unwrap();
    let mut before = server.control().unwrap();
    server.stop().unwrap();
    let mut meanwhile = server.control().unwrap();
    meanwhile.set_timeout(Some(SILENCE)).unwrap();
    let unanswered = meanwhile.command(&["SET", "key", "value"]).unwrap_err().to_string();
    assert!(unanswered.contains("SET"), "{unanswered}");
    server.cont().unwrap();
    let arrived = || before.command(&["GET", "key"]).unwrap().text() == "value";
    wait_until("what was sent meanwhile to be carried out", arrived).unwrap();
}

#[test]
fn settings_passwords_and_users_take_effect() {
    let builder = Server::builder().set("maxmemory", "2mb").password("open-sesame");
    let server = builder.user("limiter on >secret ~* &* +@all -script").start().unwrap();
    let maxmemory = server.control().unwrap().command(&["CONFIG", "GET", "maxmemory"]).unwrap();
    assert_eq!(maxmemory.items()[1].text(), (2 << 20).to_string());

    let stranger = Control::connect(server.addr()).unwrap().raw(&["GET", "key"]).unwrap();
    assert!(stranger.text().starts_with("NOAUTH"), "{stranger:?}");
    let mut limiter = Control::open(&server.url_as("limiter", "secret")).unwrap();
    assert!(limiter.raw(&["SCRIPT", "FLUSH"]).unwrap().text().starts_with("NOPERM"));
    assert_eq!(limiter.command(&["INCR", "key"]).unwrap().integer(), Some(1));
}

#[test]
fn a_failed_start_shows_the_log_and_a_taken_port_is_refused() {
    let error = Server::builder().set("no-such-setting", "1").start().unwrap_err().to_string();
    assert!(error.contains("no-such-setting"), "{error}");

    let server = Server::start().unwrap();
    let error = Server::builder().port(server.port()).start().unwrap_err().to_string();
    assert!(error.contains("taken"), "{error}");
}

#[test]
fn a_monitor_has_seen_all_when_it_finishes() {
    for binary in Binary::every().unwrap() {
        let server = Server::builder().binary(binary).start().unwrap();
        let mut control = server.control().unwrap();
        let monitor = server.monitor().unwrap();
        let key = "a \"key\" \\ \r\n\0ü";
        control.command(&["SET", key, "1"]).unwrap();
        control.command(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", key]).unwrap();
        let seen = monitor.finish().unwrap();
        let commands: Vec<_> = seen.iter().map(|line| line.words[0].to_ascii_lowercase()).collect();
        assert_eq!(commands, [&b"set"[..], b"eval", b"incr"]);
        assert_eq!(seen[0].words[1], key.as_bytes());
        assert_eq!(seen[2].words[1], key.as_bytes());
        assert_eq!(seen.iter().map(|line| line.is_from_script).collect::<Vec<_>>(), [false, false, true]);
    }
}

#[test]
fn a_shared_server_is_there_and_its_prefixes_differ() {
    let shared = Server::shared().unwrap();
    let (first, second) = (shared.unique_prefix(), shared.unique_prefix());
    assert_ne!(first, second);
    let mut control = shared.control().unwrap();
    control.command(&["SET", &first, "1", "PX", "10000"]).unwrap();
    assert_eq!(control.command(&["GET", &first]).unwrap().text(), "1");
    assert_eq!(control.command(&["GET", &second]).unwrap(), Reply::Nil);
}

#[test]
fn a_panic_takes_the_server_along() {
    let panicked = std::thread::spawn(|| {
        let server = Server::start().unwrap();
        std::panic::panic_any(server.addr());
    });
    let address = panicked.join().unwrap_err().downcast::<SocketAddr>().unwrap();
    assert_eq!(TcpStream::connect(*address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// Runs this very test in a process of its own, which is killed while its server is stopped.
#[test]
fn a_killed_test_process_takes_its_servers_along() {
    if let Some(report) = std::env::var_os(VICTIM) {
        return be_killed(Path::new(&report));
    }
    let report = std::env::temp_dir().join(format!("trypema-victim-{}", std::process::id()));
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "a_killed_test_process_takes_its_servers_along"]).env(VICTIM, &report);
    let mut victim = victim.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let reported = || fs::read_to_string(&report).is_ok_and(|text| text.ends_with('\n'));
    let outcome = wait_until("the victim's server", reported);
    victim.kill().unwrap();
    victim.wait().unwrap();
    outcome.unwrap();
    let address = fs::read_to_string(&report).unwrap();
    fs::remove_file(&report).unwrap();
    let is_refused = || TcpStream::connect(address.trim_end()).is_err();
    wait_until("the victim's server to be gone", is_refused).unwrap();
}

fn be_killed(report: &Path) {
    let server = Server::start().unwrap();
    server.stop().unwrap();
    fs::write(report, format!("{}\n", server.addr())).unwrap();
    std::thread::sleep(Duration::from_secs(60));
    unreachable!("the other process kills this one");
}
