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
    assert_eq!((made.code, made.out.as_str()), (Some(0), "migrations applied: rules\n"), "{made:?}");
    let again = ran(&["rules", "migrate", "--database-url", &url]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "the tables are up to date\n"), "{again:?}");
    let service = Service::start(&["--database-url", &url]);
    assert_eq!(service.get("/readyz").status, 200);
}

/// This version would misread the tables of an earlier one.
#[test]
fn tables_that_lack_a_migration_are_not_used() {
    let database = postgres::Server::start().unwrap();
    let url = database.url();
    assert_eq!(ran(&["rules", "migrate", "--database-url", &url]).code, Some(0));
    let older = "DO $$ BEGIN EXECUTE replace(pg_get_functiondef('trypema_rules'::regproc), '''schema'', 1', '''schema'', 0'); END $$";
    database.sql(older).unwrap();
    let early = ran(&["serve", "--listen", "127.0.0.1:0", "--database-url", &url]);
    assert_eq!(early.code, Some(2), "{early:?}");
    assert!(early.err.contains("`trypema rules migrate`"), "{early:?}");
}

/// A later version may have fields of rules that this one does not know, and an earlier one lacks some.
#[test]
fn fields_are_added_and_never_removed() {
    let database = postgres::Server::start().unwrap();
    let url = database.url();
    let known = "SELECT trypema_extra_keys() @> '{when,per,shape}', cardinality(trypema_extra_keys()) > 3";
    assert_eq!(ran(&["rules", "migrate", "--database-url", &url]).code, Some(0));
    assert_eq!(database.sql(known).unwrap().trim(), "f|t");
    let other = "CREATE OR REPLACE FUNCTION trypema_extra_keys() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN '{when,shape}'::text[]";
    database.sql(other).unwrap();
    assert_eq!(ran(&["rules", "migrate", "--database-url", &url]).code, Some(0));
    assert_eq!(database.sql(known).unwrap().trim(), "t|t");
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
        (
            &["rules"][..],
            &["migrate", "check", "apply", "export", "history", "revert", "candidates", "promote"][..],
        ),
        (&["rules", "migrate"], &["--database-url", "--database-url-file", "PostgreSQL"]),
        (&["rules", "check"], &["--database", "--database-url", "SELECT trypema_rules()", "standard input"]),
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
