//! `trypema rules migrate` on a database that already has the documented table, created by another program.

#[path = "adopting/odd_tables.rs"]
mod odd_tables;
#[path = "adopting/refused.rs"]
mod refused;
#[path = "adopting/unusable.rs"]
mod unusable;

use serde_json::{Value, json};
use trypema_testkit::postgres::Server;

use crate::harness::{Service, trypema};
use crate::scene::{done, is_allowed};

/// The documented table, as another program creates it.
const DOCUMENTED: &str = include_str!("../../../../testdata/database/documented_rules.sql");

/// Rows with the values that the table's comments name.
const ROWS: &str = "
    INSERT INTO rate_limit_rules (id, name, key_pattern, scope, algorithm, limit_count, window_seconds, burst_limit, refill_rate,
        plan_tiers, endpoints, action, priority, enabled, created_at, updated_at)
    VALUES
    ('00000000-0000-0000-0000-000000000001', 'per tenant', 'tenant:{api_key}', 'tenant', 'token_bucket', 1000, 60, 1200, 16.5,
        '{free, pro}', '{/api/search}', 'throttle', 10, TRUE, '2025-01-02 03:04:05.678901+02', '2025-02-03 04:05:06+00'),
    ('00000000-0000-0000-0000-000000000002', 'per user', 'user:{user}', 'user', 'fixed_window', 2, 31536000, NULL, NULL,
        '{}', '{}', 'reject', 100, TRUE, '2025-01-02 03:04:05.678901+02', '2025-02-03 04:05:06+00'),
    ('00000000-0000-0000-0000-000000000003', 'everybody', 'all', 'global', 'sliding_window', 100000, 1, NULL, NULL,
        '{}', '{}', 'log_only', 1, FALSE, '2025-01-02 03:04:05.678901+02', '2025-02-03 04:05:06+00');";

/// Selects every value of the documented columns, in a fixed order.
const VALUES: &str = "
    SELECT id, name, key_pattern, scope, algorithm, limit_count, trim_scale(window_seconds::numeric), burst_limit, refill_rate, plan_tiers,
           endpoints, action, priority, enabled, created_at, updated_at
    FROM rate_limit_rules ORDER BY id";

