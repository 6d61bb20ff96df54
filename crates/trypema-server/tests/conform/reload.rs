//! Rules that change while the server runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use trypema::clock::{Clock, SystemClock};
use trypema_testkit::redis::wait_until;

use crate::harness::{Service, trypema};

fn rules(limit: u64) -> String {
    format!(
        "rules:\n  - {{id: per-user, scope: user, strategy: {{absolute: {{limit: {limit}, window: 24h}}}}}}\n"
    )
}

/// Many times the usual duration of a reload, for a machine that does other work.
const SOON: Duration = Duration::from_secs(20);

/// Text that is certainly invalid, with the error in its second line.
const BROKEN: &str =
    "rules:\n  - {id: per-user, scope: everybody, strategy: {fixed_window: {limit: 1, window: 1s}}}\n";

const OK: &str = "trypema_rules_reloads_total{result=\"ok\"}";
const ERROR: &str = "trypema_rules_reloads_total{result=\"error\"}";

/// Returns ann's limit and remaining units under the only rule.
fn ann(service: &Service) -> (u64, u64) {
    let body = service.get("/v1/keys/per-user%7Cuser=ann").json();
    (body["limit"].as_u64().unwrap(), body["remaining"].as_u64().unwrap())
}

fn spend(service: &Service, cost: u64) -> Value {
    service.post("/v1/check", &json!({"attributes": {"user": "ann"}, "cost": cost}).to_string()).json()
}

fn wait_for_limit(service: &Service, limit: u64) {
    wait_until(&format!("a limit of {limit}"), || ann(service).0 == limit).unwrap();
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

#[test]
fn a_changed_file_is_enforced_and_what_was_spent_stays_spent() {
    let service = Service::with_rules(&rules(10), &[]);
    assert_eq!(spend(&service, 7)["allowed"], json!(true));
    let written = SystemClock.now();
    fs::write(service.rules_file(), rules(8)).unwrap();
    wait_for_limit(&service, 8);
    assert!(SystemClock.now() < written + SOON, "it took longer than {SOON:?}");
    assert_eq!(ann(&service), (8, 1));
    assert_eq!(spend(&service, 2)["allowed"], json!(false));
    fs::write(service.rules_file(), rules(5)).unwrap();
    wait_for_limit(&service, 5);
    assert_eq!((ann(&service), &spend(&service, 1)["allowed"]), ((5, 0), &json!(false)));
    replace(&service.rules_file(), &rules(20));
    wait_for_limit(&service, 20);
    assert_eq!(ann(&service), (20, 13));
    assert_eq!((service.metric(OK), service.metric(ERROR)), (3.0, 0.0));
}

/// An unchanged file is read again after a signal, and only then.
#[test]
fn a_hangup_reads_the_file_at_once() {
    let service = Service::with_rules(&rules(10), &[]);
    for round in 1..=5 {
        service.program.signal("HUP").unwrap();
        wait_until("the rules to be read again", || service.metric(OK) == f64::from(round)).unwrap();
    }
    replace(&service.rules_file(), &rules(11));
    service.program.signal("HUP").unwrap();
    wait_for_limit(&service, 11);
}

#[test]
fn an_invalid_file_changes_nothing_and_is_told() {
    let mut service = Service::with_rules(&rules(10), &[]);
    spend(&service, 4);
    replace(&service.rules_file(), BROKEN);
    wait_until("the file to be refused", || service.metric(ERROR) == 1.0).unwrap();
    let place = format!("{}:2: ", service.rules_file().display());
    assert_eq!(ann(&service), (10, 6), "the old rules are in force");
    let ready = service.readiness();
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)));
    let reason = ready.json()["refused_rules"].as_str().unwrap().to_owned();
    assert!(reason.contains(&place) && reason.contains("everybody"), "{reason}");
    let line = service.program.line("is invalid; keeping the previous 1 rules").unwrap();
    assert!(line.contains(&place) && line.contains("everybody"), "{line}");
    replace(&service.rules_file(), &rules(12));
    wait_for_limit(&service, 12);
    assert_eq!(ann(&service), (12, 8));
    assert_eq!(service.readiness().json().get("refused_rules"), None);
    assert_eq!((service.metric(OK), service.metric(ERROR)), (1.0, 1.0));
}

/// An error message may quote the rules, so only clients that may read the rules receive it.
#[test]
fn refused_rules_are_for_administrators() {
    let flags = ["--admin-token", "secret-of-the-test", "--caller-token", "secret-of-a-caller"];
    let service = Service::with_rules(&rules(10), &flags);
    replace(&service.rules_file(), BROKEN);
    wait_until("the file to be refused", || service.metric(ERROR) == 1.0).unwrap();
    for mut client in [service.client(), service.admin_client()] {
        assert_eq!(client.send("GET", "/readyz", &[], "").json().get("refused_rules"), None);
    }
    let token = ("authorization", "Bearer secret-of-the-test");
    assert_eq!(service.client().send("GET", "/readyz", &[token], "").json().get("refused_rules"), None);
    let of_a_caller = ("authorization", "Bearer secret-of-a-caller");
    let without_reason = service.admin_client().send("GET", "/readyz", &[of_a_caller], "").json();
    assert_eq!(without_reason.get("refused_rules"), None);
    let body = service.admin_client().send("GET", "/readyz", &[token], "").json();
    assert!(body["refused_rules"].as_str().unwrap().contains("everybody"), "{body}");
}

