//! Writes changes: one statement for all added, one for all changed and one for all removed rows of a
//! table.

use std::sync::LazyLock;

use serde::Serialize;
use sqlx::{AssertSqlSafe, PgConnection};

use super::row::{ListRow, OverrideRow, RuleRow, UnitRow};
use super::stored::BadRow;
use super::{DatabaseError, query};
use crate::rules::change::{Item, ItemKind, StoredChange};

const RULE_COLUMNS: &str = "id, name, key_pattern, scope, algorithm, limit_count, window_seconds, burst_limit, refill_rate, \
     limits, group_ms, hard_limit_factor, per, zone, starts, temp_window_seconds, temp_threshold, \
     temp_block_seconds, long_window_seconds, long_threshold, long_block_seconds, while_blocked, hold_seconds, unit, postpaid, \
     plan_tiers, endpoints, conditions, action, max_delay_seconds, if_missing, on_store_failure, priority, enabled, candidate_for, share";
const OVERRIDE_COLUMNS: &str = "rule_id, key, verdict, algorithm, limit_count, window_seconds, burst_limit, refill_rate, limits, \
     group_ms, hard_limit_factor, per, zone, starts, temp_window_seconds, temp_threshold, temp_block_seconds, \
     long_window_seconds, long_threshold, long_block_seconds, while_blocked, hold_seconds";
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
                "DELETE FROM {table} AS stored WHERE json_strip_nulls(to_json(stored))::text \
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

/// A row to be written.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AnyRow {
    Rule(Box<RuleRow>),
    Override(Box<OverrideRow>),
    List(ListRow),
    Unit(UnitRow),
}

impl AnyRow {
    /// Returns the row of an item, or `None` for a row that cannot be parsed.
    fn of(item: &Item) -> Option<Self> {
        Some(match item {
            Item::Rule(rule) => Self::Rule(Box::new(RuleRow::from(&**rule))),
            Item::Override(item) => Self::Override(Box::new(OverrideRow::from(&**item))),
            Item::ListEntry(listed) => Self::List(ListRow {
                list: listed.list,
                attribute: listed.attribute.clone(),
                value: listed.value.clone(),
            }),
            Item::Unit(unit) => Self::Unit(UnitRow { name: unit.name.clone() }),
            Item::Unreadable(_) => return None,
        })
    }
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
) -> Vec<AnyRow> {
    let of_kind = changes.iter().filter(|change| change.kind == kind);
    of_kind.filter_map(choose).filter_map(|item| AnyRow::of(&item)).collect()
}
