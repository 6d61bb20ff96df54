//! Rules as an operator writes them into the table with SQL.

use serde_json::{Map, Value};
use trypema::rules::{Period, Rule};

/// The fields of rules and strategies that have columns, and these columns.
const COLUMNS: [(&str, &str); 14] = [
    ("id", "id"),
    ("name", "name"),
    ("key_pattern", "key_pattern"),
    ("scope", "scope"),
    ("limit", "limit_count"),
    ("window", "window_seconds"),
    ("burst", "burst_limit"),
    ("refill_rate", "refill_rate"),
    ("plan_tiers", "plan_tiers"),
    ("endpoints", "endpoints"),
    ("action", "action"),
    ("priority", "priority"),
    ("enabled", "enabled"),
    ("candidate_for", "candidate_for"),
];

/// Returns the statement that stores a rule.
pub fn insert(rule: &Rule) -> String {
    let Value::Object(mut fields) = serde_json::to_value(rule).unwrap() else { panic!("{rule:?}") };
    let strategy = fields.remove("strategy").unwrap();
    let (algorithm, numbers) = strategy.as_object().unwrap().iter().next().unwrap();
    let mut columns = vec![("algorithm", text(algorithm))];
    let mut extra: Map<String, Value> =
        fields.into_iter().chain(numbers.as_object().unwrap().clone()).collect();
    for (field, column) in COLUMNS {
        columns.extend(extra.remove(field).map(|value| (column, literal(field, &value))));
    }
    columns.push(("extra", text(&Value::Object(extra).to_string())));
    let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    format!("INSERT INTO rate_limit_rules ({}) VALUES ({})", names.join(", "), values.join(", "))
}

/// Returns the statement that declares units.
pub fn declare(units: &[&str]) -> String {
    let rows: Vec<String> = units.iter().map(|unit| format!("({})", text(unit))).collect();
    format!("INSERT INTO rate_limit_units (name) VALUES {}", rows.join(", "))
}

/// Returns a text as an SQL literal.
pub fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

fn literal(field: &str, value: &Value) -> String {
    match value {
        Value::String(period) if field == "window" => seconds(period.parse().unwrap()),
        Value::String(value) => text(value),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| text(value.as_str().unwrap())).collect();
            format!("ARRAY[{}]::varchar[]", values.join(", "))
        }
        // A number that is not finite is null in JSON.
        Value::Null => "'NaN'".to_owned(),
        other => other.to_string(),
    }
}

fn seconds(period: Period) -> String {
    format!("{}.{:06}", period.0.as_secs(), period.0.subsec_micros())
}
