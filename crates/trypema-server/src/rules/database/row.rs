//! Rows of the tables, and their conversion from and to items of a rule set.
//!
//! A row of a rule or an override contains its JSON, split over the columns: some fields have a column of their own,
//! and the column `extra` has all others, in the notation of rules files. So a new field of rules needs no code here.
//! The fields of the strategy stand beside those of the rule: `{"if_missing": "deny", "per": "month"}`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use trypema::rules::{Document, Override, Period, Rule, RuleProblem};

use crate::rules::change::{Item, ItemKind};

/// A table whose rows have columns and `extra`, and the items of a document that its rows are.
pub(super) struct ItemTable {
    /// The list of a document that has the items.
    pub(super) list: &'static str,
    /// The fields with a column of their own.
    columns: &'static [&'static str],
    /// The names of all fields. Every other name in `extra` is a number of the strategy.
    fields: BTreeSet<String>,
}

static RULES: LazyLock<ItemTable> = LazyLock::new(|| {
    ItemTable::of::<Rule>(
        "rules",
        &[
            "id",
            "name",
            "key_pattern",
            "scope",
            "plan_tiers",
            "endpoints",
            "action",
            "priority",
            "enabled",
            "candidate_for",
        ],
    )
});

static OVERRIDES: LazyLock<ItemTable> =
    LazyLock::new(|| ItemTable::of::<Override>("overrides", &["rule", "key", "verdict"]));

/// The numbers of a strategy that have a column.
const NUMBERS: [&str; 4] = ["limit", WINDOW, "burst", "refill_rate"];
/// The number that is text in a rule, and seconds in its column.
const WINDOW: &str = "window";
/// The columns that are NOT NULL in the table, although a rule may lack the field.
const NOT_NULL: [&str; 6] = ["plan_tiers", "endpoints", "action", "priority", "enabled", "extra"];

/// Returns the column of a field that has one.
fn column(field: &str) -> &str {
    match field {
        "rule" => "rule_id",
        "limit" => "limit_count",
        WINDOW => "window_seconds",
        "burst" => "burst_limit",
        same => same,
    }
}

/// Parses a row. The error names the columns.
pub(super) fn item(kind: ItemKind, body: &str) -> Result<Item, String> {
    fn plain<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, String> {
        serde_json::from_str(body).map_err(|error| error.to_string())
    }
    Ok(match kind {
        ItemKind::Rule => Item::Rule(RULES.item(body)?),
        ItemKind::Override => Item::Override(OVERRIDES.item(body)?),
        ItemKind::List => Item::ListEntry(plain(body)?),
        ItemKind::Unit => Item::Unit(plain(body)?),
    })
}

/// Returns the row of an item, or `None` for a row that cannot be parsed.
pub(super) fn of_item(item: &Item) -> Option<Value> {
    Some(match item {
        Item::Rule(rule) => RULES.row(rule),
        Item::Override(item) => OVERRIDES.row(item),
        Item::ListEntry(listed) => json!(listed),
        Item::Unit(unit) => json!(unit),
        Item::Unreadable(_) => return None,
    })
}

/// Returns the table of this kind, if its rows have columns and `extra`.
pub(super) fn table_of(kind: ItemKind) -> Option<&'static ItemTable> {
    match kind {
        ItemKind::Rule => Some(&RULES),
        ItemKind::Override => Some(&OVERRIDES),
        ItemKind::Unit | ItemKind::List => None,
    }
}

