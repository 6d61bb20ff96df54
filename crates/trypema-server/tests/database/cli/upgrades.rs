//! Upgrades of the tables of each earlier version, with rows.

use serde_json::{Value, json};
use trypema_testkit::postgres::Server;

use super::ran;
use crate::harness::Service;
use crate::scene::done;

/// The migrations, up to the one before the last.
const MIGRATIONS: [&str; 5] = [
    include_str!("../../../migrations/0001_rules.sql"),
    include_str!("../../../migrations/0002_refill_rate.sql"),
    include_str!("../../../migrations/0003_if_missing.sql"),
    include_str!("../../../migrations/0004_explain_numbers.sql"),
    include_str!("../../../migrations/0005_units_and_conditions.sql"),
];

/// Returns a database with the tables after this many migrations, with some rows in four revisions.
pub(super) fn database_after(migrations: usize) -> Server {
    let database = Server::start().unwrap();
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
    let columns = if migrations < 3 { "" } else { ", if_missing = 'deny'" };
    let rows = format!(
        "INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds)
         VALUES ('per-user', 'user', 'fixed_window', 2, 3600), ('all', 'global', 'absolute', 100, 60);
         INSERT INTO rate_limit_overrides (rule_id, key, algorithm, limit_count, window_seconds)
         VALUES ('per-user', '{{\"user\": \"ann\"}}', 'fixed_window', 5, 3600);
         INSERT INTO rate_limit_lists (list, attribute, value) VALUES ('block', 'user', 'eve');
         UPDATE rate_limit_rules SET limit_count = 3{columns} WHERE id = 'per-user';"
    );
    database.sql(&rows).unwrap();
    database
}

/// Migrates the tables, which must succeed, and returns the output.
fn migrate(database: &Server) -> String {
    let ran = ran(&["rules", "migrate", "--database-url", &database.url()]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    ran.out
}

/// Selects the definition of everything that migrations create, and its owner.
const SCHEMA: &str = "
    SELECT 'relation', relname, NULL, relkind::text, relowner::regrole::text, relacl::text
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE '\\_trypema%'
    UNION ALL SELECT 'column', attrelid::regclass::text, attnum::text, attname, format_type(atttypid, atttypmod),
           format('%s %s%s %s', attnotnull, attidentity, attgenerated, pg_get_expr(adbin, adrelid))
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE '\\_trypema%' AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated::text, NULL
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text NOT LIKE '\\_trypema%'
    UNION ALL SELECT 'index', tablename, indexname, indexdef, NULL, NULL
    FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE '\\_trypema%'
    UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), tgenabled::text, NULL
    FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'function', oid::regprocedure::text, NULL, pg_get_functiondef(oid), proowner::regrole::text, proacl::text
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    ORDER BY 1, 2, 3";

/// Returns the first line that only one of two texts has.
fn difference(one: &str, other: &str) -> Option<String> {
    let only = |one: &str, other: &str| {
        one.lines().find(|line| !other.lines().any(|same| same == *line)).map(str::to_owned)
    };
    only(one, other).or_else(|| only(other, one))
}

#[test]
fn each_earlier_schema_becomes_that_of_a_new_database() {
    let fresh = Server::start().unwrap();
    migrate(&fresh);
    let expected = fresh.sql(SCHEMA).unwrap();
    assert!(expected.lines().count() > 300, "{expected}");
    // A new migration belongs into the list above.
    let latest = fresh.sql("SELECT max(version) FROM _trypema_migrations").unwrap();
    assert_eq!(latest, (MIGRATIONS.len() + 1).to_string());

    for version in 1..=MIGRATIONS.len() {
        let database = database_after(version);
        if version >= 5 {
            let counting = "INSERT INTO rate_limit_units (name) VALUES ('tokens');
                UPDATE rate_limit_rules SET unit = 'tokens', conditions = '{\"model\": [\"a\"]}' WHERE id = 'all';";
            database.sql(counting).unwrap();
        }
        let tables = "SELECT string_agg(format('SELECT to_jsonb(r) FROM %I r ORDER BY to_jsonb(r)::text', relname), ';' ORDER BY relname)
            FROM pg_class WHERE relname LIKE 'rate\\_limit%' AND relkind = 'r'";
        let rows = database.sql(tables).unwrap();
        let added = "'{if_missing,unit,postpaid,conditions,per,zone,starts,hold_seconds,refused_by_older_servers}'::text[]";
        let rows = rows.replace("to_jsonb(r)", &format!("(to_jsonb(r) - {added})"));
        let before = database.sql(&rows).unwrap();
        assert!(before.lines().count() >= 13, "version {version}: {before}");

        migrate(&database);
        assert_eq!(difference(&database.sql(SCHEMA).unwrap(), &expected), None, "version {version}");
        assert_eq!(database.sql(&rows).unwrap(), before, "version {version}");
        assert_eq!(migrate(&database), "the tables are up to date\n");
        let service = Service::start(&["--database-url", &database.url()]);
        let stored = done(&service, "GET", "/v1/ruleset", &Value::Null);
        assert_eq!(stored["rules"].as_array().unwrap().len(), 2, "version {version}");
        done(&service, "POST", "/v1/ruleset/revert", &json!({"to": 1}));
    }
}

