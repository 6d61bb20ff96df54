//! The JSON Schema equals the committed one and agrees with the parser.

use serde_json::{Value, json};
use trypema::rules::{Period, RuleSet, Rules, Starts};

use super::corpus::{self, Written};

/// The environment variable that makes the test write the schema instead of comparing it.
const UPDATE: &str = "UPDATE_SCHEMA";

#[test]
fn the_committed_schema_is_current() {
    let path = corpus::root().join("docs/rules.schema.json");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, Rules::schema()).unwrap();
    }
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(committed == schema(), "docs/rules.schema.json is old: run this test with {UPDATE}=1");
}

#[test]
fn valid_files_are_accepted() {
    for Written { name, text } in corpus::all("valid") {
        let rules = serde_json::to_value(Rules::from_yaml(&text).unwrap()).unwrap();
        assert_eq!(fault(&schema(), &schema(), &rules), None, "{name}");
    }
}

#[test]
fn the_schema_and_the_reader_agree() {
    let window = json!({ "fixed_window": { "limit": 1, "window": "1m" } });
    let rule = json!({ "id": "a", "scope": "user", "strategy": window });
    let with = |path: &str, value: Value| {
        let mut document =
            json!({ "rules": [rule], "overrides": [{ "rule": "a" }], "allow": {}, "block": {} });
        let (around, name) = path.rsplit_once('/').unwrap();
        document.pointer_mut(around).unwrap()[name] = value;
        document
    };
    let fine = [
        with("/rules/0/name", json!(null)),
        with("/rules/0/max_delay", json!("1h30m")),
        with(
            "/rules/0/strategy",
            json!({ "token_bucket": { "burst": 5, "refill_rate": 0.5, "window": null } }),
        ),
        with("/rules/0/strategy", json!({ "fixed_window": { "limit": 1, "per": "week" } })),
        with(
            "/rules/0/strategy",
            json!({ "fixed_window": { "limit": 1, "per": "day", "zone": "Asia/Tokyo", "starts": "06:30" } }),
        ),
        with(
            "/rules/0/strategy",
            json!({ "fixed_window": { "limit": 1, "per": "week", "starts": "sunday" } }),
        ),
        with("/rules/0/strategy", json!({ "fixed_window": { "limit": 1, "per": "month", "starts": 28 } })),
        with("/rules/0/strategy", json!({ "concurrency": { "limit": 20, "hold": "60s" } })),
        with("/rules/0/candidate_for", json!("b")),
        with("/rules/0/share", json!(0.5)),
        with("/rules/0/share", json!(1)),
        with("/overrides/0/verdict", json!("block")),
        with("/overrides/0/key", json!({ "user": "ann" })),
        with("/block/ip", json!(["10.0.0.1"])),
    ];
    let wrong = [
        json!([]),
        json!({}),
        json!({ "overrides": [] }),
        json!({ "rules": null }),
        with("/rule", json!([])),
        with("/rules", json!({})),
        with("/rules", json!(["a"])),
        with("/rules", json!([{ "scope": "user", "strategy": window }])),
        with("/rules/0/limit", json!(5)),
        with("/rules/0/scope", json!("planet")),
        with("/rules/0/strategy", json!("absolute")),
        with("/rules/0/strategy", json!({})),
        with("/rules/0/strategy", json!({ "leaky_bucket": {} })),
        with("/rules/0/strategy/absolute", json!({ "limit": 1, "window": "1m" })),
        with("/rules/0/strategy/fixed_window/limit", json!(-1)),
        with("/rules/0/strategy/fixed_window/limit", json!(1.5)),
        with("/rules/0/strategy/fixed_window/limit", json!("1")),
        with("/rules/0/strategy/fixed_window/window", json!(60)),
        with("/rules/0/strategy/fixed_window/window", json!("60")),
        with("/rules/0/strategy/fixed_window/window", json!("")),
        with("/rules/0/strategy/fixed_window/window", json!("1m1h")),
        with("/rules/0/strategy/fixed_window/window", json!(-1)),
        with("/rules/0/strategy/fixed_window/burst", json!(1)),
        with("/rules/0/strategy", json!({ "fixed_window": { "limit": 1, "per": "year" } })),
        with("/rules/0/strategy", json!({ "fixed_window": { "limit": 1, "per": "month", "starts": 29 } })),
        with(
            "/rules/0/strategy",
            json!({ "fixed_window": { "limit": 1, "per": "week", "starts": "noday" } }),
        ),
        with("/rules/0/strategy", json!({ "fixed_window": { "limit": 1, "per": "day", "starts": "24:00" } })),
        with("/rules/0/strategy", json!({ "abuse": { "temp": {} } })),
        with("/rules/0/strategy", json!({ "token_bucket": { "limits": [{ "limit": 1 }] } })),
        with("/rules/0/strategy", json!({ "concurrency": { "limit": 20 } })),
        with("/rules/0/strategy", json!({ "concurrency": { "hold": "60s" } })),
        with("/rules/0/strategy", json!({ "concurrency": { "limit": 20, "hold": 60 } })),
        with("/rules/0/strategy", json!({ "concurrency": { "limit": 20, "hold": "60s", "window": "60s" } })),
        with("/rules/0/action", json!("drop")),
        with("/rules/0/candidate_for", json!(["b"])),
        with("/rules/0/share", json!("half")),
        with("/rules/0/enabled", json!("yes")),
        with("/rules/0/priority", json!("high")),
        with("/rules/0/endpoints", json!("/a")),
        with("/rules/0/on_store_failure", json!("retry")),
        with("/overrides/0/verdict", json!("maybe")),
        with("/overrides/0/key", json!("ann")),
        with("/overrides/0/user", json!("ann")),
        with("/allow/ip", json!("10.0.0.1")),
    ];
    for document in fine {
        assert_eq!(fault(&schema(), &schema(), &document), None, "{document}");
        assert!(Rules::from_yaml(&document.to_string()).is_ok(), "{document}");
    }
    for document in wrong {
        assert!(fault(&schema(), &schema(), &document).is_some(), "{document}");
        assert!(Rules::from_yaml(&document.to_string()).is_err(), "{document}");
    }
}

