//! The history of changes, and reverting to a revision.

#[path = "history/walk.rs"]
mod walk;

use serde_json::{Value, json};

use crate::access::guarded;
use crate::client::Reply;
use crate::harness::Service;
use crate::scene::{Scene, done, per_user, send};
use crate::threads::is_done_by;

fn exported(service: &Service) -> Value {
    done(service, "GET", "/v1/ruleset", &Value::Null)
}

fn revert(service: &Service, to: u64) -> Reply {
    send(service, "POST", "/v1/ruleset/revert", &json!({"to": to}))
}

fn entries(service: &Service, query: &str) -> Vec<Value> {
    let answer = done(service, "GET", &format!("/v1/ruleset/history{query}"), &Value::Null);
    answer["entries"].as_array().unwrap().clone()
}

/// Returns of each entry: the revision, the author, the item, and whether it existed before and after.
fn told(entries: &[Value]) -> Vec<(u64, String, String, (bool, bool))> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entry = |entry: &Value| {
        let name = format!("{} {}", text(&entry["kind"]), text(&entry["name"]));
        let was_and_is = (!entry["before"].is_null(), !entry["after"].is_null());
        (entry["revision"].as_u64().unwrap(), text(&entry["changed_by"]), name, was_and_is)
    };
    entries.iter().map(entry).collect()
}

#[test]
fn history_tells_who_changed_what_when() {
    let scene = Scene::start();
    let service = guarded(&scene);
    let as_ann = [("authorization", "Bearer secret-token-to-edit"), ("if-match", "*")];
    let as_ci = [("authorization", "Bearer secret-token-to-deploy"), ("if-match", "*")];
    let mut client = service.client();
    let rule = |limit| per_user("per-user", limit).to_string();
    assert_eq!(client.send("POST", "/v1/rules", &as_ann, &rule(1)).status, 201);
    assert_eq!(client.send("PUT", "/v1/rules/per-user", &as_ci, &rule(2)).status, 200);
    let block = "{\"verdict\": \"block\"}";
    assert_eq!(client.send("PUT", "/v1/overrides/per-user%7Cuser=eve", &as_ann, block).status, 200);
    scene.database.sql("DELETE FROM rate_limit_rules").unwrap();
    assert_eq!(client.send("POST", "/v1/ruleset/revert", &as_ci, "{\"to\": 2}").status, 200);

    let answer = client.send("GET", "/v1/ruleset/history", &as_ann, "").json();
    let told = told(answer["entries"].as_array().unwrap());
    let by_hand = scene.database.sql("SELECT session_user").unwrap();
    let entry =
        |revision, who: &str, what: &str, was_and_is| (revision, who.to_owned(), what.to_owned(), was_and_is);
    let (new, changed, gone) = ((false, true), (true, true), (true, false));
    let mut deleted = [told[1].clone(), told[2].clone()];
    deleted.sort();
    assert_eq!(told[0], entry(5, "ci@example.com", "rule per-user", new));
    // The history also contains the overrides that were deleted with their rule.
    assert_eq!(deleted[0], entry(4, &by_hand, "override per-user user=\"eve\"", gone));
    assert_eq!(deleted[1], entry(4, &by_hand, "rule per-user", gone));
    assert_eq!(told[3], entry(3, "ann", "override per-user user=\"eve\"", new));
    assert_eq!(told[4], entry(2, "ci@example.com", "rule per-user", changed));
    assert_eq!(told[5], entry(1, "ann", "rule per-user", new));
    assert_eq!(told.len(), 6);
    let limit = |of: &Value| of["strategy"]["fixed_window"]["limit"].clone();
    let change = &answer["entries"][4];
    assert_eq!((limit(&change["before"]), limit(&change["after"])), (json!(1), json!(2)));
    for entry in answer["entries"].as_array().unwrap() {
        let at = entry["changed_at"].as_str().unwrap();
        let ago = format!("SELECT now() - '{at}'::timestamptz BETWEEN '0s' AND '60s'");
        assert_eq!(scene.database.sql(&ago).unwrap(), "t", "{at}");
    }
}

