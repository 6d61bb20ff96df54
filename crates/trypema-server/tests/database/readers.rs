//! Readers never delay a rule change: an emergency block takes effect while readers loop dry runs of 16 MiB.

use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use trypema_testkit::redis::wait_until;

use crate::access::guarded;
use crate::client::{Client, Reply};
use crate::faults::timed;
use crate::harness::{Service, trypema};
use crate::scene::{Scene, is_allowed, per_user};

/// The number of connections that loop dry runs.
const READERS: usize = 4;
/// The number of blocks, applied one after another.
const BLOCKS: usize = 5;
/// A block takes effect within a second, and the test machine may be slower. Behind a dry run it would take
/// many seconds.
const IN_FORCE: Duration = Duration::from_secs(2);
const MEBIBYTE: usize = 1024 * 1024;

#[test]
fn a_block_takes_effect_while_readers_loop_dry_runs_of_16_mib() {
    let scene = Scene::start();
    let service = guarded(&scene);
    let rule = per_user("per-user", 1_000_000);
    assert_eq!(
        send(&service, "secret-token-to-edit", ("PUT", "/v1/ruleset"), &json!({"rules": [rule]})).status,
        200
    );
    let set = large_set();
    assert!(set.len() > 15 * MEBIBYTE && set.len() <= 16 * MEBIBYTE, "{} bytes", set.len());
    let (is_over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _end = End { service: &service, is_over: &is_over };
        for _ in 0..READERS {
            scope.spawn(|| loop_dry_runs(&service, &set, &is_over, &sent));
        }
        wait_until("a dry run", || sent.load(Ordering::Relaxed) >= 1).unwrap();
        let times: Vec<Duration> = (0..BLOCKS).map(|number| block(&service, number)).collect();
        println!("{BLOCKS} blocks took effect within {times:?}; dry runs that were sent: {sent:?}");
        assert!(times.iter().all(|time| *time <= IN_FORCE), "{times:?}");
    });
    let log = service.program.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// Rules in a file: readers cannot dry-run changes, but they can list thousands of rules.
#[test]
fn a_rules_file_is_reloaded_while_readers_list_thousands_of_rules() {
    let rules = |blocked: &str| {
        let rules: Vec<Value> = (0..20_000).map(|number| per_user(&format!("rule-{number}"), 7)).collect();
        // JSON is valid YAML.
        json!({"rules": rules, "block": {"user": [blocked]}}).to_string()
    };
    let service = Service::of(|directory| {
        let [file, readers] = ["rules.yaml", "readers"].map(|name| directory.join(name));
        fs::write(&file, rules("nobody")).unwrap();
        fs::write(&readers, READER_TOKEN).unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0", "--rules"]).arg(file);
        command.arg("--reader-token-file").arg(readers);
        command
    });
    let (is_over, listed) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _end = End { service: &service, is_over: &is_over };
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut client = service.admin_client();
                let token = format!("authorization: Bearer {READER_TOKEN}");
                let list = format!("GET /v1/rules HTTP/1.1\r\nhost: localhost\r\n{token}\r\n\r\n");
                while client.write(list.as_bytes()).is_ok() && client.read().is_some() {
                    listed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("listings", || listed.load(Ordering::Relaxed) >= READERS).unwrap();
        let (_, time) = timed(|| {
            fs::write(service.rules_file(), rules("joe")).unwrap();
            service.program.signal("HUP").unwrap();
            wait_until("joe to be blocked", || !is_allowed(&service, "joe")).unwrap();
        });
        println!("a file of 20,000 rules took effect within {time:?}; listings: {listed:?}");
        assert!(time <= RELOADED, "{time:?}");
    });
}

const READER_TOKEN: &str = "secret-token-to-look";
/// Reading and compiling 20,000 rules takes most of this time, with or without readers.
const RELOADED: Duration = Duration::from_secs(6);

/// Stops the readers and the server when dropped, whether the test passes or fails. Does not wait for the
/// last responses.
struct End<'s> {
    service: &'s Service,
    is_over: &'s AtomicBool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.service.program.signal("KILL").unwrap();
    }
}

/// Blocks another user and returns the time until a check is denied.
fn block(service: &Service, number: usize) -> Duration {
    let user = format!("joe-{number}");
    assert!(is_allowed(service, &user));
    let (_, time) = timed(|| {
        let path = format!("/v1/lists/block/user/{user}");
        let reply = send(service, "secret-token-to-edit", ("PUT", &path), &Value::Null);
        assert_eq!(reply.status, 200, "{reply:?}");
        wait_until("the block to take effect", || !is_allowed(service, &user)).unwrap();
    });
    time
}

/// Sends dry runs of a rule set until `is_over`.
fn loop_dry_runs(service: &Service, set: &str, is_over: &AtomicBool, sent: &AtomicUsize) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok(stream) = TcpStream::connect(service.admin_address()) else { return };
        let mut client = Client::from(stream);
        let (path, token) = ("/v1/ruleset?dry_run=true", format!("Bearer {READER_TOKEN}"));
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\ncontent-length: {}\r\n\r\n",
            set.len()
        );
        // Replace a connection that the server has closed meanwhile.
        if client.write(head.as_bytes()).and_then(|()| client.write(set.as_bytes())).is_err() {
            continue;
        }
        sent.fetch_add(1, Ordering::Relaxed);
        // A dry run that has waited too long, or for which there is no memory, is refused or its connection
        // closed.
        let status = client.read().map(|reply| reply.status);
        assert!(matches!(status, Some(200 | 503) | None), "{status:?}");
    }
}

fn send(service: &Service, token: &str, (method, path): (&str, &str), body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let proof = format!("Bearer {token}");
    service.client().send(method, path, &[("if-match", "*"), ("authorization", &proof)], &body)
}

/// Returns nearly 16 MiB of rules, in JSON.
fn large_set() -> String {
    let rule = |number: usize| {
        let mut rule = per_user(&format!("rule-{number:06}"), 7);
        rule["name"] = json!("n".repeat(250));
        rule.to_string()
    };
    let count = (16 * MEBIBYTE - 64) / (rule(0).len() + 1);
    let rules: Vec<String> = (0..count).map(rule).collect();
    format!("{{\"rules\":[{}]}}", rules.join(","))
}
