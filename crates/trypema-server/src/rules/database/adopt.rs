//! Adopts an existing table `rate_limit_rules`, with its rows.

mod shape;

use std::fmt;

use serde_json::{Value, json};
use sqlx::{PgConnection, Row};
use trypema::rules::RuleSet;

use super::{Database, DatabaseError, Purpose, query, row, with_timeout};
use crate::rules::change::{Item, ItemKind};

const TABLE: &str = include_str!("../../../migrations/adopt/table.sql");
const ROWS: &str = include_str!("../../../migrations/adopt/rows.sql");

/// The start and the end of the statement in migration 0001 that creates the table.
const CREATE: &str = "CREATE TABLE rate_limit_rules (";
const CREATED: &str = "\n);\n";

/// Values that were NULL and got their default.
const FILLED: &str = "
    SELECT a.id::text, given.key FROM trypema_adopted a JOIN rate_limit_rules r ON r.id = a.id::text,
           jsonb_each(to_jsonb(a)) AS given
    WHERE given.value = 'null'
      AND given.key IN ('plan_tiers', 'endpoints', 'action', 'priority', 'created_at', 'updated_at')
    ORDER BY 1, 2";

/// The rows of the adopted table, and a table for those that the compiler refuses.
const ADOPTED: &str = "SELECT ctid::text, (jsonb_strip_nulls(to_jsonb(a)) || jsonb_build_object('id', coalesce(a.id::text, 'row')))::text FROM trypema_adopted a";
const REFUSED: &str = "CREATE TABLE trypema_refused (place tid PRIMARY KEY, reason text NOT NULL)";
const ADD_REFUSED: &str = "INSERT INTO trypema_refused SELECT * FROM jsonb_to_recordset($1::jsonb) AS refused (place tid, reason text)";

/// Rows that were set aside and have no replacement yet.
const UNUSABLE: &str = "
    SELECT id, reason FROM rate_limit_unusable_rules u
    WHERE NOT EXISTS (SELECT FROM rate_limit_rules r WHERE r.id = u.id) ORDER BY number";

/// The result of adopting a table.
#[derive(Debug)]
pub(crate) struct Adopted {
    /// The number of rows that became rules.
    pub(crate) rules: u64,
    /// The id and the column of each value that was NULL and got its default.
    pub(crate) filled: Vec<(String, String)>,
}

/// A row of an adopted table that is invalid, and therefore not in force.
#[derive(Debug)]
pub(crate) struct UnusableRule {
    id: Option<String>,
    reason: String,
}

impl fmt::Display for UnusableRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id.as_deref().unwrap_or("(without an id)"), self.reason)
    }
}

/// Returns the first migration, changed to adopt the existing table, or `None` if there is no such table.
///
/// # Errors
///
/// The reason why a table of that name cannot be adopted.
pub(super) async fn migration(
    connection: &mut PgConnection,
    first: &str,
) -> Result<Option<String>, DatabaseError> {
    Ok(if shape::is_there_to_adopt(connection).await? { adopt_migration(first) } else { None })
}

fn adopt_migration(first: &str) -> Option<String> {
    let (before, rest) = first.split_once(CREATE)?;
    let (body, after) = rest.split_once(CREATED)?;
    let body = body.replace("REFERENCES rate_limit_rules", "REFERENCES trypema_template");
    Some(format!("{before}CREATE TABLE trypema_template ({body}{CREATED}{TABLE}{after}"))
}

/// Copies the rows back, after all migrations.
pub(super) async fn bring_rows(connection: &mut PgConnection) -> Result<Adopted, DatabaseError> {
    note_refused(connection).await?;
    sqlx::raw_sql(ROWS).execute(&mut *connection).await?;
    let filled = query(FILLED).fetch_all(&mut *connection).await?;
    let filled = filled
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<_, sqlx::Error>>()?;
    let rules: i64 =
        query("SELECT count(*) FROM rate_limit_rules").fetch_one(&mut *connection).await?.try_get(0)?;
    if unusable(connection).await?.is_empty() {
        query("DROP TABLE rate_limit_unusable_rules").execute(&mut *connection).await?;
    }
    query("DROP TABLE trypema_adopted, trypema_refused").execute(connection).await?;
    Ok(Adopted { rules: u64::try_from(rules).unwrap_or(0), filled })
}

/// Tells the database which rows the compiler refuses, so that it sets them aside.
async fn note_refused(connection: &mut PgConnection) -> Result<(), DatabaseError> {
    query(REFUSED).execute(&mut *connection).await?;
    let rows = query(ADOPTED).fetch_all(&mut *connection).await?;
    let mut refused = Vec::new();
    for row in rows {
        let (place, body): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        refused.extend(refusal(body).map(|reason| json!({"place": place, "reason": reason})));
    }
    query(ADD_REFUSED).bind(Value::from(refused).to_string()).execute(connection).await?;
    Ok(())
}

/// Returns the reason why the compiler refuses a row.
fn refusal(body: &str) -> Option<String> {
    match row::item(ItemKind::Rule, body) {
        Ok(rule) => Some(row::listed(RuleSet::compile(&Item::into_rules([rule])).err()?.problems())),
        Err(reason) => Some(reason),
    }
}

/// Returns the rows of an adopted table that are not in force.
pub(super) async fn unusable(connection: &mut PgConnection) -> Result<Vec<UnusableRule>, DatabaseError> {
    let is_there = "SELECT to_regclass('rate_limit_unusable_rules') IS NOT NULL";
    if !query(is_there).fetch_one(&mut *connection).await?.try_get(0)? {
        return Ok(Vec::new());
    }
    let rows = query(UNUSABLE).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(UnusableRule { id: row.try_get(0)?, reason: row.try_get(1)? })).collect()
}

impl Database {
    /// Returns the rows of an adopted table that are not in force.
    pub(crate) async fn unusable_rules(&self) -> Result<Vec<UnusableRule>, DatabaseError> {
        let mut session = self.session(Purpose::Reading).await?;
        let rows = with_timeout(unusable(&mut session.connection)).await?;
        session.keep_idle();
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_migration_has_the_statement_that_is_replaced() {
        let first = include_str!("../../../migrations/0001_rules.sql");
        let adopting = adopt_migration(first).unwrap();
        assert_eq!(adopting.matches(CREATE).count(), 0);
        assert_eq!(adopting.matches("CREATE TABLE trypema_template (").count(), 1);
        assert!(adopting.contains("CREATE TABLE rate_limit_overrides ("));
    }
}
