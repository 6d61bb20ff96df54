//! `trypema redis acl`: the printed user can run everything, and a user that lacks anything is noticed.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use trypema_testkit::program::Program;
use trypema_testkit::redis::{Binary, Server, wait_until};

use crate::folder::Folder;
use crate::harness::{Service, trypema};
use crate::redis_user::{ENCODED, PASSWORD, apply, assert_nothing_was_refused, command, printed, url};

const RULES: &str = "
units: [tokens]
rules:
  - {id: all, priority: 1, scope: global, strategy: {fixed_window: {limit: 1000000, window: 30d}}}
  - {id: user, priority: 2, scope: user, strategy: {sliding_window: {limit: 1000000, window: 30d}}}
  - {id: pace, priority: 3, scope: user, strategy: {token_bucket: {limit: 1000000, window: 1d}}}
  - {id: tokens, priority: 4, scope: user, unit: tokens, strategy: {absolute: {limit: 1000000, window: 1h}}}
  - {id: shed, priority: 5, scope: user, strategy: {suppressed: {limit: 1000000, window: 1h}}}
  - {id: abuse, priority: 6, scope: user, strategy: {abuse: {temp: {window: 60s, threshold: 5000, block: 10m}, long: {window: 1h, threshold: 9000, block: 24h}}}}
  - {id: slots, priority: 7, scope: user, strategy: {concurrency: {limit: 1, hold: 1h}}}
";

/// The deadline of calls: long, because the machine may be busy with other tests.
const PATIENT: &str = "10s";
/// The number of checks within which counters are leased.
const ENOUGH_CHECKS: usize = 4_000;

/// Starts a server as this user, which must fail. Returns its exit code and its log.
fn refused_start(server: &Server, flags: &[&str]) -> (Option<i32>, String) {
    let mut program = Program::start(|_| {
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0", "--redis-url", &url(server)]).args(flags);
        command
    })
    .unwrap();
    (program.end().unwrap().code(), program.log())
}

/// Sends a request that must succeed, and returns the body.
fn done(service: &Service, method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = service.client().send(method, path, &[], &body);
    assert_eq!(reply.status, 200, "{method} {path} {body}: {reply:?}");
    reply.json()
}

