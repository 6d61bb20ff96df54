//! Rows of the tables, and their conversion from and to rules.
//!
//! A row contains the JSON of a rule, split over the columns: some fields have a column of their own, and the
//! column `extra` has all others, in the notation of rules files. So a new field of rules needs no code here.
//! The fields of the strategy stand beside those of the rule: `{"if_missing": "deny", "per": "month"}`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use trypema::rules::{Document, Override, Period, Rule, RuleProblem};

/// The lists of rules and of overrides in a document.
pub(super) const RULES: &str = "rules";
pub(super) const OVERRIDES: &str = "overrides";

/// The fields of a rule that have a column of the same name.
const RULE_COLUMNS: [&str; 10] = [
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
];
/// The fields of an override and their columns.
const OVERRIDE_COLUMNS: [(&str, &str); 3] = [("rule", "rule_id"), ("key", "key"), ("verdict", "verdict")];
/// The numbers of a strategy that have a column, and their columns.
const NUMBERS: [(&str, &str); 4] = [
    ("limit", "limit_count"),
    (WINDOW, "window_seconds"),
    ("burst", "burst_limit"),
    ("refill_rate", "refill_rate"),
];
/// The number that is text in a rule, and seconds in its column.
const WINDOW: &str = "window";

/// The names of all fields of a rule. Every other name in `extra` is a number of the strategy.
static RULE_FIELDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let schema = schemars::schema_for!(Rule);
    schema.as_value()["properties"].as_object().into_iter().flat_map(Map::keys).cloned().collect()
});

/// Returns the row of a rule.
pub(super) fn of_rule(rule: &Rule) -> Value {
    let mut fields = object(rule);
    let strategy = fields.remove("strategy");
    let mut row = strategy_columns(strategy);
    for name in RULE_COLUMNS {
        // Empty lists are not in the JSON of a rule, and not NULL in the table.
        let absent = if matches!(name, "plan_tiers" | "endpoints") { json!([]) } else { Value::Null };
        row.insert(name.to_owned(), fields.remove(name).unwrap_or(absent));
    }
    if let Some(extra) = row["extra"].as_object_mut() {
        extra.append(&mut fields);
    }
    Value::Object(row)
}

/// Returns the row of an override.
pub(super) fn of_override(item: &Override) -> Value {
    let mut fields = object(item);
    let mut row = strategy_columns(fields.remove("strategy"));
    for (field, column) in OVERRIDE_COLUMNS {
        row.insert(column.to_owned(), fields.remove(field).unwrap_or_default());
    }
    Value::Object(row)
}

