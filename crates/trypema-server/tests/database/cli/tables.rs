//! Creating the tables, and the error messages without them.

use serde_json::{Value, json};
use trypema_testkit::postgres;
use trypema_testkit::program::FreePort;

use super::ran;
use crate::harness::Service;
use crate::scene::{Scene, done};

#[test]
fn tables_are_made_once() {
    let database = postgres::Server::start().unwrap();
    let url = database.url();
    let early = ran(&["serve", "--listen", "127.0.0.1:0", "--database-url", &url]);
    assert_eq!(early.code, Some(2), "{early:?}");
    assert!(early.err.contains("`trypema rules migrate`"), "{early:?}");

    let made = ran(&["rules", "migrate", "--database-url", &url]);
    assert_eq!(
        (made.code, made.out.as_str()),
        (
            Some(0),
            "migrations applied: rules, refill_rate, if_missing, explain_numbers, units_and_conditions, concurrency\n"
        ),
        "{made:?}"
    );
    let again = ran(&["rules", "migrate", "--database-url", &url]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "the tables are up to date\n"), "{again:?}");
    let service = Service::start(&["--database-url", &url]);
    assert_eq!(service.get("/readyz").status, 200);
}

/// A server of the previous version does not know units and conditions. It would apply such a rule to every
/// request. It reads all columns, and refuses the row because of one of them.
#[test]
fn rows_that_an_older_server_would_misunderstand_are_unreadable_to_it() {
    let scene = Scene::start();
    let columns = "id, scope, algorithm, limit_count, window_seconds";
    let numbers = "'user', 'fixed_window', 1, 1";
    let rows = format!(
        "BEGIN;
         INSERT INTO rate_limit_units (name) VALUES ('tokens');
         INSERT INTO rate_limit_rules ({columns}) VALUES ('plain', {numbers});
         INSERT INTO rate_limit_rules ({columns}, unit) VALUES ('unit', {numbers}, 'tokens');
         INSERT INTO rate_limit_rules ({columns}, postpaid) VALUES ('postpaid', {numbers}, true);
         INSERT INTO rate_limit_rules ({columns}, conditions) VALUES ('when', {numbers}, '{{\"model\": \"absent\"}}');
         COMMIT;"
    );
    scene.database.sql(&rows).unwrap();
    let read = |id: &str| {
        let row = format!("SELECT json_strip_nulls(to_json(r)) FROM rate_limit_rules r WHERE id = '{id}'");
        serde_json::from_str::<Value>(&scene.database.sql(&row).unwrap()).map_err(|error| error.to_string())
    };
    assert_eq!(read("plain").unwrap()["id"], "plain");
    for id in ["unit", "postpaid", "when"] {
        let error = read(id).unwrap_err();
        assert!(error.contains("number out of range"), "{id}: {error}");
    }
    let service = scene.service(&[]);
    assert_eq!(done(&service, "GET", "/v1/rules/when", &Value::Null)["when"], json!({"model": "absent"}));
    // A statement that changes nothing is not a change.
    scene.database.sql("UPDATE rate_limit_rules SET conditions = conditions, unit = unit").unwrap();
    assert_eq!(scene.database.sql("SELECT revision FROM rate_limit_state").unwrap(), "1");
}

#[test]
fn what_keeps_tables_from_being_made_is_told() {
    let database = postgres::Server::start().unwrap();
    let nobody = FreePort::any().unwrap();
    let nowhere = format!("postgres://trypema:s3cret@127.0.0.1:{}/trypema", nobody.number());
    let wrong = database.url_with_password("wr0ng");
    let missing = ran(&["rules", "migrate"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.err.contains("database_url"), "{missing:?}");
    for (url, code, reason) in [
        (&*wrong, 1, "password"),
        (&nowhere, 1, "refused"),
        ("mysql://here", 2, "postgres://user@host/database"),
        ("postgres://[", 2, "not a valid URL"),
        ("", 2, "database_url"),
    ] {
        let failed = ran(&["rules", "migrate", "--database-url", url]);
        assert_eq!((failed.code, failed.out.as_str()), (Some(code), ""), "{url}: {failed:?}");
        assert!(failed.err.contains(reason), "{url}: {failed:?}");
        assert!(!failed.err.contains("wr0ng") && !failed.err.contains("s3cret"), "{failed:?}");
    }
    let absent = ran(&["rules", "migrate", "--database-url-file", "/nowhere/url"]);
    assert_ne!(absent.code, Some(0));
    assert!(absent.err.contains("/nowhere/url"), "{absent:?}");
}

#[test]
fn help_is_given_for_each_command() {
    for (arguments, sentences) in [
        (&["rules"][..], &["migrate", "apply", "export", "history", "revert", "candidates", "promote"][..]),
        (&["rules", "migrate"], &["--database-url", "--database-url-file", "PostgreSQL"]),
        (&["rules", "apply"], &["--dry-run", "--yes", "--server", "--admin-token", "shows what changes"]),
        (&["rules", "export"], &["--revision", "YAML"]),
        (&["rules", "history"], &["--about", "--limit", "latest first"]),
        (&["rules", "revert"], &["--dry-run", "REVISION"]),
        (&["rules", "candidates"], &["--server"]),
        (&["keys"], &["show", "reset", "block", "allow", "unblock"]),
        (&["keys", "block"], &["per-user|user=ann", "on all servers"]),
        (&["serve"], &["--database-url", "--rules-poll", "--reader-token"]),
    ] {
        let help = ran(&[arguments, &["--help"]].concat());
        assert_eq!((help.code, help.err.as_str()), (Some(0), ""), "{arguments:?}");
        let words = help.out.split_whitespace().collect::<Vec<_>>().join(" ");
        for sentence in sentences {
            assert!(words.contains(sentence), "{arguments:?} does not say {sentence:?}:\n{}", help.out);
        }
    }
}
