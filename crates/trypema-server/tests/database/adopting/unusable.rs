//! Rows of the documented table that no server can use: they are set aside and reported, and the others are
//! in force.

use serde_json::{Value, json};

use super::{DOCUMENTED, Migrated, ROWS, adopt, database, in_force, migrate, serve};
use crate::scene::{done, is_allowed};

/// Rows that the documented table accepts: the last digit of the id, the invalid column, and the reported
/// error.
const BAD: [(&str, &str, &str); 12] = [
    ("a", "algorithm = 'gcra'", "algorithm: unknown: need one of absolute"),
    ("b", "scope = 'galaxy'", "scope: need one of global, tenant, user, ip, endpoint, not \"galaxy\""),
    ("c", "limit_count = 0", "limit_count: invalid limit 0"),
    ("d", "window_seconds = -5", "-5 seconds is not a valid duration"),
    ("e", "key_pattern = 'user:{user'", "key_pattern: "),
    ("f", "endpoints = '{api}'", "endpoints[0]: "),
    ("0", "enabled = NULL", "enabled is NULL"),
    ("8", "algorithm = 'token_bucket', refill_rate = 'NaN'", "NaN"),
    ("9", "name = E'two\\nlines'", "name: "),
    ("7", "plan_tiers = '{{a},{b}}'", "plan_tiers[0]: "),
    // No constraint refuses these.
    (
        "5",
        "algorithm = 'token_bucket', limit_count = 2147483647, window_seconds = 31622399, burst_limit = 2147483629",
        "cannot be counted exactly",
    ),
    ("6", "algorithm = 'token_bucket', burst_limit = 10, refill_rate = 0.0000001", "refill_rate: "),
];

fn id(digit: &str) -> String {
    format!("00000000-0000-0000-0000-00000000000{digit}")
}

fn with_bad_rows() -> String {
    let insert = |(digit, change, _): &(&str, &str, &str)| {
        let id = id(digit);
        format!(
            "INSERT INTO rate_limit_rules (id, name, key_pattern, scope, algorithm, limit_count, window_seconds)
             VALUES ('{id}', 'bad {digit}', 'user:{{user}}', 'user', 'fixed_window', 5, 60);
             UPDATE rate_limit_rules SET {change} WHERE id = '{id}';\n"
        )
    };
    format!("{DOCUMENTED}{ROWS}{}", BAD.iter().map(insert).collect::<String>())
}

#[test]
fn unusable_rows_are_set_aside_and_told() {
    let database = database(&with_bad_rows());
    let originals = "SELECT coalesce(jsonb_agg(to_jsonb(r) ORDER BY id), '[]') FROM rate_limit_rules r WHERE id::text NOT LIKE '%00_'
                     OR right(id::text, 1) NOT IN ('1', '2', '3')";
    let before: Value = serde_json::from_str(&database.sql(originals).unwrap()).unwrap();
    let out = adopt(&database);
    assert!(out.starts_with("adopted the table rate_limit_rules (rules: 3)\n"), "{out}");
    assert!(out.contains("invalid rows, not in force (see rate_limit_unusable_rules): 12\n"), "{out}");
    for (digit, change, reason) in BAD {
        let line =
            out.lines().find(|line| line.contains(&id(digit))).unwrap_or_else(|| panic!("{change}: {out}"));
        assert!(line.contains(reason), "{change}: {line}");
    }
    let kept = "SELECT jsonb_agg(original ORDER BY id) FROM rate_limit_unusable_rules";
    let kept: Value = serde_json::from_str(&database.sql(kept).unwrap()).unwrap();
    assert_eq!(kept, before, "nothing of them is lost");
    let again = adopt(&database);
    let told = out.split_once("invalid rows").unwrap().1;
    assert_eq!(again, format!("the tables are up to date\ninvalid rows{told}"), "they are told again");

    let service = serve(&database);
    assert_eq!(in_force(&service).len(), 3);
    assert_eq!(service.get("/readyz").json()["rules_refused"], false);
    let log = service.program.log();
    for (digit, ..) in BAD {
        assert!(log.lines().any(|line| line.contains(&id(digit)) && line.contains("not in force")), "{log}");
    }
    // They do not prevent other changes.
    done(&service, "PUT", "/v1/lists/block/user/mallory", &Value::Null);
    assert!(!is_allowed(&service, "mallory"));
}

