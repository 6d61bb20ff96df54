//! The PostgreSQL that other tests rely on does what it is asked.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

#[path = "postgres_servers/proxy.rs"]
mod proxy;
#[path = "postgres_servers/session.rs"]
mod session;
#[path = "postgres_servers/traces.rs"]
mod traces;

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use session::{Session, ask};
use traces::Traces;
use trypema_testkit::postgres::Server;
use trypema_testkit::redis::wait_until;

/// Set in the child process that a test kills.
const VICTIM: &str = "TRYPEMA_VICTIM_REPORTS_TO";
/// Time enough for a reply on loopback, if there were one.
const SILENCE: Duration = Duration::from_millis(300);

#[test]
fn it_starts_and_answers_its_role_which_is_no_superuser() {
    let server = Server::start().unwrap();
    let version: u32 = server.sql("SHOW server_version_num").unwrap().parse().unwrap();
    assert!(version >= 140_000, "{version}");
    assert_eq!(server.url(), format!("postgres://trypema:open-sesame@127.0.0.1:{}/trypema", server.port()));
    let who = "SELECT current_user, current_database(), usesuper FROM pg_user WHERE usename = current_user";
    assert_eq!(ask(&server.url(), who).unwrap(), "trypema|trypema|f");
    ask(&server.url(), "CREATE TABLE made_by_role (number int)").unwrap();
    assert_eq!(server.sql("SELECT usesuper FROM pg_user WHERE usename = current_user").unwrap(), "t");
    assert!(server.log().contains("ready to accept connections"), "{}", server.log());
}

#[test]
fn a_script_gives_its_rows_or_what_is_wrong_with_it() {
    let server = Server::start().unwrap();
    let rows = server
        .sql("CREATE TABLE kept (a int, b text);\nINSERT INTO kept VALUES (1, 'x'), (2, NULL);\nTABLE kept");
    assert_eq!(rows.unwrap(), "1|x\n2|");
    let error =
        server.sql("DELETE FROM kept;\nSELECT no_such_column;\nDROP TABLE kept").unwrap_err().to_string();
    assert!(error.contains("column \"no_such_column\" does not exist"), "{error}");
    assert_eq!(server.sql("SELECT count(*) FROM kept").unwrap(), "0", "it ends at the first failure");

    // More than fits between two processes at once, both ways.
    let long = format!("SELECT '{}' FROM generate_series(1, 3);", "x".repeat(100_000)).repeat(10);
    assert_eq!(server.sql(&long).unwrap().len(), 30 * 100_001 - 1);
}

#[test]
fn what_is_committed_outlives_a_restart_on_the_same_port() {
    let server = Server::start().unwrap();
    let address = server.addr();
    ask(&server.url(), "CREATE TABLE kept (number int)").unwrap();
    for number in 0..3 {
        ask(&server.url(), &format!("INSERT INTO kept VALUES ({number})")).unwrap();
        server.restart().unwrap();
        assert_eq!(server.addr(), address);
        assert_eq!(ask(&server.url(), "SELECT count(*) FROM kept").unwrap(), (number + 1).to_string());
    }
}

