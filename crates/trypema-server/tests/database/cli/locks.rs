//! Adopting a table while other sessions use it.

use std::thread;

use trypema_testkit::postgres::Server;
use trypema_testkit::redis::wait_until;

use super::{Ran, ran};

/// Waits until a migration has begun, and for as long as it may need to lock the table.
const WAIT_FOR_MIGRATION: &str = "
    DO $$
    BEGIN
        WHILE NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted) LOOP
            PERFORM pg_sleep(0.02);
        END LOOP;
        PERFORM pg_sleep(1);
    END
    $$;";
const CHANGE: &str = "UPDATE rate_limit_rules SET limit_count = 7;";
const READ: &str = "SELECT count(*) FROM rate_limit_rules;";

/// Returns a database with the documented table, which has a rule.
fn database() -> Server {
    let database = Server::start().unwrap();
    let table = include_str!("../../../../../testdata/database/documented_rules.sql");
    let row =
        "INSERT INTO rate_limit_rules (name, key_pattern, scope, algorithm, limit_count, window_seconds)
               VALUES ('all', 'all', 'global', 'fixed_window', 5, 60);";
    database.sql(&format!("SET ROLE trypema;\n{table}{row}")).unwrap();
    database
}

fn migrate(database: &Server, options: &str) -> Ran {
    ran(&["rules", "migrate", "--database-url", &format!("{}{options}", database.url())])
}

/// Waits until another session has locked the table.
fn wait_for_locks(database: &Server) {
    let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'rate_limit_rules'::regclass";
    wait_until("a session to lock", || database.sql(locks).unwrap() != "0").unwrap();
}

/// A session has read or locked rows, and changes a rule after the migration has begun. Both succeed.
#[test]
fn a_change_in_progress_and_a_migration_wait_for_each_other() {
    for begun in [READ, "SELECT FROM rate_limit_rules FOR UPDATE;"] {
        let database = database();
        let change = format!("BEGIN;{begun}{WAIT_FOR_MIGRATION}{CHANGE}COMMIT;");
        thread::scope(|scope| {
            let change = scope.spawn(|| database.sql(&change));
            wait_for_locks(&database);
            let migrated = migrate(&database, "");
            change.join().unwrap().unwrap_or_else(|error| panic!("{begun} {error}"));
            assert_eq!((migrated.code, migrated.err.as_str()), (Some(0), ""), "{begun}");
        });
        assert_eq!(database.sql("SELECT limit_count FROM rate_limit_rules").unwrap(), "7");
    }
}

/// A forgotten session blocks neither a deployment for ever, nor the sessions that read meanwhile.
#[test]
fn a_migration_names_the_session_that_keeps_it_from_locking_the_tables() {
    for begun in [READ, CHANGE] {
        let database = database();
        let session = format!("SET application_name = 'forgotten'; BEGIN;{begun}SELECT pg_sleep(120);");
        thread::scope(|scope| {
            let forgotten = scope.spawn(|| database.sql(&session));
            wait_for_locks(&database);
            let migrating = scope.spawn(|| migrate(&database, "?options[lock_timeout]=1500ms"));
            while !migrating.is_finished() {
                database.sql(&format!("SET statement_timeout = '700ms'; {READ}")).unwrap();
            }
            let refused = migrating.join().unwrap();
            assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{begun}: {refused:?}");
            for part in [
                "(forgotten, role postgres)",
                "pg_terminate_backend",
                "trypema rules migrate",
                "lock_timeout",
            ] {
                assert!(refused.err.contains(part), "{begun}: {part}: {}", refused.err);
            }
            let end = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = 'forgotten'";
            assert_eq!(database.sql(end).unwrap(), "t");
            assert!(forgotten.join().unwrap().is_err(), "it was ended");
        });
        let made = migrate(&database, "");
        assert!(made.code == Some(0) && made.out.starts_with("adopted the table"), "{made:?}");
    }
}
