use trypema::rules::Numbers;

use super::*;

const MIGRATION: &str = include_str!("../../../../migrations/0001_rules.sql");

fn rule(body: &str) -> Result<Rule, String> {
    RULES.item(body)
}

/// Returns the fields of all strategies.
fn strategy_fields() -> BTreeSet<String> {
    let schema = schemars::schema_for!(Numbers);
    let strategies = schema.as_value()["oneOf"].as_array().unwrap();
    let numbers = strategies.iter().map(|strategy| {
        let numbers = strategy["properties"].as_object().unwrap().values().next().unwrap();
        let name = numbers["$ref"].as_str().unwrap().trim_start_matches("#/$defs/");
        &schema.as_value()["$defs"][name]["properties"]
    });
    numbers.flat_map(|numbers| numbers.as_object().unwrap().keys().cloned()).collect()
}

/// A field without a column is a key of `extra`: the constraint has to know it.
#[test]
fn the_constraint_knows_every_field_without_a_column() {
    let (_, after) = MIGRATION.split_once("extra - '{").unwrap();
    let (known, _) = after.split_once("}'").unwrap();
    let known: Vec<String> = known.split(',').map(|key| key.trim().to_owned()).collect();

    let of_rule =
        RULES.fields.iter().filter(|field| !RULES.columns.contains(&&***field) && *field != "strategy");
    let of_strategy = strategy_fields();
    assert!(of_strategy.is_disjoint(&RULES.fields), "each key of `extra` has one meaning");
    let of_strategy = of_strategy.iter().filter(|field| !NUMBERS.contains(&&***field));
    let wanted: BTreeSet<String> = of_rule.chain(of_strategy).cloned().collect();
    assert_eq!(known.iter().cloned().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(known.len(), wanted.len());
}

#[test]
fn a_rule_becomes_a_row_and_the_row_that_rule() {
    let rule_of_calendar: Rule = serde_json::from_value(json!({
        "id": "a", "scope": "user", "unit": "tokens", "when": {"model": ["gpt-5"]},
        "strategy": {"fixed_window": {"limit": 7, "per": "month", "starts": 28}},
    }))
    .unwrap();
    let row = RULES.row(&rule_of_calendar);
    assert_eq!((&row["algorithm"], &row["limit_count"]), (&json!("fixed_window"), &json!(7)));
    let extra = json!({"unit": "tokens", "when": {"model": ["gpt-5"]}, "per": "month", "starts": 28});
    assert_eq!((&row["window_seconds"], &row["extra"]), (&Value::Null, &extra));
    assert_eq!(rule(&row.to_string()).unwrap(), rule_of_calendar);
}

/// Rounding to a shorter number would change the rate, so an exported rule would differ from the applied one.
#[test]
fn numbers_are_read_to_their_last_digit() {
    let row = r#"{"id":"a","scope":"user","algorithm":"token_bucket","burst_limit":1,"refill_rate":0.0009400000000000001,
        "window_seconds":31622399.999999}"#;
    let Numbers::TokenBucket(numbers) = rule(row).unwrap().strategy else { panic!("{row}") };
    assert_eq!(numbers.refill_rate, Some(0.000_940_000_000_000_000_1));
    assert_eq!(numbers.window, Some("365d23h59m59s999ms999us".parse().unwrap()));
}

/// Each field has one place.
#[test]
fn what_a_row_cannot_say_is_named() {
    for (columns, reason) in [
        (r#""extra": {"limit": 1}"#, "extra.limit: use the column limit_count"),
        (r#""extra": {"refill_rate": 1}"#, "extra.refill_rate: use the column refill_rate"),
        (r#""extra": {"priority": 1}"#, "extra.priority: use the column"),
        (r#""extra": {"strategy": {}}"#, "extra.strategy: use the column"),
        // Without the condition, the rule would apply to every request.
        (r#""extra": {"when": {"model": null}}"#, "extra.when.model: "),
        (r#""extra": {"postpaid": null}"#, "extra.postpaid: "),
        (r#""extra": {"share": null}, "name": null"#, ""),
        (r#""extra": []"#, "extra: need an object"),
        (r#""extra": {"share": 1e999}"#, "extra: number out of range"),
        (r#""window_seconds": -5"#, "window_seconds: -5 seconds is not a valid duration"),
        (r#""window_seconds": "NaN""#, "window_seconds: \"NaN\" seconds"),
        (r#""algorithm": null"#, "algorithm: missing"),
        // Only without NOT NULL. The default may not be meant.
        (r#""enabled": null"#, "enabled: is NULL"),
        (r#""extra": null"#, "extra: is NULL"),
        (r#""burst_limit": 1"#, "burst_limit: unknown field"),
        (r#""name": "a\nb", "unknown": 1e999"#, ""),
    ] {
        let name = columns.split_once(':').unwrap().0;
        let body = [
            (r#""id""#, r#""a""#),
            (r#""scope""#, r#""user""#),
            (r#""algorithm""#, r#""fixed_window""#),
            (r#""limit_count""#, "1"),
            (r#""window_seconds""#, "1"),
        ];
        let others = body.iter().filter(|(column, _)| *column != name);
        let others: Vec<String> = others.map(|(column, value)| format!("{column}: {value}")).collect();
        let found = rule(&format!("{{{}, {columns}}}", others.join(", "))).err().unwrap_or_default();
        assert!(found.starts_with(reason) && found.is_empty() == reason.is_empty(), "{columns}: {found}");
    }
}