/// Which fields belong together, the compiler checks and not the reader.
#[test]
fn the_schema_and_the_compiler_agree_on_calendars() {
    for (numbers, is_fine) in [
        (json!({ "limit": 1, "window": "1m" }), true),
        (json!({ "limit": 1, "per": "day", "zone": "UTC", "starts": "00:00" }), true),
        (json!({ "limit": 1 }), false),
        (json!({ "limit": 1, "window": "1m", "per": "day" }), false),
        (json!({ "limit": 1, "window": "1m", "zone": "UTC" }), false),
        (json!({ "limit": 1, "window": "1m", "starts": 1 }), false),
    ] {
        let rule = json!({ "id": "a", "scope": "user", "strategy": { "fixed_window": numbers } });
        let document = json!({ "rules": [rule] });
        assert_eq!(fault(&schema(), &schema(), &document).is_none(), is_fine, "{document}");
        assert_eq!(RuleSet::from_yaml(&document.to_string(), "rules.yaml").is_ok(), is_fine, "{document}");
    }
}

#[test]
fn everything_has_a_description() {
    let schema = schema();
    let types = schema["$defs"].as_object().unwrap();
    for (name, described) in types.iter().chain([(&"Rules".to_owned(), &schema)]) {
        assert!(described["description"].is_string(), "{name}");
        for (field, described) in described["properties"].as_object().into_iter().flatten() {
            assert!(described["description"].is_string(), "{name}.{field}");
        }
    }
}

fn schema() -> Value {
    serde_json::from_str(&Rules::schema()).unwrap()
}

/// The first violation of a part of the schema by `value`. Supports only the keywords that the schema uses.
fn fault(whole: &Value, part: &Value, value: &Value) -> Option<String> {
    let keywords = part.as_object().unwrap().iter();
    keywords
        .map(|(keyword, needed)| is_met(whole, part, Keyword { keyword, needed }, value))
        .find_map(Result::err)
}

struct Keyword<'a> {
    keyword: &'a str,
    needed: &'a Value,
}

fn is_met(whole: &Value, part: &Value, keyword: Keyword<'_>, value: &Value) -> Result<(), String> {
    let Keyword { keyword, needed } = keyword;
    let accepts = |part: &Value, value: &Value| fault(whole, part, value).is_none();
    let options = || needed.as_array().unwrap().iter();
    let is_met = match keyword {
        "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
        "$ref" => accepts(whole.pointer(needed.as_str().unwrap().trim_start_matches('#')).unwrap(), value),
        "type" => match needed {
            Value::Array(types) => types.iter().any(|kind| is_of_type(kind, value)),
            kind => is_of_type(kind, value),
        },
        "const" => needed == value,
        "oneOf" => options().filter(|option| accepts(option, value)).count() == 1,
        "anyOf" => options().any(|option| accepts(option, value)),
        "minimum" => value.as_f64().is_none_or(|number| number >= needed.as_f64().unwrap()),
        "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= needed.as_u64().unwrap()),
        "maxLength" => {
            value.as_str().is_none_or(|text| text.chars().count() as u64 <= needed.as_u64().unwrap())
        }
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= needed.as_u64().unwrap()),
        "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= needed.as_u64().unwrap()),
        // The only patterns are those of a period and of a time of day.
        "pattern" if needed.as_str().unwrap().contains(':') => {
            value.as_str().is_none_or(|text| text.contains(':') && text.parse::<Starts>().is_ok())
        }
        "pattern" => value.as_str().is_none_or(|text| text.is_empty() || text.parse::<Period>().is_ok()),
        "enum" => options().any(|option| option == value),
        "maximum" => value.as_f64().is_none_or(|number| number <= needed.as_f64().unwrap()),
        "dependentRequired" => value.as_object().is_none_or(|fields| {
            let given = needed.as_object().unwrap().iter().filter(|(name, _)| fields.contains_key(*name));
            given
                .flat_map(|(_, needed)| needed.as_array().unwrap())
                .all(|name| fields.contains_key(name.as_str().unwrap()))
        }),
        "required" => value
            .as_object()
            .is_none_or(|fields| options().all(|name| fields.contains_key(name.as_str().unwrap()))),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(needed, item))),
        "properties" => value.as_object().is_none_or(|fields| {
            fields.iter().all(|(name, field)| needed.get(name).is_none_or(|needed| accepts(needed, field)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|fields| {
            let mut others = fields.iter().filter(|(name, _)| part["properties"].get(name).is_none());
            others.all(|(_, field)| needed.is_object() && accepts(needed, field))
        }),
        other => panic!("the schema has a keyword {other} that this test does not know"),
    };
    if is_met { Ok(()) } else { Err(format!("{value} does not meet {keyword}: {needed}")) }
}

fn is_of_type(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}
