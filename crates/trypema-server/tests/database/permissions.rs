//! The rule cache in Redis, as the user that `trypema redis acl --cache` prints, and as users that lack a
//! permission.

use serde_json::{Value, json};
use trypema_testkit::redis::{Binary, Server, wait_until};

use crate::faults::{ready, refused_start};
use crate::harness::Service;
use crate::redis_user::{ENCODED, apply, assert_nothing_was_refused, command, printed, url};
use crate::scene::{Scene, done, is_allowed, per_user};

const KEY: &str = "trypema:rules";
/// The deadline of calls: long, because the machine may be busy with other tests.
const PATIENT: &str = "10s";

/// Returns the flags of a server whose rules are in this database, and cached in Redis.
fn flags<'a>(database: &'a str, redis: &'a str, provider: &'a str) -> [&'a str; 10] {
    let of_rules = ["--database-url", database, "--rules-poll", "1s"];
    let of_redis = ["--redis-url", redis, "--provider", provider, "--redis-deadline", PATIENT];
    let mut flags = of_rules.into_iter().chain(of_redis);
    std::array::from_fn(|_| flags.next().unwrap())
}

/// Waits until Redis has this revision of the rules.
fn wait_until_cached(redis: &Server, revision: &Value) {
    wait_until("the rules to be cached", || {
        let found = redis.control().unwrap().command(&["HGET", KEY, "revision"]).unwrap();
        found.integer() == revision.as_i64()
    })
    .unwrap();
}

fn wait_until_listening(redis: &Server, servers: i64) {
    wait_until("the servers to listen", || {
        let found = redis.control().unwrap().command(&["PUBSUB", "NUMSUB", KEY]).unwrap();
        found.items()[1].integer() == Some(servers)
    })
    .unwrap();
}

#[test]
fn the_printed_user_can_do_everything_with_the_cache() {
    for binary in Binary::every().unwrap() {
        for provider in ["memory", "redis", "hybrid"] {
            let scene = Scene::start();
            let redis = Server::builder().binary(binary.clone()).start().unwrap();
            apply(&redis, &printed("access-limiter", &["--provider", provider, "--cache"]));
            let (database, url) = (scene.database.url(), url(&redis));
            let flags = flags(&database, &url, provider);
            let [first, second] = [Service::start(&flags), Service::start(&flags)];
            wait_until_listening(&redis, 2);
            let revision = done(&first, "POST", "/v1/rules", &per_user("per-user", 10))["revision"].clone();
            wait_until_cached(&redis, &revision);
            wait_until("the other server to follow", || ready(&second)["rules_revision"] == revision)
                .unwrap();
            assert!(is_allowed(&second, "ann"));
            assert_eq!(ready(&first).get("warnings"), None);
            assert_eq!(first.metric("trypema_rule_cache_failing"), 0.0);
            drop([first, second]);
            scene.database.kill_9().unwrap();
            let late = Service::start(&flags);
            assert_eq!(ready(&late)["rules_from"], "cache");
            assert_nothing_was_refused(&redis);
        }
    }
}

#[test]
fn a_start_without_a_permission_for_the_cache_ends_and_names_it() {
    let scene = Scene::start();
    for binary in Binary::every().unwrap() {
        let redis = Server::builder().binary(binary).start().unwrap();
        let user = printed("access-limiter", &["--provider", "memory", "--cache"]);
        let (database, url) = (scene.database.url(), url(&redis));
        let flags = flags(&database, &url, "memory");
        let mut words = user.split_whitespace().filter(|word| word.starts_with(['+', '\'']));
        assert!(words.next().unwrap().starts_with("'#"), "the password");
        for word in words {
            let less = user.replacen(&format!(" {word}"), "", 1);
            apply(&redis, &less);
            let (code, log) = refused_start(&flags);
            let rule = word.trim_matches('\'');
            assert_eq!(code, Some(1), "{rule}: {log}");
            assert!(log.contains(&format!("the Redis user lacks {rule}; `trypema redis acl`")), "{log}");
            assert!(!log.contains(ENCODED), "{log}");
        }
        let found = redis.control().unwrap().command(&["DBSIZE"]).unwrap();
        assert_eq!(found.integer(), Some(0), "the probe leaves nothing");
        apply(&redis, &user);
        drop(Service::start(&flags));
    }
}

#[test]
fn a_cache_that_cannot_be_written_is_a_gauge_and_a_warning() {
    let (scene, redis) = (Scene::start(), Server::start().unwrap());
    let user = printed("access-limiter", &["--provider", "memory", "--cache"]);
    apply(&redis, &user);
    let (database, url) = (scene.database.url(), url(&redis));
    let service = Service::start(&flags(&database, &url, "memory"));
    done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
    wait_until_cached(&redis, &json!(1));
    command(&redis, &["ACL", "SETUSER", "access-limiter", "-hset"]);
    done(&service, "PUT", "/v1/rules/per-user", &per_user("per-user", 3));
    wait_until("the gauge", || service.metric("trypema_rule_cache_failing") == 1.0).unwrap();
    let warned = json!(["missing_permissions", "rule_cache_failing"]);
    wait_until("both warnings", || ready(&service)["warnings"] == warned).unwrap();
    assert_eq!(service.readiness().json()["missing_permissions"], json!(["+hset"]));
    let log = service.program.log();
    assert!(log.contains("cannot write the rule cache to Redis") && log.contains("lacks +hset"), "{log}");
    assert_eq!(ready(&service)["rules_revision"], 2, "the rules themselves are in force");

    apply(&redis, &user);
    wait_until_cached(&redis, &json!(2));
    wait_until("the warnings to go", || ready(&service).get("warnings").is_none()).unwrap();
    assert_eq!(service.metric("trypema_rule_cache_failing"), 0.0);
    // An outage of Redis is no missing permission.
    redis.kill_9().unwrap();
    wait_until("the gauge again", || service.metric("trypema_rule_cache_failing") == 1.0).unwrap();
    assert_eq!(ready(&service)["warnings"], json!(["rule_cache_failing"]));
}