#[test]
fn a_killed_server_leaves_no_process_no_port_and_no_shared_memory() {
    let server = Server::start().unwrap();
    let mut session = Session::open(&server.url());
    assert_eq!(session.ask("SELECT 1").unwrap(), "1");
    let left = Traces::of(&server);
    assert!(left.processes().len() > 4, "{left:?}: the postmaster, its helpers and a session");
    assert!(left.has_shared_memory(), "{left:?}");
    server.kill_9().unwrap();
    assert_eq!(left.processes(), Vec::<u32>::new());
    assert!(!left.has_shared_memory(), "{left:?}");
    assert_eq!(TcpStream::connect(server.addr()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(session.ask("SELECT 1").is_none(), "the session is gone too");

    for not_running in [server.kill_9(), server.stop(), server.cont(), server.sql("SELECT 1").map(drop)] {
        assert!(not_running.unwrap_err().to_string().contains("not running"));
    }
    server.restart().unwrap();
    assert_eq!(ask(&server.url(), "SELECT 1").unwrap(), "1");
}

#[test]
fn a_failed_restart_shows_the_log_and_can_be_repeated() {
    let server = Server::start().unwrap();
    server.kill_9().unwrap();
    let stranger = TcpListener::bind(server.addr()).unwrap();
    let error = server.restart().unwrap_err().to_string();
    assert!(error.contains("Address already in use"), "{error}");
    drop(stranger);
    server.restart().unwrap();
    assert_eq!(server.sql("SELECT 1").unwrap(), "1");
}

#[test]
fn a_dropped_server_leaves_nothing_even_when_stopped() {
    let server = Server::start().unwrap();
    let mut session = Session::open(&server.url());
    assert_eq!(session.ask("SELECT 1").unwrap(), "1");
    let left = Traces::of(&server);
    server.stop().unwrap();
    assert!(left.has_directory());
    drop(server);
    assert_eq!(left.processes(), Vec::<u32>::new());
    assert!(!left.has_shared_memory() && !left.has_directory(), "{left:?}");
}

#[test]
fn a_stopped_server_silences_open_sessions_and_goes_on() {
    let server = Server::start().unwrap();
    let mut session = Session::open(&server.url());
    assert_eq!(session.ask("SELECT 1").unwrap(), "1");
    server.stop().unwrap();
    session.send("SELECT 2");
    assert_eq!(session.answer_within(SILENCE), None);
    assert!(server.sql("SELECT 1").unwrap_err().to_string().contains("stopped"));
    // The system accepts, and that is all.
    let mut meanwhile = Session::open(&server.url());
    meanwhile.send("SELECT 3");
    assert_eq!(meanwhile.answer_within(SILENCE), None);
    server.cont().unwrap();
    assert_eq!(session.answer().unwrap(), "2");
    assert_eq!(meanwhile.answer().unwrap(), "3");
    assert_eq!(server.sql("SELECT 4").unwrap(), "4");
}

#[test]
fn a_rotated_password_is_refused_and_the_new_one_taken() {
    let server = Server::start().unwrap();
    let mut session = Session::open(&server.url());
    assert_eq!(session.ask("SELECT 1").unwrap(), "1");
    let new = "n:e w@/'\\%ü";
    server.set_password(new).unwrap();
    let refused = ask(&server.url(), "SELECT 1").unwrap_err();
    assert!(refused.contains("password authentication failed"), "{refused}");
    assert_eq!(ask(&server.url_with_password(new), "SELECT 1").unwrap(), "1");
    assert_eq!(session.ask("SELECT 2").unwrap(), "2", "open sessions stay");
    let stored = server.sql("SELECT rolpassword FROM pg_authid WHERE rolname = 'trypema'").unwrap();
    assert!(stored.starts_with("SCRAM-SHA-256$"), "{stored}");
}

#[test]
fn disconnected_sessions_are_gone_and_new_ones_let_in() {
    let server = Server::start().unwrap();
    let mut session = Session::open(&server.url());
    assert_eq!(session.ask("SELECT 1").unwrap(), "1");
    server.disconnect_all().unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'trypema'").unwrap(), "0");
    assert!(session.ask("SELECT 2").is_none());
    assert_eq!(ask(&server.url(), "SELECT 3").unwrap(), "3");
}

#[test]
fn two_at_once_do_not_meet() {
    let (one, other) = (Server::start().unwrap(), Server::start().unwrap());
    assert_ne!(one.port(), other.port());
    one.sql("CREATE TABLE mine (number int)").unwrap();
    assert_eq!(other.sql("SELECT to_regclass('mine') IS NULL").unwrap(), "t");
    one.set_password("another").unwrap();
    one.stop().unwrap();
    assert_eq!(ask(&other.url(), "SELECT 1").unwrap(), "1");
    one.kill_9().unwrap();
    assert_eq!(ask(&other.url(), "SELECT 2").unwrap(), "2");
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
fn a_killed_test_process_takes_its_server_along() {
    if let Some(report) = std::env::var_os(VICTIM) {
        return be_killed(Path::new(&report));
    }
    let report = std::env::temp_dir().join(format!("trypema-postgres-victim-{}", std::process::id()));
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "a_killed_test_process_takes_its_server_along"]).env(VICTIM, &report);
    let mut victim = victim.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let reported = || fs::read_to_string(&report).is_ok_and(|text| text.ends_with(".\n"));
    let outcome = wait_until("the victim's server", reported);
    let text = fs::read_to_string(&report).unwrap_or_default();
    let left = outcome.map(|()| Traces::reported(&text));
    victim.kill().unwrap();
    victim.wait().unwrap();
    fs::remove_file(&report).unwrap();
    let left = left.unwrap();
    let is_gone = || left.processes().is_empty() && !left.has_shared_memory() && !left.has_directory();
    wait_until(&format!("{left:?} to be gone"), is_gone).unwrap();
}

fn be_killed(report: &Path) {
    let server = Server::start().unwrap();
    let mut session = Session::open(&server.url());
    assert_eq!(session.ask("SELECT 1").unwrap(), "1");
    let left = Traces::of(&server);
    server.stop().unwrap();
    fs::write(report, left.report()).unwrap();
    std::thread::sleep(Duration::from_secs(60));
    unreachable!("the other process kills this one");
}