impl ItemTable {
    fn of<T: JsonSchema>(list: &'static str, columns: &'static [&'static str]) -> Self {
        let schema = schemars::schema_for!(T);
        let fields = schema.as_value()["properties"].as_object().into_iter().flat_map(Map::keys).cloned();
        Self { list, columns, fields: fields.collect() }
    }

    /// Returns the row of an item.
    fn row(&self, item: impl Serialize) -> Value {
        // Serializing text and numbers cannot fail.
        let Ok(Value::Object(mut fields)) = serde_json::to_value(item) else { return Value::Null };
        let strategy = fields.remove("strategy");
        // `{"fixed_window": {"limit": 1, ...}}`
        let strategy =
            strategy.as_ref().and_then(Value::as_object).and_then(|strategy| strategy.iter().next());
        let mut extra = strategy.and_then(|(_, numbers)| numbers.as_object().cloned()).unwrap_or_default();
        let mut row = Map::new();
        row.insert("algorithm".to_owned(), strategy.map(|(algorithm, _)| algorithm.as_str()).into());
        for field in NUMBERS {
            let number = extra.remove(field).unwrap_or_default();
            row.insert(column(field).to_owned(), if field == WINDOW { seconds(number) } else { number });
        }
        for field in self.columns {
            // Empty lists are not in the JSON of a rule, and not NULL in the table.
            let absent = if matches!(*field, "plan_tiers" | "endpoints") { json!([]) } else { Value::Null };
            row.insert(column(field).to_owned(), fields.remove(*field).unwrap_or(absent));
        }
        extra.append(&mut fields);
        row.insert("extra".to_owned(), Value::Object(extra));
        Value::Object(row)
    }

    /// Parses a row.
    fn item<T: DeserializeOwned>(&self, body: &str) -> Result<T, String> {
        let fields = Value::Object(self.fields(body)?);
        T::deserialize(&fields).map_err(|error| {
            // A document finds every problem, and names the fields.
            let text = json!({self.list: [fields]}).to_string();
            let document = serde_json::from_str::<Document<'_>>(&text).ok();
            let invalid = document.and_then(|document| document.rules().err());
            invalid.map_or_else(|| error.to_string(), |invalid| listed(invalid.problems()))
        })
    }

    /// Returns the JSON of the item of a row, in which any value may be wrong.
    pub(super) fn fields(&self, body: &str) -> Result<Map<String, Value>, String> {
        // Columns that an item does not have are never parsed: they may be anything.
        let row: BTreeMap<String, &RawValue> =
            serde_json::from_str(body).map_err(|error| error.to_string())?;
        let value = |column: &str| {
            let value = row.get(column).map(|value| serde_json::from_str(value.get()));
            match value.transpose().map_err(|error| format!("{column}: {error}"))? {
                Some(Value::Null) if NOT_NULL.contains(&column) => Err(format!("{column}: is NULL")),
                Some(Value::Null) | None => Ok(None),
                Some(value) => Ok(Some(without_scale(value))),
            }
        };
        let extra = match value("extra")? {
            None => Map::new(),
            Some(Value::Object(extra)) => extra,
            Some(_) => return Err("extra: need an object".to_owned()),
        };
        let (mut fields, mut numbers): (Map<_, _>, Map<_, _>) =
            extra.into_iter().partition(|(name, _)| self.fields.contains(name));
        if let Some(name) = fields.keys().find(|name| *name == "strategy" || self.columns.contains(&&***name))
        {
            return Err(format!("extra.{name}: use the column"));
        }
        for field in self.columns {
            fields.extend(value(column(field))?.map(|value| ((*field).to_owned(), value)));
        }
        if let (Some(_), Some(name)) = (fields.get("verdict"), numbers.keys().next()) {
            return Err(format!("extra.{name}: a verdict has no numbers"));
        }
        for field in NUMBERS {
            if numbers.contains_key(field) {
                return Err(format!("extra.{field}: use the column {}", column(field)));
            }
            if let Some(value) = value(column(field))? {
                numbers.insert(field.to_owned(), if field == WINDOW { period(&value)? } else { value });
            }
        }
        match value("algorithm")? {
            None if numbers.is_empty() => {}
            Some(Value::String(algorithm)) => {
                fields.insert("strategy".to_owned(), json!({algorithm: numbers}));
            }
            _ => return Err("algorithm: missing".to_owned()),
        }
        Ok(fields)
    }
}

/// Converts a period to seconds, exact to the microsecond: up to 2^53, an `f64` holds microseconds exactly.
fn seconds(period: Value) -> Value {
    let period = Period::deserialize(period).ok();
    period.map(|Period(period)| period.as_nanos().div_ceil(1_000) as f64 / 1e6).into()
}

/// Converts seconds to a period.
fn period(seconds: &Value) -> Result<Value, String> {
    let micros = seconds.as_f64().map(|seconds| (seconds * 1e6).round());
    match micros.filter(|micros| (0.0..=9_007_199_254_740_992.0).contains(micros)) {
        Some(micros) => Ok(Value::String(Period(Duration::from_micros(micros as u64)).to_string())),
        None => Err(format!("window_seconds: {seconds} seconds is not a valid duration")),
    }
}

/// Returns a whole number without decimals. A column of an adopted table may be `numeric(12,2)`, where 100 is `100.00`.
fn without_scale(value: Value) -> Value {
    let text = value.as_number().map(ToString::to_string).unwrap_or_default();
    let whole = text.split_once('.').filter(|(_, decimals)| decimals.bytes().all(|digit| digit == b'0'));
    whole.and_then(|(whole, _)| whole.parse::<i64>().ok()).map_or(value, Value::from)
}

/// Formats problems of one row in one line.
pub(super) fn listed(problems: &[RuleProblem]) -> String {
    problems.iter().map(described).collect::<Vec<_>>().join("; ")
}

/// Formats a problem with the column that it is about.
pub(super) fn described(problem: &RuleProblem) -> String {
    match &*column_of(problem) {
        "" => problem.reason().to_owned(),
        column => format!("{column}: {}", problem.reason()),
    }
}

/// Returns the column of the field that a problem is about, as in `limit_count` or `extra.when.model[1]`.
fn column_of(problem: &RuleProblem) -> String {
    let whole = problem.field().to_string();
    // The place in the list says nothing about a row.
    let place = whole.split_once('[').and_then(|(list, rest)| Some((list, rest.split_once(']')?.1)));
    let Some((list, field)) = place else { return whole };
    let field = field.trim_start_matches('.');
    let Some(table) = [&RULES, &OVERRIDES].into_iter().find(|table| table.list == list && !field.is_empty())
    else {
        return whole;
    };
    if let Some(strategy) = field.strip_prefix("strategy") {
        let number = strategy.split('.').skip(2).collect::<Vec<_>>().join(".");
        return match &*number {
            "" => "algorithm".to_owned(),
            number if NUMBERS.contains(&number) => column(number).to_owned(),
            number => format!("extra.{number}"),
        };
    }
    let name = field.split(['.', '[']).next().unwrap_or_default();
    if table.columns.contains(&name) {
        field.replacen(name, column(name), 1)
    } else {
        format!("extra.{field}")
    }
}

#[cfg(test)]
mod tests;
