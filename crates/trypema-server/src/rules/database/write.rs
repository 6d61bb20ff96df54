//! Writes changes: one statement for all added, one for all changed and one for all removed rows of a
//! table.

use std::sync::LazyLock;

use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};

use super::stored::BadRow;
use super::{DatabaseError, query, row};
use crate::rules::change::{Item, ItemKind, StoredChange};

const RULE_COLUMNS: &str = "id, name, key_pattern, scope, algorithm, limit_count, window_seconds, burst_limit, refill_rate, \
     extra, plan_tiers, endpoints, action, priority, enabled, candidate_for";
const OVERRIDE_COLUMNS: &str =
    "rule_id, key, verdict, algorithm, limit_count, window_seconds, burst_limit, refill_rate, extra";
const LIST_COLUMNS: &str = "list, attribute, value";
const UNIT_COLUMNS: &str = "name";

/// The statements that write rows of a table. Their parameter is a JSON array of rows.
struct Statements {
    insert: String,
    update: String,
    delete: String,
    /// Its parameter is a JSON array of rows in the text form in which they were read.
    delete_bad: String,
}

impl Statements {
    fn of(table: &str, columns: &str, key: &str) -> Self {
        let rows = format!("jsonb_populate_recordset(NULL::{table}, $1::jsonb) AS given");
        let with = |prefix: &str, names: &str| {
            names.split(", ").map(|name| format!("{prefix}{name}")).collect::<Vec<_>>().join(", ")
        };
        let is_same = format!("({}) = ({})", with("stored.", key), with("given.", key));
        Self {
            insert: format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM {rows}"),
            update: format!(
                "UPDATE {table} AS stored SET ({columns}) = ROW ({}) FROM {rows} WHERE {is_same}",
                with("given.", columns)
            ),
            delete: format!("DELETE FROM {table} AS stored USING {rows} WHERE {is_same}"),
            delete_bad: format!(
                "DELETE FROM {table} AS stored WHERE to_json(stored)::text \
                 IN (SELECT jsonb_array_elements_text($1::jsonb))"
            ),
        }
    }
}

static RULES: LazyLock<Statements> = LazyLock::new(|| Statements::of("rate_limit_rules", RULE_COLUMNS, "id"));
static OVERRIDES: LazyLock<Statements> =
    LazyLock::new(|| Statements::of("rate_limit_overrides", OVERRIDE_COLUMNS, "rule_id, key"));
static LISTS: LazyLock<Statements> =
    LazyLock::new(|| Statements::of("rate_limit_lists", LIST_COLUMNS, LIST_COLUMNS));
static UNITS: LazyLock<Statements> =
    LazyLock::new(|| Statements::of("rate_limit_units", UNIT_COLUMNS, UNIT_COLUMNS));

/// Returns the row of an item, or `None` for a row that cannot be parsed.
fn row_of(item: &Item) -> Option<Value> {
    Some(match item {
        Item::Rule(rule) => row::of_rule(rule),
        Item::Override(item) => row::of_override(item),
        Item::ListEntry(listed) => json!(listed),
        Item::Unit(unit) => json!(unit),
        Item::Unreadable(_) => return None,
    })
}

/// Statements with their rows, in the order in which they have to run.
#[derive(Debug)]
pub(super) struct Writes(Vec<Write>);

#[derive(Debug)]
struct Write {
    statement: &'static str,
    /// A JSON array.
    rows: String,
}

impl Writes {
    /// Creates the statements that write these changes, and delete the rows that cannot be parsed.
    pub(super) fn new(changes: &[StoredChange], bad_rows: &[BadRow]) -> Self {
        let mut writes = Self(Vec::new());
        // Rows that reference others are deleted before them, and inserted after them.
        let kinds: [(ItemKind, &'static Statements); 4] = [
            (ItemKind::Unit, &UNITS),
            (ItemKind::Rule, &RULES),
            (ItemKind::List, &LISTS),
            (ItemKind::Override, &OVERRIDES),
        ];
        for (kind, statements) in kinds.into_iter().rev() {
            let bad: Vec<&str> =
                bad_rows.iter().filter(|row| row.kind == kind).map(|row| &*row.body).collect();
            writes.add(&statements.delete_bad, &bad);
            let gone = |change: &StoredChange| change.before.clone().filter(|_| change.after.is_none());
            writes.add(&statements.delete, &rows_of(changes, kind, gone));
        }
        for (kind, statements) in kinds {
            let is_new = |change: &StoredChange| matches!(change.before, None | Some(Item::Unreadable(_)));
            let changed = |change: &StoredChange| change.after.clone().filter(|_| !is_new(change));
            let new = |change: &StoredChange| change.after.clone().filter(|_| is_new(change));
            writes.add(&statements.update, &rows_of(changes, kind, changed));
            writes.add(&statements.insert, &rows_of(changes, kind, new));
        }
        writes
    }

    fn add(&mut self, statement: &'static str, rows: &[impl Serialize]) {
        if !rows.is_empty() {
            // Serialising text and numbers cannot fail.
            self.0.push(Write { statement, rows: serde_json::to_string(rows).unwrap_or_default() });
        }
    }

    pub(super) async fn run(self, connection: &mut PgConnection) -> Result<(), DatabaseError> {
        for Write { statement, rows } in self.0 {
            query(AssertSqlSafe(statement)).bind(rows).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

fn rows_of(
    changes: &[StoredChange],
    kind: ItemKind,
    choose: impl Fn(&StoredChange) -> Option<Item>,
) -> Vec<Value> {
    let of_kind = changes.iter().filter(|change| change.kind == kind);
    of_kind.filter_map(choose).filter_map(|item| row_of(&item)).collect()
}
