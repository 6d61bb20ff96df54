//! Migrating while other sessions use the tables.

use std::thread;

use trypema_testkit::postgres::Server;
use trypema_testkit::redis::wait_until;

use super::upgrades::database_after;
use super::{Ran, ran};

/// Waits until a migration has begun, and for as long as it may need to lock a table.
const WAIT_FOR_MIGRATION: &str = "
    DO $$
    BEGIN
        WHILE NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted) LOOP
            PERFORM pg_sleep(0.02);
        END LOOP;
        PERFORM pg_sleep(1);
    END
    $$;";
const CHANGE: &str = "UPDATE rate_limit_rules SET limit_count = 7 WHERE id = 'all';";
/// The statement with which a server begins a change.
const LOCK_STATE: &str = "SELECT FROM rate_limit_state FOR UPDATE;";
const READ: &str = "SELECT count(*) FROM rate_limit_rules;";

fn migrate(database: &Server, options: &str) -> Ran {
    ran(&["rules", "migrate", "--database-url", &format!("{}{options}", database.url())])
}

/// Waits until another session has locked one of the tables.
fn wait_for_locks(database: &Server) {
    let locks = "SELECT count(*) FROM pg_locks
                 WHERE relation IN ('rate_limit_state'::regclass, 'rate_limit_rules'::regclass)";
    wait_until("a session to lock", || database.sql(locks).unwrap() != "0").unwrap();
}

/// A session locks in any order, and changes a rule after the migration has begun. Both succeed.
#[test]
fn a_change_in_progress_and_a_migration_wait_for_each_other() {
    let changes = [
        (2, LOCK_STATE.to_owned()),
        (3, format!("{LOCK_STATE}{READ}")),
        (3, READ.to_owned()),
        (4, READ.to_owned()),
        (5, "SELECT FROM rate_limit_rules FOR UPDATE;".to_owned()),
    ];
    for (version, begun) in changes {
        let database = database_after(version);
        let change = format!("BEGIN;{begun}{WAIT_FOR_MIGRATION}{CHANGE}COMMIT;");
        thread::scope(|scope| {
            let change = scope.spawn(|| database.sql(&change));
            wait_for_locks(&database);
            let migrated = migrate(&database, "");
            change.join().unwrap().unwrap_or_else(|error| panic!("version {version}: {begun} {error}"));
            assert_eq!((migrated.code, migrated.err.as_str()), (Some(0), ""), "version {version}: {begun}");
        });
        let changed = "SELECT limit_count FROM rate_limit_rules WHERE id = 'all'";
        assert_eq!(database.sql(changed).unwrap(), "7", "version {version}");
    }
}

/// A forgotten session blocks neither a deployment for ever, nor the sessions that read meanwhile.
#[test]
fn a_migration_names_the_session_that_keeps_it_from_locking_the_tables() {
    for (version, begun) in [(4, LOCK_STATE), (4, READ), (3, CHANGE)] {
        let database = database_after(version);
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
        let expected = "units_and_conditions, concurrency\n";
        assert!(made.code == Some(0) && made.out.ends_with(expected), "{made:?}");
    }
}