/// Calls every route that reads or changes counters.
fn use_everything(service: &Service) {
    let ann = json!({"attributes": {"user": "ann"}, "costs": {"requests": 1, "tokens": 800}});
    let with = |more: Value| {
        let mut body = ann.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for mode in ["check", "peek", "record"] {
        done(service, "POST", "/v1/check", &with(json!({"mode": mode})));
    }
    done(service, "POST", "/v1/explain", &ann);
    let reserve = |more: Value| done(service, "POST", "/v1/reserve", &with(more));
    for tokens in [150, 800, 2_000] {
        let made = reserve(json!({"ttl": "60s", "id": format!("of {tokens}")}));
        assert_eq!(made["allowed"], true, "{made}");
        assert_eq!(reserve(json!({}))["allowed"], false, "the slot is taken");
        let text = &made["reservation"];
        done(service, "POST", "/v1/renew", &json!({"reservation": text, "ttl": "90s"}));
        done(service, "POST", "/v1/settle", &json!({"reservation": text, "costs": {"tokens": tokens}}));
    }
    let released = reserve(json!({}));
    done(service, "POST", "/v1/release", &json!({"reservation": released["reservation"]}));
    reserve(json!({}));
    let shown = done(service, "GET", "/v1/keys/slots%7Cuser=ann", &Value::Null);
    let id = shown["holders"][0]["id"].as_str().unwrap();
    done(service, "DELETE", &format!("/v1/keys/slots%7Cuser=ann/reservations/{id}"), &Value::Null);
    for key in ["all", "user", "pace", "tokens", "shed", "abuse", "slots"] {
        let key = if key == "all" { key.to_owned() } else { format!("{key}%7Cuser=ann") };
        done(service, "GET", &format!("/v1/keys/{key}"), &Value::Null);
        done(service, "DELETE", &format!("/v1/keys/{key}"), &Value::Null);
    }
}

#[test]
fn the_printed_user_can_run_everything_and_nothing_is_refused() {
    for binary in Binary::every().unwrap() {
        for provider in ["redis", "hybrid"] {
            let redis = Server::builder().binary(binary.clone()).start().unwrap();
            apply(&redis, &printed("access-limiter", &["--provider", provider, "--prefix", "my app:*"]));
            let flags = [
                "--provider",
                provider,
                "--redis-url",
                &url(&redis),
                "--redis-prefix",
                "my app:*",
                "--redis-deadline",
                PATIENT,
            ];
            let mut service = Service::with_rules(RULES, &flags);
            use_everything(&service);
            let bob = json!({"attributes": {"user": "bob"}, "costs": {"requests": 1, "tokens": 1}});
            let mut checks = 0;
            while provider == "hybrid" && service.metric("trypema_units_held") == 0.0 {
                (0..100).for_each(|_| drop(done(&service, "POST", "/v1/check", &bob)));
                checks += 100;
                assert!(checks < ENOUGH_CHECKS, "nothing is leased");
            }
            assert_eq!(service.readiness().json().get("warnings"), None);
            assert_eq!(service.metric("trypema_missing_permissions"), 0.0);
            assert_eq!(service.metric("trypema_store_errors_total{kind=\"not_permitted\"}"), 0.0);
            service.stop();
            assert_nothing_was_refused(&redis);
        }
    }
}

#[test]
fn a_start_without_a_permission_ends_and_names_it() {
    let redis = Server::start().unwrap();
    let user = printed("access-limiter", &["--provider", "hybrid"]);
    for rule in user.split_whitespace().filter(|word| word.starts_with('+')) {
        apply(&redis, &user.replace(&format!(" {rule} "), " ").replace(&format!(" {rule}\n"), "\n"));
        if rule == "+info" {
            let service = Service::start(&["--provider", "hybrid", "--redis-url", &url(&redis)]);
            let log = service.program.log();
            assert!(log.contains("lacks +info") && log.contains("works without it"), "{log}");
            continue;
        }
        let (code, log) = refused_start(&redis, &["--provider", "hybrid"]);
        assert_eq!(code, Some(1), "{log}");
        let address = redis.addr();
        assert!(log.contains(&format!("lacks {rule} on {address}; `trypema redis acl` prints")), "{log}");
        assert!(!log.contains(PASSWORD) && !log.contains(ENCODED), "{log}");
    }
    // The user for one provider is not enough for the other.
    apply(&redis, &printed("access-limiter", &["--provider", "redis"]));
    let (_, log) = refused_start(&redis, &["--provider", "hybrid"]);
    for rule in ["+zadd", "+zcard", "+zrem", "+zremrangebyscore"] {
        assert!(log.contains(rule), "{log}");
    }
    let (_, log) = refused_start(&redis, &["--provider", "redis", "--redis-prefix", "other"]);
    assert!(log.contains("lacks ~other:* on"), "{log}");
    let database = format!("{}/2", url(&redis));
    let (code, log) = refused_start(&redis, &["--provider", "redis", "--redis-url", &database]);
    assert!(code != Some(0) && !log.contains("listens on"), "{log}");
    drop(Service::start(&["--provider", "redis", "--redis-url", &url(&redis)]));
}

/// Services without `SCRIPT` and without `ACL` for clients: the server needs neither.
#[test]
fn a_server_without_script_commands_is_enough() {
    let redis = Server::builder()
        .user(&format!("access-limiter on >{ENCODED} ~* &* +@all -script -acl -@admin -@dangerous"));
    let redis = redis.start().unwrap();
    let address = format!("redis://access-limiter:{ENCODED}@{}", redis.addr()).replace('%', "%25");
    let service = Service::with_rules(
        RULES,
        &["--provider", "hybrid", "--redis-url", &address, "--redis-deadline", PATIENT],
    );
    command(&redis, &["SCRIPT", "FLUSH"]);
    use_everything(&service);
}

/// A permission is withdrawn from a running server: the failure policy decides, and operators learn why.
#[test]
fn a_permission_that_is_withdrawn_later_is_a_warning() {
    const POLICIES: &str = "
rules:
  - {id: error, scope: user, key_pattern: '{error}', on_store_failure: error, strategy: {fixed_window: {limit: 1000, window: 30d}}}
  - {id: allow, scope: user, key_pattern: '{allow}', on_store_failure: allow, strategy: {fixed_window: {limit: 1000, window: 30d}}}
  - {id: deny, scope: user, key_pattern: '{deny}', on_store_failure: deny, strategy: {fixed_window: {limit: 1000, window: 30d}}}
  - {id: local, scope: user, key_pattern: '{local}', strategy: {fixed_window: {limit: 1000, window: 30d}}}
";
    for provider in ["redis", "hybrid"] {
        let redis = Server::start().unwrap();
        let user = printed("access-limiter", &["--provider", provider]);
        apply(&redis, &user);
        let flags = [
            "--provider",
            provider,
            "--redis-url",
            &url(&redis),
            "--on-store-failure",
            "local",
            "--redis-deadline",
            PATIENT,
        ];
        let service = Service::with_rules(POLICIES, &flags);
        let check = |policy: &str| {
            let body = json!({"attributes": {policy: "ann"}}).to_string();
            service.client().send("POST", "/v1/check", &[], &body)
        };
        assert_eq!(check("error").status, 200);
        command(&redis, &["ACL", "SETUSER", "access-limiter", "-set", "-getrange"]);
        assert_eq!(check("error").status, 500, "{provider}");
        assert_eq!((check("allow").json()["allowed"].clone(), check("allow").status), (json!(true), 200));
        assert_eq!(check("deny").status, 503);
        assert_eq!(check("local").json()["rules"][0]["substitute"], true);
        assert!(service.metric("trypema_store_errors_total{kind=\"not_permitted\"}") >= 4.0);
        assert_eq!(service.metric("trypema_store_errors_total{kind=\"refused\"}"), 0.0);

        let warned = || service.get("/readyz").json()["warnings"] == json!(["missing_permissions"]);
        wait_until("a warning", warned).unwrap();
        let ready = service.readiness();
        let address = redis.addr();
        let missing = json!([format!("+set on {address}"), format!("+getrange on {address}")]);
        assert_eq!((ready.status, &ready.json()["missing_permissions"]), (200, &missing), "{ready:?}");
        let to_anybody = service.client().send("GET", "/readyz", &[], "").json();
        assert_eq!(to_anybody.get("missing_permissions"), None, "{to_anybody}");
        assert_eq!(service.metric("trypema_missing_permissions"), 2.0);
        assert!(service.program.log().contains("lacks +set on"), "{}", service.program.log());

        apply(&redis, &user);
        assert_eq!(check("error").status, 200);
        wait_until("the warning to go", || service.get("/readyz").json().get("warnings").is_none()).unwrap();
        assert_eq!(service.metric("trypema_missing_permissions"), 0.0);
    }
}

/// A server starts without Redis, so it learns later that its user lacks a permission.
#[test]
fn a_redis_that_comes_later_is_probed_then() {
    let user = printed("access-limiter", &["--provider", "redis"]).replace(" +get ", " ").replace('\'', "");
    let rules = user.trim().strip_prefix("ACL SETUSER ").unwrap();
    let redis = Server::builder().user(rules).start().unwrap();
    redis.kill_9().unwrap();
    let service = Service::start(&["--provider", "redis", "--redis-url", &url(&redis)]);
    assert_eq!(service.readiness().json().get("warnings"), None);
    redis.restart().unwrap();
    let missing = json!([format!("+get on {}", redis.addr())]);
    let is_known = || service.readiness().json()["missing_permissions"] == missing;
    wait_until("the permission to be missed", is_known).unwrap();
}

/// The marks around the output of a command in a page.
const MARKS: (&str, &str) = ("<!-- trypema prints this -->\n", "<!-- end -->");
/// The pages that show the command, with the number of times.
const PAGES: [(&str, usize); 3] = [("redis.md", 2), ("hybrid.md", 1), ("database.md", 2)];

/// Runs the commands between marks, and compares their output with the page. `UPDATE_DOCS=1` rewrites it.
#[test]
fn pages_show_what_the_command_prints() {
    let folder = Folder::new();
    let password = folder.file("password", "secret\n");
    for (name, expected) in PAGES {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        let page = fs::read_to_string(&path).unwrap();
        let mut parts = page.split(MARKS.0);
        let mut written = parts.next().unwrap().to_owned();
        let mut shown = 0;
        for part in parts {
            let (block, rest) = part.split_once(MARKS.1).unwrap();
            let line = block.lines().find_map(|line| line.strip_prefix("$ trypema ")).unwrap();
            let mut command = trypema();
            command.args(line.split_whitespace()).current_dir(password.parent().unwrap());
            let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
            assert!(output.starts_with("ACL SETUSER "), "{line}");
            let block = format!("```console\n$ trypema {line}\n{output}```\n");
            written.push_str(&[MARKS.0, &block, MARKS.1, rest].concat());
            shown += 1;
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &written).unwrap();
        }
        assert_eq!(shown, expected, "{name}");
        assert_eq!(fs::read_to_string(&path).unwrap(), written, "{name}: UPDATE_DOCS=1 rewrites it");
    }
}