/// Only the normalized form of a path has ever matched, so the migration removes no override that was in
/// force.
#[test]
fn of_overrides_for_one_path_the_one_that_matched_is_kept() {
    let database = database_after(2);
    let rows = "
        DELETE FROM rate_limit_overrides;
        INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds) VALUES ('each', 'endpoint', 'fixed_window', 1, 1);
        INSERT INTO rate_limit_overrides (rule_id, key, verdict) VALUES
            ('each', '{\"endpoint\": \"/admin/\"}', 'allow'), ('each', '{\"endpoint\": \"/admin\"}', 'block'),
            ('each', '{\"endpoint\": \"//b\"}', 'block'), ('each', '{\"endpoint\": \"/%ff\"}', 'block');";
    database.sql(rows).unwrap();
    let gone = "SELECT count(*) FROM rate_limit_history WHERE after IS NULL AND name LIKE 'each %'";
    assert_eq!(database.sql(gone).unwrap(), "0");
    let made = migrate(&database);
    assert_eq!(made, "migrations applied: if_missing, explain_numbers, units_and_conditions, concurrency\n");
    let kept = database
        .sql("SELECT key ->> 'endpoint' || ' ' || verdict FROM rate_limit_overrides ORDER BY 1")
        .unwrap();
    assert_eq!(kept, "//b block\n/admin block");
    assert_eq!(database.sql("SELECT DISTINCT if_missing FROM rate_limit_rules").unwrap(), "skip");
    assert_eq!(database.sql(gone).unwrap(), "2", "history tells what went");
    let service = Service::start(&["--database-url", &database.url()]);
    assert_eq!(service.get("/readyz").status, 200);
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
    let owners = "SELECT DISTINCT proowner::regrole FROM pg_proc WHERE proname LIKE 'trypema%'";
    assert_eq!(database.sql(owners).unwrap(), "trypema", "the next migration replaces functions");

    let service = Service::start(&["--database-url", &database.url()]);
    let counting = json!({"units": ["tokens"], "rules": [{"id": "all", "scope": "global", "unit": "tokens",
        "strategy": {"fixed_window": {"limit": 1, "window": "1h"}}}]});
    done(&service, "PUT", "/v1/ruleset", &counting);
}

/// A role that may create tables migrates those of the servers' role, which may not (the default since
/// PostgreSQL 15).
#[test]
fn an_owner_that_may_not_create_tables_gets_the_rights_on_the_new_one() {
    let database = database_after(4);
    database
        .sql(
            "ALTER SCHEMA public OWNER TO postgres;
             CREATE ROLE deployer LOGIN PASSWORD 'd3ploy' IN ROLE trypema;
             GRANT USAGE ON SCHEMA public TO PUBLIC;
             GRANT CREATE ON SCHEMA public TO deployer;",
        )
        .unwrap();
    let deployer = format!("postgres://deployer:d3ploy@{}/trypema", database.addr());
    let made = ran(&["rules", "migrate", "--database-url", &deployer]);
    assert_eq!(made.out, "migrations applied: units_and_conditions, concurrency\n", "{made:?}");
    let owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'rate_limit_units'";
    assert_eq!(database.sql(owner).unwrap(), "deployer");

    let service = Service::start(&["--database-url", &database.url()]);
    let counting = json!({"units": ["tokens"], "rules": [{"id": "all", "scope": "global", "unit": "tokens",
        "strategy": {"fixed_window": {"limit": 1, "window": "1h"}}}]});
    done(&service, "PUT", "/v1/ruleset", &counting);
    done(&service, "POST", "/v1/ruleset/revert", &json!({"to": 4}));
    database.sql("SET ROLE trypema; GRANT SELECT ON rate_limit_units TO pg_monitor").unwrap();
}