#[test]
fn what_is_committed_together_is_one_revision() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let insert = |id: &str| {
        format!(
            "INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds) VALUES ('{id}', 'user', 'fixed_window', 1, 1);\n"
        )
    };
    let list = "INSERT INTO rate_limit_lists (list, attribute, value) VALUES ('block', 'user', 'eve');\n";
    let first = format!("BEGIN;\n{}{}{list}COMMIT;\n", insert("a"), insert("b"));
    scene.database.sql(&first).unwrap();
    // A change that is rolled back is not in the history.
    scene.database.sql(&format!("BEGIN;\n{}ROLLBACK;\n", insert("c"))).unwrap();
    let savepoint = format!("BEGIN;\nSAVEPOINT s;\n{}ROLLBACK TO s;\n{}COMMIT;\n", insert("c"), insert("d"));
    scene.database.sql(&savepoint).unwrap();
    // A statement that changes nothing is not in the history.
    scene.database.sql("UPDATE rate_limit_rules SET priority = priority, updated_at = now() + '1d'").unwrap();
    scene.database.sql("DELETE FROM rate_limit_rules WHERE id = 'nobody'").unwrap();
    let names: Vec<(u64, String)> =
        told(&entries(&service, "")).into_iter().map(|(revision, _, name, _)| (revision, name)).collect();
    let expected = [(2, "rule d"), (1, "list block user eve"), (1, "rule b"), (1, "rule a")];
    assert_eq!(names, expected.map(|(revision, name)| (revision, name.to_owned())));
    // Renaming a rule deletes one rule and adds another.
    scene.database.sql("UPDATE rate_limit_rules SET id = 'e' WHERE id = 'd'").unwrap();
    let renamed = told(&entries(&service, "?limit=2"));
    let what: Vec<(&str, (bool, bool))> = renamed.iter().map(|(_, _, name, is)| (&**name, *is)).collect();
    assert_eq!(what, [("rule e", (false, true)), ("rule d", (true, false))]);
    assert_eq!(revert(&service, 1).status, 200);
    let ids: Vec<Value> =
        exported(&service)["rules"].as_array().unwrap().iter().map(|rule| rule["id"].clone()).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn units_are_in_the_history() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let mut counting = per_user("tokens", 1);
    counting["unit"] = json!("tokens");
    counting["postpaid"] = json!(true);
    counting["when"] = json!({"model": {"not": ["gpt-*"]}});
    done(&service, "PUT", "/v1/ruleset", &json!({"units": ["usd", "tokens"], "rules": [counting]}));
    let first = exported(&service);
    assert_eq!(first["units"], json!(["tokens", "usd"]));
    assert_eq!(service.get("/v1/rules").json()["units"], json!(["tokens", "usd"]));
    scene.database.sql("DELETE FROM rate_limit_units WHERE name = 'usd'").unwrap();
    done(&service, "PUT", "/v1/ruleset", &json!({"units": ["words"]}));
    let named = |query: &str| -> Vec<(u64, String, (bool, bool))> {
        let told = told(&entries(&service, query)).into_iter();
        let mut named: Vec<_> = told.map(|(revision, _, name, is)| (revision, name, is)).collect();
        named.sort();
        named
    };
    let (new, gone) = ((false, true), (true, false));
    let expected = [
        (1, "rule tokens", new),
        (1, "unit tokens", new),
        (1, "unit usd", new),
        (2, "unit usd", gone),
        (3, "rule tokens", gone),
        (3, "unit tokens", gone),
        (3, "unit words", new),
    ];
    assert_eq!(named(""), expected.map(|(revision, name, is)| (revision, name.to_owned(), is)));
    assert_eq!(named("?about=usd").len(), 2);
    let entry = &entries(&service, "?about=words")[0];
    assert_eq!((&entry["before"], &entry["after"]), (&Value::Null, &json!({"name": "words"})));

    // A unit that a rule counts is not deleted before the rule.
    let reply = revert(&service, 1);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(exported(&service), first);
    let refused = send(&service, "PUT", "/v1/ruleset", &json!({"units": ["usd"], "rules": first["rules"]}));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.body.contains("unit \\\"tokens\\\" is not declared"), "{refused:?}");
    assert_eq!(revert(&service, 0).status, 200);
    assert_eq!(exported(&service), json!({"rules": [], "overrides": [], "allow": {}, "block": {}}));
}