/// The output and the exit code of a command.
#[derive(Debug, PartialEq, Eq)]
struct Migrated {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Starts a database in which the server's role has run these statements.
fn database(statements: &str) -> Server {
    let database = Server::start().unwrap();
    database.sql(&format!("SET ROLE trypema;\n{statements}")).unwrap();
    database
}

fn migrate(database: &Server) -> Migrated {
    let output = trypema().args(["rules", "migrate", "--database-url", &database.url()]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Migrated { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Runs the migration, which must succeed, and returns its output.
fn adopt(database: &Server) -> String {
    let Migrated { code, out, err } = migrate(database);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    out
}

fn serve(database: &Server) -> Service {
    Service::start(&["--database-url", &database.url()])
}

/// Returns the ids of the rules in force.
fn in_force(service: &Service) -> Vec<String> {
    let rules = done(service, "GET", "/v1/ruleset", &Value::Null);
    rules["rules"].as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap().to_owned()).collect()
}

/// Selects the definition of the table, except the order of columns, which does not matter, and casts of
/// texts, which PostgreSQL prints differently each time it parses an expression.
const SHAPE: &str = "
    SELECT 'column', attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid)
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = 'rate_limit_rules'::regclass AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT 'constraint', conname,
           translate(regexp_replace(pg_get_constraintdef(oid), '::(character varying|text)(\\[\\])?', '', 'g'), '()', ''), convalidated, NULL FROM pg_constraint
    WHERE conrelid = 'rate_limit_rules'::regclass AND contype <> 'n'
    UNION ALL SELECT 'index', indexname, indexdef, true, NULL FROM pg_indexes WHERE tablename = 'rate_limit_rules'
    UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(oid), tgenabled = 'O', NULL FROM pg_trigger
    WHERE tgrelid = 'rate_limit_rules'::regclass AND NOT tgisinternal
    UNION ALL SELECT 'relation', relname, relkind::text, true, NULL FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind <> 'i'
    ORDER BY 1, 2, 3";

#[test]
fn the_documented_table_is_adopted_with_its_rows() {
    let database = database(&format!("{DOCUMENTED}{ROWS}"));
    let before = database.sql(VALUES).unwrap();
    assert_eq!(
        adopt(&database),
        "adopted the table rate_limit_rules (rules: 3)\nmigrations applied: rules\n"
    );
    assert_eq!(database.sql(VALUES).unwrap(), before, "every value is kept, time stamps included");
    let fresh = Server::start().unwrap();
    adopt(&fresh);
    assert_eq!(
        database.sql(SHAPE).unwrap(),
        fresh.sql(SHAPE).unwrap(),
        "it is the table that a new database has"
    );

    let service = serve(&database);
    assert_eq!(in_force(&service).len(), 3);
    assert_eq!([(); 3].map(|()| is_allowed(&service, "ann")), [true, true, false]);
    let tenant = done(&service, "GET", "/v1/rules/00000000-0000-0000-0000-000000000001", &Value::Null);
    assert_eq!(
        tenant["strategy"],
        json!({"token_bucket": {"limit": 1000, "window": "1m", "burst": 1200, "refill_rate": 16.5}})
    );
    let history = done(&service, "GET", "/v1/ruleset/history", &Value::Null);
    let entries = history["entries"].as_array().unwrap_or_else(|| panic!("{history}"));
    assert_eq!(entries.len(), 3);
    assert!(
        entries.iter().all(|entry| entry["changed_by"] == "trypema rules migrate" && entry["revision"] == 1)
    );
}

#[test]
fn a_second_run_changes_nothing() {
    let database = database(&format!("{DOCUMENTED}{ROWS}"));
    adopt(&database);
    let everything = || {
        let tables = "SELECT * FROM rate_limit_state; SELECT * FROM rate_limit_rules ORDER BY id; SELECT * FROM _trypema_migrations";
        database.sql(tables).unwrap()
    };
    let before = everything();
    assert_eq!(adopt(&database), "the tables are up to date\n");
    assert_eq!(everything(), before);
}

/// One program adopts the table. The other waits for it, and finds nothing to do.
#[test]
fn two_programs_adopt_it_once() {
    let database = database(&format!("{DOCUMENTED}{ROWS}"));
    let outcomes = std::thread::scope(|scope| {
        let runs = [(); 2].map(|()| scope.spawn(|| adopt(&database)));
        runs.map(|run| run.join().unwrap())
    });
    let adopted = outcomes.iter().filter(|out| out.starts_with("adopted the table")).count();
    let idle = outcomes.iter().filter(|out| *out == "the tables are up to date\n").count();
    assert_eq!((adopted, idle), (1, 1), "{outcomes:?}");
    assert_eq!(database.sql("SELECT count(*), max(revision) FROM rate_limit_rules").unwrap(), "3|1");
}

/// Statements that were written for the documented table keep working.
#[test]
fn its_statements_still_work() {
    let database = database(&format!("{DOCUMENTED}{ROWS}GRANT SELECT ON rate_limit_rules TO PUBLIC;"));
    adopt(&database);
    let insert = "
        SET ROLE trypema;
        INSERT INTO rate_limit_rules (id, name, key_pattern, scope, algorithm, limit_count, window_seconds)
        VALUES (gen_random_uuid(), 'new', 'ip:{ip}', 'ip', 'fixed_window', 5, 60);
        UPDATE rate_limit_rules SET limit_count = 7 WHERE name = 'new'";
    database.sql(insert).unwrap();
    assert_eq!(
        database.sql("SELECT max(revision) FROM rate_limit_rules WHERE limit_count = 7").unwrap(),
        "3"
    );
    let granted = "SELECT has_table_privilege('pg_monitor', 'rate_limit_rules', 'SELECT')";
    assert_eq!(database.sql(granted).unwrap(), "t", "grants stay");
}
