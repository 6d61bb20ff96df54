//! Tables of the same name with another purpose.

use super::{DOCUMENTED, Migrated, ROWS, database, migrate};

const CASES: [(&str, &[&str]); 8] = [
    (
        "CREATE TABLE rate_limit_rules (customer text PRIMARY KEY, tariff jsonb NOT NULL);
         INSERT INTO rate_limit_rules VALUES ('ann', '{}');",
        &["the column id is missing", "the column algorithm is missing", "the column customer is NOT NULL and has no default"],
    ),
    ("CREATE VIEW rate_limit_rules AS SELECT 1 AS id;", &["it is not an ordinary table"]),
    (
        "CREATE TABLE rate_limit_rules (id uuid, name text, key_pattern text, scope jsonb, algorithm text, limit_count integer,
             window_seconds interval);",
        &["the column scope is jsonb: need one of character varying, text", "the column window_seconds is interval"],
    ),
    (
        "CREATE TABLE rate_limit_rules (id uuid, name text PRIMARY KEY, key_pattern text, scope text, algorithm text,
             limit_count integer, window_seconds integer);",
        &["its primary key is not its id: PRIMARY KEY (name)"],
    ),
    ("{documented} ALTER TABLE rate_limit_rules ADD extra json;", &["the column extra already exists; rename it"]),
    (
        "{documented} CREATE TABLE notes (rule uuid REFERENCES rate_limit_rules ON DELETE CASCADE);",
        &["the foreign key notes_rule_fkey of notes refers to it"],
    ),
    (
        "{documented} ALTER TABLE rate_limit_rules ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;",
        &["row security is forced on it"],
    ),
    ("{documented} CREATE TABLE more () INHERITS (rate_limit_rules);", &["it is part of an inheritance tree"]),
];

#[test]
fn unrelated_tables_are_refused_and_left_alone() {
    let database = database("CREATE SCHEMA apart");
    for (statements, reasons) in CASES {
        let statements = statements.replace("{documented}", &format!("{DOCUMENTED}{ROWS}"));
        database.sql(&format!("SET ROLE trypema; {statements}")).unwrap();
        let tables = "SELECT string_agg(relname::text || relkind::text, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
        let everything = || [tables, "SELECT * FROM rate_limit_rules"].map(|sql| database.sql(sql).unwrap());
        let before = everything();
        let Migrated { code, out, err } = migrate(&database);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{statements}: {err}");
        for reason in reasons {
            assert!(err.contains(reason), "{reason}: {err}");
        }
        assert!(err.contains("Nothing was changed"), "{err}");
        assert_eq!(everything(), before, "{statements}");
        database.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public AUTHORIZATION trypema").unwrap();
    }
}