/// A number that the algorithm does not have.
#[test]
fn the_reason_names_the_column() {
    let row = format!(
        "INSERT INTO rate_limit_rules (id, name, key_pattern, scope, algorithm, limit_count, window_seconds, burst_limit)
         VALUES ('{0}', 'a', 'user:{{user}}', 'user', 'fixed_window', 5, 60, 9);",
        id("a")
    );
    let out = adopt(&database(&format!("{DOCUMENTED}{row}")));
    assert!(out.contains(&format!("  {}: burst_limit: unknown field: need one of ", id("a"))), "{out}");
}

/// Writing a rule with the same id repairs the row.
#[test]
fn a_repaired_row_is_not_told_any_more() {
    let database = database(&with_bad_rows());
    adopt(&database);
    let service = serve(&database);
    let rule =
        json!({"id": id("c"), "scope": "user", "strategy": {"fixed_window": {"limit": 5, "window": "60s"}}});
    done(&service, "POST", "/v1/rules", &rule);
    let again = adopt(&database);
    assert!(again.contains("rate_limit_unusable_rules): 11\n") && !again.contains(&id("c")), "{again}");
}

/// Rows with values that our table could only store rounded, and rows without a unique id, are set aside.
#[test]
fn nothing_is_rounded_or_chosen() {
    let database = database(
        "
        CREATE TABLE rate_limit_rules (id text, name text, key_pattern text, scope text, algorithm text, limit_count numeric,
            window_seconds numeric, refill_rate double precision);
        INSERT INTO rate_limit_rules
        VALUES ('rounded', 'n', '{user}', 'user', 'fixed_window', 5, 1.0000005, NULL),
               ('half', 'n', '{user}', 'user', 'fixed_window', 1.5, 1, NULL),
               ('exact', 'n', '{user}', 'user', 'token_bucket', 10, 60, 0.30000000000000004),
               ('twice', 'n', '{user}', 'user', 'fixed_window', 1, 1, NULL),
               ('twice', 'n', '{user}', 'user', 'fixed_window', 2, 1, NULL),
               (NULL, 'n', '{user}', 'user', 'fixed_window', 2, 1, NULL),
               ('long', repeat('x', 256), '{user}', 'user', 'fixed_window', 2, 1, NULL);",
    );
    let out = adopt(&database);
    for line in [
        "  rounded: cannot be stored exactly: window_seconds\n",
        "  twice: 2 rows have this id\n  twice: 2 rows have this id\n",
        "  (without an id): id is NULL\n",
    ] {
        assert!(out.contains(line), "{line:?}: {out}");
    }
    assert!(out.contains("  half: limit_count: "), "{out}");
    assert!(out.contains("  long: name: "), "{out}");
    assert_eq!(
        database.sql("SELECT id, refill_rate FROM rate_limit_rules").unwrap(),
        "exact|0.30000000000000004"
    );
}

/// A migration that fails in the middle changes nothing. Here a view depends on a column whose type has to
/// change.
#[test]
fn a_failure_changes_nothing() {
    let database =
        database(&format!("{}CREATE VIEW names AS SELECT id, name FROM rate_limit_rules;", with_bad_rows()));
    let schema =
        "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1";
    let everything =
        || [schema, "SELECT * FROM rate_limit_rules ORDER BY id"].map(|sql| database.sql(sql).unwrap());
    let before = everything();
    let Migrated { code, out, err } = migrate(&database);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(
        err.contains("used by a view") && err.contains("rule _RETURN on view names depends on column"),
        "{err}"
    );
    assert_eq!(everything(), before);
    database.sql("DROP VIEW names").unwrap();
    adopt(&database);
}