/// Kubernetes swaps the directory behind a symbolic link. The path of the file never changes.
#[test]
fn a_swapped_link_is_noticed() {
    let service = Service::of(|directory| {
        for (version, limit) in [("v1", 10), ("v2", 20)] {
            fs::create_dir(directory.join(version)).unwrap();
            fs::write(directory.join(version).join("rules.yaml"), rules(limit)).unwrap();
        }
        symlink("v1", directory.join("..data")).unwrap();
        symlink("..data/rules.yaml", directory.join("rules.yaml")).unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0", "--rules"]).arg(directory.join("rules.yaml"));
        command
    });
    spend(&service, 3);
    let directory = service.program.directory();
    symlink("v2", directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    wait_for_limit(&service, 20);
    assert_eq!(ann(&service), (20, 17));
}

#[test]
fn a_file_that_is_away_for_a_while_changes_nothing() {
    let service = Service::with_rules(&rules(10), &[]);
    spend(&service, 4);
    fs::remove_file(service.rules_file()).unwrap();
    wait_until("its absence to be noticed", || service.metric(ERROR) == 1.0).unwrap();
    assert_eq!(ann(&service), (10, 6));
    let body = service.readiness().json();
    assert!(body["refused_rules"].as_str().unwrap().contains("rules.yaml"), "{body}");
    fs::write(service.rules_file(), rules(12)).unwrap();
    wait_for_limit(&service, 12);
    assert_eq!(ann(&service), (12, 8));
}

/// The first half is valid by itself, and would deny nearly every request.
#[test]
fn a_file_that_is_being_written_is_not_read() {
    let service = Service::with_rules(&rules(10), &[]);
    let half = rules(1);
    let whole = format!(
        "{half}  - {{id: second, scope: global, strategy: {{absolute: {{limit: 5, window: 24h}}}}}}\n"
    );

    let seen = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut client = service.client();
            let mut seen = Vec::new();
            loop {
                let body = client.send("GET", "/v1/rules", &[], "").json();
                let limit = body["rules"][0]["strategy"]["absolute"]["limit"].as_u64().unwrap();
                let state = (body["rules"].as_array().unwrap().len(), limit);
                if seen.last() != Some(&state) {
                    seen.push(state);
                }
                if state == (2, 1) {
                    return seen;
                }
            }
        });
        fs::write(service.rules_file(), &half).unwrap();
        // Much shorter than the time for which a file must stay unchanged. The sleep simulates a slow writer; it
        // does not wait for an event.
        thread::sleep(Duration::from_millis(50));
        fs::write(service.rules_file(), &whole).unwrap();
        watching.join().unwrap()
    });
    assert_eq!(seen, [(1, 10), (2, 1)]);
}

const RELOADS: u32 = 200;
const CALLERS: usize = 3;

/// No response and no counted unit is lost.
#[test]
fn reloads_under_load_lose_nothing() {
    let service = Service::with_rules(&rules(10_000_000), &[]);
    let (is_over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut client = service.client();
                while !is_over.load(Ordering::Relaxed) {
                    let reply = client.send("POST", "/v1/check", &[], r#"{"attributes":{"user":"ann"}}"#);
                    assert_eq!((reply.status, &reply.json()["allowed"]), (200, &json!(true)), "{reply:?}");
                    let limit = reply.json()["rules"][0]["limit"].as_u64().unwrap();
                    assert!(limit == 10_000_000 || limit == 20_000_000, "{reply:?}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=RELOADS {
            let limit = if round % 2 == 0 { 10_000_000 } else { 20_000_000 };
            replace(&service.rules_file(), &rules(limit));
            service.program.signal("HUP").unwrap();
            wait_for_limit(&service, limit);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let asked = asked.into_inner();
    assert!(asked > u64::from(RELOADS), "{asked}");
    assert_eq!(ann(&service), (10_000_000, 10_000_000 - asked));
    assert_eq!(service.metric("trypema_checks_total{rule=\"per-user\",result=\"allowed\"}"), asked as f64);
    assert!(service.metric(OK) >= f64::from(RELOADS));
    assert_eq!(service.metric(ERROR), 0.0);
}

#[test]
fn tokens_in_files_are_read_again() {
    let mut service = Service::of(|directory| {
        fs::write(directory.join("tokens"), "the-first-caller-token\n").unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0", "--caller-token-file", "tokens"]);
        command.current_dir(directory);
        command
    });
    let file = service.program.directory().join("tokens");
    let status = |service: &Service, token: &str| {
        let headers = [("authorization", &*format!("Bearer {token}"))];
        service.client().send("POST", "/v1/check", &headers, r#"{"attributes": {"user": "ann"}}"#).status
    };
    let statuses = |service: &Service| {
        ["the-first-caller-token", "the-second-caller-token"].map(|token| status(service, token))
    };
    assert_eq!(statuses(&service), [200, 401]);
    replace(&file, "shop the-second-caller-token\n");
    service.program.signal("HUP").unwrap();
    service.program.line("tokens are in force").unwrap();
    assert_eq!(statuses(&service), [401, 200]);
    assert_eq!(ann(&service).0, 5, "the generated token for administration is still valid");
    replace(&file, "short\n");
    service.program.signal("HUP").unwrap();
    let line = service.program.line("cannot reload the tokens").unwrap();
    assert!(line.contains("caller_token: a token needs at least 16 characters"), "{line}");
    assert_eq!(statuses(&service), [401, 200]);
}
