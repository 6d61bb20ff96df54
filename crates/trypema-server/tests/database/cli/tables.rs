//! Creating the tables, and the error messages without them.

use trypema_testkit::postgres;
use trypema_testkit::program::FreePort;

use super::ran;
use crate::harness::Service;

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
        (Some(0), "migrations applied: rules, refill_rate, if_missing, explain_numbers\n"),
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