#[test]
fn history_has_pages() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    for limit in 1..=3 {
        done(
            &service,
            "PUT",
            "/v1/ruleset",
            &json!({"rules": [per_user("a", limit), per_user("b.c", limit)]}),
        );
    }
    done(&service, "PUT", "/v1/overrides/a%7Cuser=ann", &json!({"verdict": "block"}));
    done(&service, "PUT", "/v1/lists/block/user/eve", &Value::Null);
    let all = entries(&service, "");
    assert_eq!(all.len(), 8);
    for size in [1, 3, 4, 8, 9] {
        let (mut paged, mut before) = (Vec::new(), String::new());
        loop {
            let page =
                done(&service, "GET", &format!("/v1/ruleset/history?limit={size}{before}"), &Value::Null);
            let found = page["entries"].as_array().unwrap();
            assert!(found.len() <= size);
            paged.extend(found.iter().cloned());
            let Some(next) = page["next"].as_u64() else { break };
            before = format!("&before={next}");
        }
        assert_eq!(paged, all, "{size}");
    }
    let about = |name: &str| told(&entries(&service, &format!("?about={name}"))).len();
    assert_eq!(["a", "b.c", "block", "b", "allow"].map(about), [4, 3, 1, 0, 0]);
}

#[test]
fn what_is_not_known_any_more_cannot_be_gone_back_to() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let mut known = vec![exported(&service)];
    for limit in 1..=6 {
        let id = format!("rule-{}", limit % 3);
        let set = json!({"rules": [per_user("always", 1), per_user(&id, limit)]});
        done(&service, "PUT", "/v1/ruleset", &set);
        known.push(exported(&service));
    }
    let is_at =
        |revision: usize| service.get(&format!("/v1/ruleset?revision={revision}")).json() == known[revision];
    assert!((0..=6).all(is_at));
    for wanted in [7, u64::MAX] {
        let future = revert(&service, wanted);
        assert_eq!(future.status, 404, "{future:?}");
        assert!(future.body.contains("the last one is 6"), "{future:?}");
    }
    let forgotten = |reply: Reply| reply.status == 404 && reply.body.contains("cannot be reconstructed");
    // A revision cannot be forgotten in part, because the gap would go unnoticed.
    for part in ["DELETE FROM rate_limit_history WHERE revision = 2", "TRUNCATE rate_limit_history"] {
        let refused = scene.database.sql(part).unwrap_err().to_string();
        assert!(refused.contains("whole revisions"), "{refused}");
    }
    assert!((0..=6).all(is_at));
    scene.database.sql("DELETE FROM rate_limit_revisions WHERE revision <= 4").unwrap();
    assert!(forgotten(revert(&service, 3)) && forgotten(service.get("/v1/ruleset?revision=0")));
    assert!((4..=6).all(is_at));
    assert_eq!(exported(&service), known[6]);
    assert_eq!(revert(&service, 4).status, 200);
    assert_eq!(exported(&service), known[4]);
}

/// The entries of a page may hold megabytes.
#[test]
fn a_long_history_is_read_by_the_thread_for_readers() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let mut rules: Vec<Value> = (0..1_000).map(|number| per_user(&format!("rule-{number}"), 7)).collect();
    rules.iter_mut().for_each(|rule| rule["name"] = json!("n".repeat(250)));
    done(&service, "PUT", "/v1/ruleset", &json!({"rules": rules}));
    is_done_by("rule-reads", &service, || {
        for _ in 0..20 {
            assert_eq!(entries(&service, "?limit=1000").len(), 1_000);
        }
    });
}
