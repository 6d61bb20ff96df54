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

/// Returns the tables to their state after the second migration.
const BEFORE_IF_MISSING: &str = "
    ALTER TABLE rate_limit_overrides DROP CONSTRAINT endpoint_of_key_is_text;
    DROP INDEX one_override_for_each_key;
    CREATE UNIQUE INDEX one_override_for_each_key ON rate_limit_overrides (rule_id, trypema_folded(key));
    ALTER TABLE rate_limit_rules DROP COLUMN if_missing;
    DROP FUNCTION trypema_counted(jsonb), trypema_path(text), trypema_segment(text);
    DELETE FROM _trypema_migrations WHERE version = 3;";

/// Only the normalized form of a path has ever matched, so the migration removes no override that was in
/// force.
#[test]
fn of_overrides_for_one_path_the_one_that_matched_is_kept() {
    let database = postgres::Server::start().unwrap();
    let url = database.url();
    assert_eq!(ran(&["rules", "migrate", "--database-url", &url]).code, Some(0));
    let rows = "
        INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds) VALUES ('each', 'endpoint', 'fixed_window', 1, 1);
        INSERT INTO rate_limit_overrides (rule_id, key, verdict) VALUES
            ('each', '{\"endpoint\": \"/admin/\"}', 'allow'), ('each', '{\"endpoint\": \"/admin\"}', 'block'),
            ('each', '{\"endpoint\": \"//b\"}', 'block'), ('each', '{\"endpoint\": \"/%ff\"}', 'block');";
    database.sql(&format!("{BEFORE_IF_MISSING}{rows}")).unwrap();
    let made = ran(&["rules", "migrate", "--database-url", &url]);
    assert_eq!(made.out, "migrations applied: if_missing\n", "{made:?}");
    let kept = database
        .sql("SELECT key ->> 'endpoint' || ' ' || verdict FROM rate_limit_overrides ORDER BY 1")
        .unwrap();
    assert_eq!(kept, "//b block\n/admin block");
    assert_eq!(database.sql("SELECT if_missing FROM rate_limit_rules").unwrap(), "skip");
    let gone = database.sql("SELECT count(*) FROM rate_limit_history WHERE after IS NULL").unwrap();
    assert_eq!(gone, "2", "history tells what went");
    let service = Service::start(&["--database-url", &url]);
    assert_eq!(service.get("/readyz").status, 200);
}

/// The migrations, up to the one before the last.
const MIGRATIONS: [&str; 5] = [
    include_str!("../../../migrations/0001_rules.sql"),
    include_str!("../../../migrations/0002_refill_rate.sql"),
    include_str!("../../../migrations/0003_if_missing.sql"),
    include_str!("../../../migrations/0004_explain_numbers.sql"),
    include_str!("../../../migrations/0005_units_and_conditions.sql"),
];

/// Returns a database with the tables after this many migrations, with some rows.
fn database_after(migrations: usize) -> postgres::Server {
    let database = postgres::Server::start().unwrap();
    assert_eq!(ran(&["rules", "migrate", "--database-url", &database.url()]).code, Some(0));
    // The table of migrations has their checksums.
    let emptied = format!(
        "CREATE SCHEMA kept;
        CREATE TABLE kept.migrations AS SELECT * FROM _trypema_migrations WHERE version <= {migrations};
        DROP SCHEMA public CASCADE;
        CREATE SCHEMA public;"
    );
    let migrated = "CREATE TABLE _trypema_migrations AS TABLE kept.migrations; DROP SCHEMA kept CASCADE;";
    let made = MIGRATIONS[..migrations].join("\n");
    // The tables belong to the role that migrates.
    database.sql(&format!("SET ROLE trypema;\nBEGIN;\n{emptied}\n{made}\n{migrated}\nCOMMIT;")).unwrap();
    let rows = "
        INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds, if_missing)
        VALUES ('per-user', 'user', 'fixed_window', 2, 3600, 'deny'), ('all', 'global', 'absolute', 100, 60, 'skip');
        INSERT INTO rate_limit_overrides (rule_id, key, algorithm, limit_count, window_seconds)
        VALUES ('per-user', '{\"user\": \"ann\"}', 'fixed_window', 5, 3600);
        INSERT INTO rate_limit_lists (list, attribute, value) VALUES ('block', 'user', 'eve');
        UPDATE rate_limit_rules SET limit_count = 3 WHERE id = 'per-user';";
    database.sql(rows).unwrap();
    database
}

#[test]
fn rows_and_history_of_the_previous_version_are_kept() {
    let database = database_after(4);
    let url = database.url();
    let rows = "SELECT to_jsonb(r) FROM rate_limit_rules r ORDER BY id";
    let columns =
        "'{unit,postpaid,conditions,per,zone,starts,refused_by_older_servers,hold_seconds}'::text[]";
    let before = database.sql(rows).unwrap();
    let early = ran(&["serve", "--listen", "127.0.0.1:0", "--database-url", &url]);
    assert_eq!(early.code, Some(2), "{early:?}");
    assert!(early.err.contains("`trypema rules migrate`"), "{early:?}");

    let made = ran(&["rules", "migrate", "--database-url", &url]);
    assert_eq!(made.out, "migrations applied: units_and_conditions, concurrency\n", "{made:?}");
    let after = database.sql(&rows.replace("to_jsonb(r)", &format!("to_jsonb(r) - {columns}"))).unwrap();
    assert_eq!(after, before);
    let added = "SELECT DISTINCT unit IS NULL, postpaid, conditions, refused_by_older_servers IS NULL FROM rate_limit_rules";
    assert_eq!(database.sql(added).unwrap(), "t|f|{}|t");
    assert_eq!(database.sql("SELECT revision FROM rate_limit_state").unwrap(), "4");

    let service = Service::start(&["--database-url", &url]);
    let exported = |path: &str| done(&service, "GET", path, &Value::Null);
    let stored = exported("/v1/ruleset");
    assert_eq!(stored["rules"].as_array().unwrap().len(), 2);
    let first = exported("/v1/ruleset?revision=1");
    assert_eq!(first["rules"][1]["strategy"]["fixed_window"]["limit"], 2);
    let counting = json!({"units": ["tokens"], "rules": [{"id": "all", "scope": "global", "unit": "tokens",
        "when": {"model": ["gpt-*"]}, "strategy": {"fixed_window": {"limit": 1, "window": "1h"}}}]});
    done(&service, "PUT", "/v1/ruleset", &counting);
    done(&service, "POST", "/v1/ruleset/revert", &json!({"to": 4}));
    assert_eq!(exported("/v1/ruleset"), stored);
}

