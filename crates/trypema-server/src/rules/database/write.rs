//! Writes changes: one statement for all added, one for all changed and one for all removed rows of a
//! table.

use serde::Serialize;
use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, PgConnection};

use super::row::of_item;
use super::stored::BadRow;
use super::{DatabaseError, query};
use crate::rules::change::{Item, ItemKind, StoredChange};

/// The tables with the columns of their keys. Rows that reference others are in a later table: they are deleted
/// before them, and inserted after them.
const TABLES: [(ItemKind, &str, &[&str]); 4] = [
    (ItemKind::Unit, "rate_limit_units", &["name"]),
    (ItemKind::Rule, "rate_limit_rules", &["id"]),
    (ItemKind::List, "rate_limit_lists", &["list", "attribute", "value"]),
    (ItemKind::Override, "rate_limit_overrides", &["rule_id", "key"]),
];

/// Statements with their rows, in the order in which they have to run.
#[derive(Debug)]
pub(super) struct Writes(Vec<Write>);

#[derive(Debug)]
struct Write {
    statement: String,
    /// A JSON array.
    rows: String,
}

impl Writes {
    /// Creates the statements that write these changes, and delete the rows that cannot be parsed.
    pub(super) fn new(changes: &[StoredChange], bad_rows: &[BadRow]) -> Self {
        let rows_of = |kind, choose: fn(&StoredChange) -> Option<&Item>| -> Vec<Value> {
            let of_kind = changes.iter().filter(|change| change.kind == kind);
            of_kind.filter_map(choose).filter_map(of_item).collect()
        };
        let mut writes = Self(Vec::new());
        for (kind, table, key) in TABLES.into_iter().rev() {
            let bad: Vec<&str> =
                bad_rows.iter().filter(|row| row.kind == kind).map(|row| &*row.body).collect();
            let are_bad = "to_json(stored)::text IN (SELECT jsonb_array_elements_text($1::jsonb))";
            writes.add(&bad, format!("DELETE FROM {table} AS stored WHERE {are_bad}"));
            let gone = rows_of(kind, |change| change.before.as_ref().filter(|_| change.after.is_none()));
            let (given, is_same) = given(table, key);
            writes.add(&gone, format!("DELETE FROM {table} AS stored USING {given} WHERE {is_same}"));
        }
        for (kind, table, key) in TABLES {
            let changed = rows_of(kind, |change| change.after.as_ref().filter(|_| !is_new(change)));
            let (given, is_same) = given(table, key);
            let (columns, values) =
                (listed(columns_of(&changed), ""), listed(columns_of(&changed), "given."));
            let set = format!("UPDATE {table} AS stored SET ({columns}) = ROW ({values})");
            writes.add(&changed, format!("{set} FROM {given} WHERE {is_same}"));
            let new = rows_of(kind, |change| change.after.as_ref().filter(|_| is_new(change)));
            let columns = listed(columns_of(&new), "");
            writes.add(&new, format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM {given}"));
        }
        writes
    }

    fn add(&mut self, rows: &[impl Serialize], statement: String) {
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

fn is_new(change: &StoredChange) -> bool {
    matches!(change.before, None | Some(Item::Unreadable(_)))
}

/// Returns the source of the given rows, and whether one of them is a stored row.
fn given(table: &str, key: &[&str]) -> (String, String) {
    let rows = format!("jsonb_populate_recordset(NULL::{table}, $1::jsonb) AS given");
    let (stored, given) = (listed(key, "stored."), listed(key, "given."));
    (rows, format!("({stored}) = ({given})"))
}

/// Returns the columns of rows, which all have the same.
fn columns_of(rows: &[Value]) -> impl Iterator<Item = &str> {
    rows.first().and_then(Value::as_object).into_iter().flat_map(Map::keys).map(String::as_str)
}

fn listed(columns: impl IntoIterator<Item = impl AsRef<str>>, prefix: &str) -> String {
    columns.into_iter().map(|column| format!("{prefix}{}", column.as_ref())).collect::<Vec<_>>().join(", ")
}
