//! Adopts an existing table `rate_limit_rules`, with its rows.

mod shape;

use std::fmt;

use sqlx::{PgConnection, Row};
use trypema::rules::{RuleSet, Rules};

use super::stored::item;
use super::{Database, DatabaseError, Purpose, query, with_timeout};
use crate::rules::change::ItemKind;

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

/// Rows that were set aside, in the form in which rules are read: with the defaults of columns that may be
/// missing.
const SET_ASIDE: &str = "
    SELECT number, reason, (
        jsonb_build_object('plan_tiers', ARRAY[]::text[], 'endpoints', ARRAY[]::text[], 'action', 'reject', 'priority', 100,
                           'enabled', true, 'id', 'row')
        || jsonb_strip_nulls(original) || jsonb_strip_nulls(jsonb_build_object('id', id)))::text
    FROM rate_limit_unusable_rules";

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
    sqlx::raw_sql(ROWS).execute(&mut *connection).await?;
    let filled = query(FILLED).fetch_all(&mut *connection).await?;
    let filled = filled
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<_, sqlx::Error>>()?;
    let rules: i64 =
        query("SELECT count(*) FROM rate_limit_rules").fetch_one(&mut *connection).await?.try_get(0)?;
    explain_unusable(connection).await?;
    query("DROP TABLE trypema_adopted").execute(connection).await?;
    Ok(Adopted { rules: u64::try_from(rules).unwrap_or(0), filled })
}

/// Replaces the reason of each row that was set aside by the error of the compiler. That error names the
/// field and the valid values; a constraint only has a name.
async fn explain_unusable(connection: &mut PgConnection) -> Result<(), DatabaseError> {
    let rows = query(SET_ASIDE).fetch_all(&mut *connection).await?;
    if rows.is_empty() {
        query("DROP TABLE rate_limit_unusable_rules").execute(connection).await?;
        return Ok(());
    }
    for row in rows {
        let (number, violation, body): (i64, &str, &str) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if let Some(reason) = unusable_reason(body, violation) {
            let update = query("UPDATE rate_limit_unusable_rules SET reason = $1 WHERE number = $2");
            update.bind(reason).bind(number).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Returns the reason why a row is not a rule, if that can be found without the database. `violation` is
/// the message of the database.
fn unusable_reason(body: &str, violation: &str) -> Option<String> {
    let item = match item(ItemKind::Rule, body) {
        Ok(item) => item,
        Err(reason) => {
            // The position within the JSON means nothing to a reader of the table. The column is not named
            // there, so keep the violation.
            let reason = reason.split_once(" at line ").map_or(&*reason, |(reason, _)| reason);
            return Some(format!("{reason} ({violation})"));
        }
    };
    let mut rules = Rules::default();
    item.add_to(&mut rules);
    let invalid = RuleSet::compile(&rules).err()?;
    let problems = invalid.problems().iter().map(|problem| {
        let field = problem.field().to_string();
        format!("{}: {}", field.trim_start_matches("rules[0]").trim_start_matches('.'), problem.reason())
    });
    Some(problems.collect::<Vec<_>>().join("; "))
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
