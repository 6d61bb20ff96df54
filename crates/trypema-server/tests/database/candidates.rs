//! A candidate next to its live rule, with real requests.

use std::ops::RangeInclusive;

use serde_json::{Value, json};
use trypema_testkit::redis;

use crate::client::Client;
use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

/// Enough users to distinguish one share from another.
const USERS: usize = 500;
const SHARE: f64 = 0.2;
/// A fifth of the users, with a tolerance of four standard deviations on either side.
const COMPARED: RangeInclusive<usize> = USERS * 12 / 100..=USERS * 28 / 100;

/// The deadline for Redis. It is long, so that a busy machine causes no undecided request.
const PATIENT: &str = "5s";

/// Returns a candidate for `per-user`.
fn candidate(limit: u64) -> Value {
    let mut rule = per_user("per-user-next", limit);
    rule["candidate_for"] = json!("per-user");
    rule
}

/// Sends one request of a user and returns the response, which must not mention the candidate.
fn ask(client: &mut Client, user: &str) -> Value {
    let question = json!({"attributes": {"user": user}}).to_string();
    let reply = client.send("POST", "/v1/check?headers=standard", &[], &question);
    assert!(!format!("{reply:?}").contains("per-user-next"), "{reply:?}");
    reply.json()
}

/// Returns the counts of the only candidate: both allowed, both denied, only the candidate would deny, only
/// the candidate would allow.
fn counts(client: &mut Client) -> [u64; 4] {
    let body = client.send("GET", "/v1/candidates", &[], "").json();
    assert_eq!(body["candidates"].as_array().map(Vec::len), Some(1), "{body}");
    let report = &body["candidates"][0];
    assert_eq!(
        (&report["rule"], &report["candidate"]),
        (&json!("per-user"), &json!("per-user-next")),
        "{body}"
    );
    ["both_allowed", "both_denied", "would_deny", "would_allow"].map(|count| report[count].as_u64().unwrap())
}

/// Sends twelve requests of ann. The responses mention only the live rule, and the candidate's counts are as
/// expected.
fn twelve_requests(service: &Service, live: u64, expected: [u64; 4]) {
    let mut client = service.client();
    for request in 0..12 {
        let body = ask(&mut client, "ann");
        assert_eq!(body["allowed"], json!(request < live), "request {request}: {body}");
        let rules = body["rules"].as_array().unwrap();
        assert_eq!(
            (rules.len(), &rules[0]["rule"], &rules[0]["limit"]),
            (1, &json!("per-user"), &json!(live)),
            "{body}"
        );
    }
    assert_eq!(counts(&mut client), expected);
    let results = ["both_allowed", "both_denied", "would_deny", "would_allow"];
    let counted = results.map(|result| {
        let metric =
            format!("trypema_candidate_checks_total{{candidate=\"per-user-next\",result=\"{result}\"}}");
        service.metric(&metric) as u64
    });
    assert_eq!(counted, expected);
}

fn compare(flags: &[&str]) {
    let scene = Scene::start();
    for (live, next, expected) in [(10, 5, [5, 2, 5, 0]), (5, 10, [5, 2, 0, 5]), (7, 7, [7, 5, 0, 0])] {
        // A prefix of its own, so that the counters start fresh.
        let prefix = format!("from-{live}-to-{next}");
        let flags = [flags, &["--redis-prefix", &prefix]].concat();
        let service = scene.service(&flags);
        done(
            &service,
            "PUT",
            "/v1/ruleset",
            &json!({"rules": [per_user("per-user", live), candidate(next)]}),
        );
        twelve_requests(&service, live, expected);
    }
}

#[test]
fn what_a_candidate_would_do_is_counted_in_memory() {
    compare(&["--provider", "memory"]);
}

#[test]
fn what_a_candidate_would_do_is_counted_in_redis() {
    let redis = redis::Server::start().unwrap();
    compare(&["--provider", "redis", "--redis-url", &redis.url(), "--redis-deadline", PATIENT]);
}

#[test]
fn a_candidate_in_a_file_is_counted_too() {
    let rules = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 10, window: 300d}}}
  - {id: per-user-next, candidate_for: per-user, scope: user, strategy: {fixed_window: {limit: 5, window: 300d}}}
";
    twelve_requests(&Service::with_rules(rules, &[]), 10, [5, 2, 5, 0]);
}

/// All requests of a key are compared, or none, and every server selects the same keys.
#[test]
fn a_share_is_the_same_keys_on_two_servers() {
    let scene = Scene::start();
    let servers = [scene.service(&[]), scene.service(&[])];
    let mut shared = candidate(1);
    shared["share"] = json!(SHARE);
    done(&servers[0], "PUT", "/v1/ruleset", &json!({"rules": [per_user("per-user", 10), shared]}));
    redis::wait_until("both to have it", || {
        servers.iter().all(|server| server.metric("trypema_rules_revision") == 1.0)
    })
    .unwrap();
    let compared = servers.each_ref().map(|server| {
        let mut client = server.client();
        let mut total = 0;
        let mut is_compared = |user: usize| {
            // If a user is compared, so is the second request, which the candidate denies.
            let before = total;
            (0..2).for_each(|_| drop(ask(&mut client, &format!("user-{user}"))));
            let now = counts(&mut client);
            total = now.iter().sum();
            assert!(total == before || (total == before + 2 && now[0] == now[2]), "user {user}: {now:?}");
            total > before
        };
        (0..USERS).filter(|user| is_compared(*user)).collect::<Vec<usize>>()
    });
    assert_eq!(compared[0], compared[1]);
    assert!(COMPARED.contains(&compared[0].len()), "{} of {USERS} users were compared", compared[0].len());
}

#[test]
fn a_promoted_candidate_is_the_live_rule_and_nothing_is_forgotten() {
    let scene = Scene::start();
    let redis = redis::Server::start().unwrap();
    let service = scene.service(&["--redis-url", &redis.url(), "--redis-deadline", PATIENT]);
    let (mut live, mut next) = (per_user("per-user", 10), candidate(5));
    (live["name"], next["name"]) = (json!("requests of a user"), json!("half of them"));
    (next["share"], next["priority"]) = (json!(0.5), json!(7));
    done(&service, "PUT", "/v1/ruleset", &json!({"rules": [live, next]}));
    let mut client = service.client();
    (0..3).for_each(|_| assert_eq!(ask(&mut client, "ann")["allowed"], json!(true)));

    done(&service, "POST", "/v1/rules/per-user-next/promote", &Value::Null);
    let rules = service.get("/v1/rules").json()["rules"].clone();
    assert_eq!(rules.as_array().unwrap().len(), 1, "{rules}");
    // The live rule keeps its id and its name. All other fields are the candidate's.
    let mut expected = per_user("per-user", 5);
    (expected["name"], expected["priority"]) = (json!("requests of a user"), json!(7));
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(rules[0][field], *value, "{field} of {rules}");
    }
    assert!(["candidate_for", "share"].iter().all(|field| rules[0][field].is_null()), "{rules}");
    assert_eq!(service.get("/v1/rules/per-user-next").status, 404);
    assert_eq!(service.get("/v1/candidates").json(), json!({"candidates": []}));
    let ann = service.get("/v1/keys/per-user%7Cuser=ann").json();
    assert_eq!((&ann["limit"], &ann["remaining"]), (&json!(5), &json!(2)), "{ann}");
    let answers = [0; 3].map(|_| ask(&mut client, "ann")["allowed"].clone());
    assert_eq!(answers, [json!(true), json!(true), json!(false)]);
}