/// Returns the JSON of an item. Serializing text and numbers cannot fail.
fn object(item: impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(item) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Returns the columns of `{"fixed_window": {"limit": 1, ...}}`, `extra` included.
fn strategy_columns(strategy: Option<Value>) -> Map<String, Value> {
    let strategy = strategy.as_ref().and_then(Value::as_object).and_then(|strategy| strategy.iter().next());
    let mut extra = strategy.and_then(|(_, numbers)| numbers.as_object().cloned()).unwrap_or_default();
    let mut row = Map::new();
    for (field, column) in NUMBERS {
        let number = extra.remove(field).unwrap_or_default();
        row.insert(column.to_owned(), if field == WINDOW { seconds(number) } else { number });
    }
    row.insert("algorithm".to_owned(), strategy.map(|(algorithm, _)| algorithm.as_str()).into());
    row.insert("extra".to_owned(), Value::Object(extra));
    row
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

/// Parses a row of `rate_limit_rules`. The error names the columns.
pub(super) fn rule(body: &str) -> Result<Rule, String> {
    read(RULES, rule_fields(body)?)
}

/// Parses a row of `rate_limit_overrides`. The error names the columns.
pub(super) fn override_of_key(body: &str) -> Result<Override, String> {
    read(OVERRIDES, override_fields(body)?)
}

fn read<T: DeserializeOwned>(list: &str, fields: Map<String, Value>) -> Result<T, String> {
    let fields = Value::Object(fields);
    T::deserialize(&fields).map_err(|error| {
        // A document finds every problem, and names the fields.
        let text = json!({list: [fields]}).to_string();
        let document = serde_json::from_str::<Document<'_>>(&text).ok();
        let invalid = document.and_then(|document| document.rules().err());
        invalid.map_or_else(|| error.to_string(), |invalid| listed(invalid.problems()))
    })
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

/// Returns the JSON of the rule of a row, in which any value may be wrong.
pub(super) fn rule_fields(body: &str) -> Result<Map<String, Value>, String> {
    let row = Row::parse(body)?;
    let (mut fields, numbers): (Map<_, _>, Map<_, _>) =
        row.extra()?.into_iter().partition(|(name, _)| RULE_FIELDS.contains(name));
    if let Some(name) = fields.keys().find(|name| *name == "strategy" || RULE_COLUMNS.contains(&&***name)) {
        return Err(format!("extra.{name}: use the column"));
    }
    for name in RULE_COLUMNS {
        fields.extend(row.value(name)?.map(|value| (name.to_owned(), value)));
    }
    fields.extend(row.strategy(numbers)?);
    Ok(fields)
}

/// Returns the JSON of the override of a row, in which any value may be wrong.
pub(super) fn override_fields(body: &str) -> Result<Map<String, Value>, String> {
    let row = Row::parse(body)?;
    let mut fields = Map::new();
    for (field, column) in OVERRIDE_COLUMNS {
        fields.extend(row.value(column)?.map(|value| (field.to_owned(), value)));
    }
    let numbers = row.extra()?;
    if let (Some(_), Some(name)) = (fields.get("verdict"), numbers.keys().next()) {
        return Err(format!("extra.{name}: a verdict has no numbers"));
    }
    fields.extend(row.strategy(numbers)?);
    Ok(fields)
}

/// The columns of a row. Those that a rule does not have are never parsed: they may be anything.
struct Row<'a>(BTreeMap<String, &'a RawValue>);

/// Returns a whole number without decimals. A column of an adopted table may be `numeric(12,2)`, where 100 is `100.00`.
fn without_scale(value: Value) -> Value {
    let text = value.as_number().map(ToString::to_string).unwrap_or_default();
    let whole = text.split_once('.').filter(|(_, decimals)| decimals.bytes().all(|digit| digit == b'0'));
    whole.and_then(|(whole, _)| whole.parse::<i64>().ok()).map_or(value, Value::from)
}

impl<'a> Row<'a> {
    fn parse(body: &'a str) -> Result<Self, String> {
        serde_json::from_str(body).map(Self).map_err(|error| error.to_string())
    }

    /// Returns the value of a column, or `None` if it is NULL.
    fn value(&self, column: &str) -> Result<Option<Value>, String> {
        let value = self.0.get(column).map(|value| serde_json::from_str(value.get()));
        let value = value.transpose().map_err(|error| format!("{column}: {error}"))?;
        Ok(value.filter(|value: &Value| !value.is_null()).map(without_scale))
    }

    fn extra(&self) -> Result<Map<String, Value>, String> {
        match self.value("extra")? {
            None => Ok(Map::new()),
            Some(Value::Object(extra)) => Ok(extra),
            Some(_) => Err("extra: need an object".to_owned()),
        }
    }

    /// Returns the field `strategy` of numbers in `extra` and those with columns.
    fn strategy(&self, mut numbers: Map<String, Value>) -> Result<Option<(String, Value)>, String> {
        for (field, column) in NUMBERS {
            if numbers.contains_key(field) {
                return Err(format!("extra.{field}: use the column {column}"));
            }
            if let Some(value) = self.value(column)? {
                let value = if field == WINDOW { period(&value)? } else { value };
                numbers.insert(field.to_owned(), value);
            }
        }
        match self.value("algorithm")? {
            None if numbers.is_empty() => Ok(None),
            Some(Value::String(algorithm)) => Ok(Some(("strategy".to_owned(), json!({algorithm: numbers})))),
            _ => Err("algorithm: missing".to_owned()),
        }
    }
}

/// Returns the column of the field that a problem is about, as in `limit_count` or `extra.when.model[1]`.
fn column_of(problem: &RuleProblem) -> String {
    let field = problem.field().to_string();
    // The place in the list says nothing about a row.
    let Some((list, (_, field))) =
        field.split_once('[').and_then(|(list, rest)| Some((list, rest.split_once(']')?)))
    else {
        return field;
    };
    let (of_rule, field) = (list == RULES, field.trim_start_matches('.'));
    if field.is_empty() || !(of_rule || list == OVERRIDES) {
        return problem.field().to_string();
    }
    if let Some(strategy) = field.strip_prefix("strategy") {
        let number = strategy.split('.').skip(2).collect::<Vec<_>>().join(".");
        let column = NUMBERS.iter().find(|(name, _)| *name == number).map(|(_, column)| (*column).to_owned());
        return match &*number {
            "" => "algorithm".to_owned(),
            _ => column.unwrap_or_else(|| format!("extra.{number}")),
        };
    }
    let name = field.split(['.', '[']).next().unwrap_or_default();
    match OVERRIDE_COLUMNS.iter().find(|(field, _)| !of_rule && *field == name) {
        Some((_, column)) => field.replacen(name, column, 1),
        None if of_rule && RULE_COLUMNS.contains(&name) => field.to_owned(),
        None => format!("extra.{field}"),
    }
}

#[cfg(test)]
mod tests;
