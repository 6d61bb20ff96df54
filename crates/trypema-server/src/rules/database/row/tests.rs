use super::*;

fn rule(body: &str) -> Result<Rule, String> {
    RULES.item(body)
}

#[test]
fn each_key_of_extra_has_one_meaning() {
    assert!(strategy_fields().is_disjoint(&RULES.fields));
    let keys = extra_keys();
    for key in ["postpaid", "when", "per", "limits", "while_blocked", "hold"] {
        assert!(keys.contains(key), "{key}");
    }
    for column in ["id", "strategy", "limit", "window"] {
        assert!(!keys.contains(column), "{column}");
    }
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
