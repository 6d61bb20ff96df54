//! Random edits through the API and with SQL: every revision can be restored, and the restoring reverted.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trypema::rules::{Rule, Scope};
use trypema_testkit::random::Random;

use super::{exported, revert};
use crate::constraints::drawn;
use crate::harness::Service;
use crate::scene::{Scene, done, per_user, send};

const EDITS: usize = 24;
const REVERTS: usize = 6;
const IDS: [&str; 4] = ["a", "b", "c", "d"];
const USERS: [&str; 3] = ["ann", "bob", "O'Neil"];

/// The statuses of refused edits. Only the effects of successful edits matter.
const REFUSED: [u16; 3] = [404, 409, 422];

#[test]
fn every_revision_can_be_gone_back_to() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let mut random = Random::seeded(11);
    let mut known = BTreeMap::from([(0, exported(&service))]);
    let first = json!({"units": drawn::UNITS, "rules": IDS.map(|id| per_user(id, 5))});
    done(&service, "PUT", "/v1/ruleset", &first);
    note(&service, &mut known);
    for _ in 0..EDITS {
        if random.once_in(4) {
            // The database refuses a statement that would leave an override or a candidate without its rule.
            let _ = scene.database.sql(&by_hand(&mut random));
        } else {
            through_the_api(&service, &mut random);
        }
        note(&service, &mut known);
    }
    assert!(known.len() >= EDITS / 2, "half of the edits have to change something: {}", known.len());
    for (revision, rules) in known.iter().step_by(3) {
        assert_eq!(done(&service, "GET", &format!("/v1/ruleset?revision={revision}"), &Value::Null), *rules);
    }
    for _ in 0..REVERTS {
        let revisions: Vec<u64> = known.keys().copied().collect();
        let to = if random.once_in(10) { 0 } else { random.pick(&revisions) };
        let shown = send(&service, "POST", "/v1/ruleset/revert?dry_run=true", &json!({"to": to}));
        let reply = revert(&service, to);
        assert_eq!(reply.status, 200, "to {to}: {reply:?}");
        assert_eq!(shown.json()["changes"], reply.json()["changes"], "to {to}");
        assert_eq!(exported(&service), known[&to], "to {to}");
        note(&service, &mut known);
    }
}

/// Records the stored rules under their revision.
fn note(service: &Service, known: &mut BTreeMap<u64, Value>) {
    let reply = service.get("/v1/ruleset");
    let revision = reply.header("etag").unwrap().trim_matches('"').parse().unwrap();
    let before = known.insert(revision, reply.json());
    assert!(before.is_none_or(|before| before == reply.json()), "revision {revision} is two");
}

fn through_the_api(service: &Service, random: &mut Random) {
    let (id, user) = (random.pick(&IDS), random.pick(&USERS));
    let rule = rule(random, id);
    let (method, path, body) = match random.below(9) {
        0..=1 => ("POST", "/v1/rules".to_owned(), json!(rule)),
        2 => ("PUT", format!("/v1/rules/{id}"), json!(rule)),
        3 => ("PATCH", format!("/v1/rules/{id}"), json!({"enabled": random.once_in(2)})),
        4 => ("DELETE", format!("/v1/rules/{id}"), Value::Null),
        5 => (
            "PUT",
            format!("/v1/overrides/{id}%7Cuser={user}"),
            json!({"verdict": random.pick(&["allow", "block"])}),
        ),
        6 => ("DELETE", format!("/v1/overrides/{id}%7Cuser={user}"), Value::Null),
        7 => {
            let method = random.pick(&["PUT", "PUT", "DELETE"]);
            (method, format!("/v1/lists/{}/user/{user}", random.pick(&["allow", "block"])), Value::Null)
        }
        _ => ("PUT", "/v1/ruleset".to_owned(), set(random)),
    };
    let reply = send(service, method, &path, &body);
    let is_expected = reply.status < 300 || REFUSED.contains(&reply.status);
    assert!(is_expected, "{method} {path} {body}: {reply:?}");
}

/// Returns a rule with a key per user, so that the overrides for single users fit it.
fn rule(random: &mut Random, id: &str) -> Rule {
    let candidate_for = random.once_in(6).then(|| "a".to_owned());
    let rule = drawn::valid(random);
    let share = rule.share.filter(|_| candidate_for.is_some());
    Rule { id: id.to_owned(), scope: Scope::User, key_pattern: None, candidate_for, share, ..rule }
}

fn set(random: &mut Random) -> Value {
    let mut rules: Vec<Rule> = Vec::new();
    for id in IDS {
        if !random.once_in(3) {
            rules.push(rule(random, id));
        }
    }
    let mut overrides = Vec::new();
    for rule in &rules {
        let numbers = json!({"rule": rule.id, "key": {"user": "ann"}, "strategy": rule.strategy});
        overrides.extend(random.once_in(2).then_some(numbers));
    }
    let more = random.pick(&[None, Some("words")]);
    let units: Vec<&str> = drawn::UNITS.into_iter().chain(more).collect();
    json!({"units": units, "rules": rules, "overrides": overrides, "allow": {"ip": ["10.0.0.0/8"]}})
}

/// Returns a transaction of several statements.
fn by_hand(random: &mut Random) -> String {
    let mut script = "BEGIN;\n".to_owned();
    for _ in 0..random.between(1, 3) {
        let id = random.pick(&IDS);
        script += &match random.below(8) {
            0 => format!("UPDATE rate_limit_rules SET priority = priority + 1 WHERE id <> '{id}';\n"),
            1 => format!("DELETE FROM rate_limit_rules WHERE id = '{id}';\n"),
            2 => format!("UPDATE rate_limit_rules SET id = 'z' WHERE id = '{id}';\nUPDATE rate_limit_rules SET id = '{id}' WHERE id = 'z';\n"),
            3 => "UPDATE rate_limit_rules SET extra = extra || '{\"unit\": \"tokens\", \"when\": {\"model\": [\"gpt-*\"]}}';\n".to_owned(),
            4 => format!("INSERT INTO rate_limit_units (name) VALUES ('unit-{}');\n", random.below(1_000)),
            5 => "DELETE FROM rate_limit_units WHERE name NOT IN ('tokens', 'usd_micros');\n".to_owned(),
            6 => format!("INSERT INTO rate_limit_lists (list, attribute, value) VALUES ('block', 'user', '{}');\n", random.below(1_000)),
            _ => "UPDATE rate_limit_overrides SET verdict = CASE verdict WHEN 'allow' THEN 'block' ELSE 'allow' END WHERE verdict IS NOT NULL;\n".to_owned(),
        };
    }
    script + "COMMIT;\n"
}
