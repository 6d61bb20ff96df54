//! Tables that are nearly the documented one: other types, fewer and more columns, no primary key.

use serde_json::Value;

use super::{ROWS, VALUES, adopt, database, in_force, serve};
use crate::scene::done;

/// A table with each documented column in another type that can hold the same values.
const OTHER_TYPES: &str = "
    CREATE TYPE limit_scope AS ENUM ('global', 'tenant', 'user', 'ip', 'endpoint');
    CREATE TABLE rate_limit_rules (
        id text, name text, key_pattern text, scope limit_scope, algorithm text, limit_count bigint, window_seconds double precision,
        burst_limit numeric, refill_rate double precision, plan_tiers text[], endpoints text[] NOT NULL, action text NOT NULL,
        priority smallint, enabled boolean NOT NULL, created_at timestamptz, updated_at timestamp
    );";

#[test]
fn other_types_are_converted_without_loss() {
    let database = database(&format!("{OTHER_TYPES}{ROWS}"));
    let with_zone = VALUES.replace("updated_at\n", "updated_at::timestamptz\n");
    let before = database.sql(&format!("SET timezone = 'UTC'; {with_zone}")).unwrap();
    assert!(adopt(&database).contains("(rules: 3)\n"));
    assert_eq!(database.sql(&format!("SET timezone = 'UTC'; {VALUES}")).unwrap(), before);
    assert_eq!(in_force(&serve(&database)).len(), 3);
}

/// Missing columns are added with their defaults. Columns beyond the documented ones stay.
#[test]
fn columns_are_added_and_further_ones_stay() {
    let database = database(
        "
        CREATE TABLE rate_limit_rules (
            id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE, key_pattern text, scope text, algorithm text,
            limit_count integer, window_seconds integer, team text DEFAULT 'core', label text GENERATED ALWAYS AS ('team ' || team) STORED
        );
        CREATE INDEX by_team ON rate_limit_rules (team);
        INSERT INTO rate_limit_rules (name, key_pattern, scope, algorithm, limit_count, window_seconds, team)
        VALUES ('a', 'user:{user}', 'user', 'fixed_window', 5, 60, 'edge'), ('b', 'all', 'global', 'fixed_window', 50, 60, NULL);",
    );
    adopt(&database);
    let rows = "SELECT id, team, label, action, priority, enabled FROM rate_limit_rules ORDER BY id";
    assert_eq!(database.sql(rows).unwrap(), "1|edge|team edge|reject|100|t\n2|||reject|100|t");
    let service = serve(&database);
    assert_eq!(in_force(&service), ["1", "2"]);
    done(&service, "PATCH", "/v1/rules/1", &serde_json::json!({"enabled": false}));
    done(&service, "POST", "/v1/rules", &crate::scene::per_user("from-http", 5));
    let rows = "SELECT id, team, enabled FROM rate_limit_rules ORDER BY id";
    assert_eq!(database.sql(rows).unwrap(), "1|edge|f\n2||t\nfrom-http|core|t");
    assert_eq!(database.sql("SELECT count(*) FROM pg_indexes WHERE indexname = 'by_team'").unwrap(), "1");
}

/// The documented table allows NULL in more columns than ours. Such values become the documented defaults,
/// and each is reported.
#[test]
fn nulls_get_their_defaults_and_are_told() {
    let database = database(&format!("{}{ROWS}", super::DOCUMENTED));
    database
        .sql(
            "UPDATE rate_limit_rules SET plan_tiers = NULL, endpoints = NULL, action = NULL, priority = NULL,
                 created_at = NULL, updated_at = NULL WHERE name = 'per user'",
        )
        .unwrap();
    let out = adopt(&database);
    for column in ["plan_tiers", "endpoints", "action", "priority", "created_at", "updated_at"] {
        let line =
            format!("rule 00000000-0000-0000-0000-000000000002: {column} was NULL and has its default now\n");
        assert!(out.contains(&line), "{out}");
    }
    assert_eq!(out.matches("was NULL").count(), 6, "{out}");
    let service = serve(&database);
    let rule = done(&service, "GET", "/v1/rules/00000000-0000-0000-0000-000000000002", &Value::Null);
    assert_eq!((rule["action"].as_str(), rule["priority"].as_i64()), (Some("reject"), Some(100)), "{rule}");
}

#[test]
fn numbers_with_decimals_that_are_zero_are_whole() {
    let database = database(
        "
        CREATE TABLE rate_limit_rules (
            id text PRIMARY KEY, name text, key_pattern text, scope text, algorithm text, limit_count numeric(12,2),
            window_seconds numeric(12,2)
        );
        INSERT INTO rate_limit_rules VALUES ('a', 'a', 'user:{user}', 'user', 'fixed_window', 100, 60);",
    );
    assert!(adopt(&database).contains("(rules: 1)\n"));
    assert_eq!(in_force(&serve(&database)), ["a"]);
}