#[test]
fn tables_without_concurrency_are_upgraded() {
    let database = database_after(5);
    let url = database.url();
    let rows = "SELECT to_jsonb(r) - 'hold_seconds' FROM rate_limit_rules r ORDER BY id";
    let before = database.sql(rows).unwrap();
    let insert = "INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count) VALUES ('early', 'user', 'concurrency', 1)";
    let refused = database.sql(insert).unwrap_err().to_string();
    assert!(refused.contains("algorithm_is_known"), "{refused}");
    let early = ran(&["serve", "--listen", "127.0.0.1:0", "--database-url", &url]);
    assert_eq!(early.code, Some(2), "{early:?}");
    assert!(early.err.contains("`trypema rules migrate`"), "{early:?}");

    let made = ran(&["rules", "migrate", "--database-url", &url]);
    assert_eq!(made.out, "migrations applied: concurrency\n", "{made:?}");
    assert_eq!(database.sql(rows).unwrap(), before);
    assert_eq!(database.sql("SELECT revision FROM rate_limit_state").unwrap(), "4");

    let service = Service::start(&["--database-url", &url]);
    let exported = |path: &str| done(&service, "GET", path, &Value::Null);
    let old = exported("/v1/ruleset");
    let in_flight = |limit: u64, hold: &str| {
        json!({"id": "in-flight", "scope": "user", "unit": null,
               "strategy": {"concurrency": {"limit": limit, "hold": hold}}})
    };
    done(&service, "POST", "/v1/rules", &in_flight(20, "1m"));
    done(&service, "PUT", "/v1/rules/in-flight", &in_flight(20, "1h"));
    let numbers = "SELECT algorithm, limit_count, hold_seconds, window_seconds IS NULL, refused_by_older_servers IS NULL
                   FROM rate_limit_rules WHERE id = 'in-flight'";
    assert_eq!(database.sql(numbers).unwrap(), "concurrency|20|3600.000000|t|t");
    // The history has the numbers of both revisions.
    let history = "SELECT before -> 'hold_seconds', after -> 'hold_seconds' FROM rate_limit_history
                   WHERE name = 'in-flight' ORDER BY id";
    assert_eq!(database.sql(history).unwrap(), "|60.000000\n60.000000|3600.000000");
    let then = exported("/v1/ruleset?revision=5");
    let rule = then["rules"].as_array().unwrap().iter().find(|rule| rule["id"] == "in-flight").unwrap();
    assert_eq!(rule["strategy"], in_flight(20, "1m")["strategy"]);
    done(&service, "POST", "/v1/ruleset/revert", &json!({"to": 4}));
    assert_eq!(exported("/v1/ruleset"), old);
}

/// After the migration, a server needs no further rights.
#[test]
fn roles_get_the_rights_that_they_have_on_lists() {
    let database = database_after(4);
    database
        .sql(
            "GRANT SELECT, UPDATE ON rate_limit_lists TO pg_monitor WITH GRANT OPTION;
             GRANT SELECT ON rate_limit_lists TO PUBLIC;",
        )
        .unwrap();
    assert_eq!(ran(&["rules", "migrate", "--database-url", &database.url()]).code, Some(0));
    let rights = |table: &str| {
        let rights = format!(
            "SELECT DISTINCT grantee, privilege_type, is_grantable FROM information_schema.table_privileges
             WHERE table_name = '{table}' ORDER BY 1, 2"
        );
        database.sql(&rights).unwrap()
    };
    assert_eq!(rights("rate_limit_units"), rights("rate_limit_lists"));
    assert!(rights("rate_limit_units").contains("pg_monitor|UPDATE|YES"), "{}", rights("rate_limit_units"));
}

/// The servers' role owns the tables, and a superuser migrates them.
#[test]
fn tables_keep_their_owner_if_another_role_migrates_them() {
    let database = database_after(4);
    database.sql("CREATE ROLE admin SUPERUSER LOGIN PASSWORD 'adm1n'").unwrap();
    let admin = format!("postgres://admin:adm1n@{}/trypema", database.addr());
    let made = ran(&["rules", "migrate", "--database-url", &admin]);
    assert_eq!(made.out, "migrations applied: units_and_conditions, concurrency\n", "{made:?}");
    let owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE tablename LIKE 'rate_limit_%'";
    assert_eq!(database.sql(owners).unwrap(), "trypema");

    let service = Service::start(&["--database-url", &database.url()]);
    let counting = json!({"units": ["tokens"], "rules": [{"id": "all", "scope": "global", "unit": "tokens",
        "strategy": {"fixed_window": {"limit": 1, "window": "1h"}}}]});
    done(&service, "PUT", "/v1/ruleset", &counting);
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
