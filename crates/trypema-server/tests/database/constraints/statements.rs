//! SQL statements next to the rules `per-user`, `all` and `candidate` (for `per-user`), and the expected
//! result of each.

/// Returns each statement with a part of its expected error, or with `fine`.
pub fn all() -> Vec<(String, &'static str)> {
    let given = [overrides(), rules(), extra(), units(), lists()].concat();
    let whole = WHOLE.map(|(statement, reason)| (statement.to_owned(), reason));
    given.into_iter().chain(whole).collect()
}

const WHOLE: [(&str, &str); 10] = [
    ("TRUNCATE rate_limit_rules CASCADE", "use DELETE"),
    ("TRUNCATE rate_limit_overrides", "use DELETE"),
    ("TRUNCATE rate_limit_lists", "use DELETE"),
    ("TRUNCATE rate_limit_units CASCADE", "use DELETE"),
    ("DELETE FROM rate_limit_rules WHERE id = 'per-user'", "foreign key"),
    ("DELETE FROM rate_limit_rules WHERE id IN ('per-user', 'candidate')", "fine"),
    // Within a transaction the order does not matter.
    (
        "INSERT INTO rate_limit_rules (id, scope, candidate_for, algorithm, limit_count, window_seconds) \
         VALUES ('b', 'user', 'a', 'fixed_window', 1, 1), ('a', 'user', NULL, 'fixed_window', 1, 1)",
        "fine",
    ),
    (
        "INSERT INTO rate_limit_rules (id, scope, candidate_for, algorithm, limit_count, window_seconds) \
         VALUES ('x', 'user', 'candidate', 'fixed_window', 1, 1)",
        "not for another candidate",
    ),
    (
        "WITH one AS (INSERT INTO rate_limit_overrides (rule_id, key, verdict) VALUES ('per-user', '{\"user\": \"a\"}', 'block')) \
         UPDATE rate_limit_rules SET key_pattern = '{tenant}' WHERE id = 'per-user'",
        "does not fit",
    ),
    ("UPDATE rate_limit_rules SET key_pattern = '{tenant}' WHERE id = 'per-user'", "fine"),
];

fn overrides() -> Vec<(String, &'static str)> {
    let (object, fits) = ("key_is_an_object_of_texts", "does not fit");
    let either = "either_a_verdict_or_numbers";
    let count = "limit_count_is_allowed";
    [
        (r#"'per-user', '{"user": ""}', 'allow', NULL, NULL, NULL"#, "fine"),
        (r#"'all', '{}', 'block', NULL, NULL, NULL"#, "fine"),
        (r#"'per-user', '{"user": "a"}', NULL, 'fixed_window', 1, 1"#, "fine"),
        (r#"'per-user', '{}', 'block', NULL, NULL, NULL"#, fits),
        (r#"'per-user', '{"user": "a", "x": "b"}', 'block', NULL, NULL, NULL"#, fits),
        (r#"'all', '{"user": "a"}', 'block', NULL, NULL, NULL"#, fits),
        (r#"'per-user', '{"user": "a"}', NULL, 'sliding_window', 1, 1"#, fits),
        (r#"'none', '{"user": "a"}', 'block', NULL, NULL, NULL"#, "foreign key"),
        (r#"'per-user', '{"user": 1}', 'block', NULL, NULL, NULL"#, object),
        (r#"'per-user', '{"user": null}', 'block', NULL, NULL, NULL"#, object),
        (r#"'per-user', '{"user": ["a"]}', 'block', NULL, NULL, NULL"#, object),
        (r#"'per-user', '{"user": []}', 'block', NULL, NULL, NULL"#, object),
        (r#"'per-user', '{"user": {}}', 'block', NULL, NULL, NULL"#, object),
        (r#"'per-user', '[]', 'block', NULL, NULL, NULL"#, object),
        (r#"'per-user', '"user"', 'block', NULL, NULL, NULL"#, object),
        (r#"'all', '{"endpoint": null}', 'block', NULL, NULL, NULL"#, object),
        (r#"'all', '{"endpoint": ["%ff"]}', 'block', NULL, NULL, NULL"#, object),
        (r#"'all', '["endpoint"]', 'block', NULL, NULL, NULL"#, object),
        (r#"'all', '"endpoint"', 'block', NULL, NULL, NULL"#, object),
        (r#"'per-user', '{"user": "a"}', NULL, NULL, NULL, NULL"#, either),
        (r#"'per-user', '{"user": "a"}', 'block', 'fixed_window', 1, 1"#, either),
        (r#"'per-user', '{"user": "a"}', 'block', NULL, 1, NULL"#, count),
        (r#"'per-user', '{"user": "a"}', NULL, 'fixed_window', 0, 1"#, count),
        (r#"'per-user', '{"user": "a"}', 'maybe', NULL, NULL, NULL"#, "verdict_is_known"),
    ]
    .map(|(values, reason)| {
        let columns = "rule_id, key, verdict, algorithm, limit_count, window_seconds";
        (format!("INSERT INTO rate_limit_overrides ({columns}) VALUES ({values})"), reason)
    })
    .into()
}

fn rules() -> Vec<(String, &'static str)> {
    let (count, window) = ("limit_count_is_allowed", "window_seconds_is_allowed");
    [
        ("id = id || '2'", "fine"),
        ("candidate_for = id", "not for another candidate"),
        ("candidate_for = 'candidate'", "not for another candidate"),
        ("plan_tiers = '{NULL}'", "plan_tiers_are_texts"),
        ("plan_tiers = '{{a,b},{c,d}}'", "plan_tiers_are_texts"),
        ("plan_tiers = NULL", "null value"),
        ("endpoints = '{NULL}'", "endpoints_are_allowed"),
        ("endpoints = '{{/a},{/b}}'", "endpoints_are_allowed"),
        ("scope = 'planet'", "scope_is_known"),
        ("algorithm = 'leaky_bucket'", "algorithm_is_known"),
        ("algorithm = NULL, limit_count = NULL, window_seconds = NULL", "algorithm_is_given"),
        ("action = 'shout'", "action_is_known"),
        ("window_seconds = 'NaN'", window),
        ("window_seconds = 0.0000004", window),
        ("window_seconds = 31622400", "fine"),
        ("window_seconds = 31622400.000001", window),
        ("window_seconds = NULL", "fine"),
        ("algorithm = 'absolute', window_seconds = NULL", window),
        ("algorithm = 'concurrency', extra = '{\"hold\": \"1m\"}'", window),
        ("limit_count = -1", count),
        ("limit_count = 0", count),
        ("limit_count = NULL", count),
        ("algorithm = 'abuse', window_seconds = NULL", count),
        ("limit_count = 9007199254740991", "fine"),
        ("limit_count = 9007199254740992", count),
        ("algorithm = 'absolute', limit_count = 9007199254740991", count),
        ("algorithm = 'sliding_window', limit_count = 4294967296", count),
        ("algorithm = 'token_bucket', limit_count = -1", count),
        ("algorithm = 'token_bucket', limit_count = 0, burst_limit = 5, refill_rate = 0.5", "fine"),
        ("burst_limit = 1", "burst_limit_is_allowed"),
        ("algorithm = 'token_bucket', burst_limit = 0", "burst_limit_is_allowed"),
        ("refill_rate = 1", "refill_rate_is_allowed"),
        ("algorithm = 'token_bucket', refill_rate = 0", "refill_rate_is_allowed"),
        ("algorithm = 'token_bucket', refill_rate = 'NaN'", "refill_rate_is_allowed"),
    ]
    .map(|(values, reason)| (format!("UPDATE rate_limit_rules SET {values} WHERE id = 'all'"), reason))
    .into()
}

fn extra() -> Vec<(String, &'static str)> {
    let known = "extra_is_an_object_with_known_keys";
    let of_rule = [
        ("'{}'", "fine"),
        (r#"'{"if_missing": "deny", "per": "month", "share": null}'"#, "fine"),
        // The compiler alone validates values.
        (r#"'{"share": "all", "when": 7}'"#, "fine"),
        ("NULL", "null value"),
        ("'null'", known),
        ("'[]'", known),
        (r#"'"if_missing"'"#, known),
        (r#"'{"if_mising": "deny"}'"#, known),
        (r#"'{"limit": 1}'"#, known),
        (r#"'{"strategy": {}}'"#, known),
        (r#"jsonb_build_object('hold', '1m', repeat('x', 9999), 1)"#, known),
    ]
    .map(|(extra, reason)| (format!("UPDATE rate_limit_rules SET extra = {extra} WHERE id = 'all'"), reason));
    let columns = "rule_id, key, algorithm, limit_count, extra";
    let of_override = [(r#"{"per": "day"}"#, "fine"), (r#"{"limt": 1}"#, known)].map(|(extra, reason)| {
        let values = format!(r#"'per-user', '{{"user": "a"}}', 'fixed_window', 1, '{extra}'"#);
        (format!("INSERT INTO rate_limit_overrides ({columns}) VALUES ({values})"), reason)
    });
    of_rule.into_iter().chain(of_override).collect()
}

fn units() -> Vec<(String, &'static str)> {
    let name = "unit_has_1_to_64_letters_digits_underscores_dashes_dots";
    let declared = [
        ("'Words.per_day-9'", "fine"),
        ("repeat('x', 64)", "fine"),
        ("'requests'", "unit_is_not_requests"),
        ("''", name),
        ("'us d'", name),
        ("E'a\\n'", name),
        ("repeat('x', 65)", name),
        ("'tokens'", "rate_limit_units_pkey"),
        ("NULL", "null value"),
    ]
    .map(|(value, reason)| (format!("INSERT INTO rate_limit_units (name) VALUES ({value})"), reason));
    declared.into()
}

fn lists() -> Vec<(String, &'static str)> {
    let network = "value_of_ip_is_a_network";
    [
        ("'allow', 'user', ''", "fine"),
        ("'block', 'ip', '10.0.0.1'", "fine"),
        ("'block', 'ip', '10.1.2.3/0'", "fine"),
        ("'block', 'ip', '2001:db8::/32'", "fine"),
        ("'block', 'ip', '::ffff:10.0.0.1'", "fine"),
        ("'maybe', 'user', 'a'", "list_is_known"),
        ("'allow', '', 'a'", "attribute_has_a_name"),
        ("'allow', 'us er', 'a'", "attribute_has_a_name"),
        ("'allow', 'ip', ''", network),
        ("'allow', 'ip', 'localhost'", network),
        ("'allow', 'ip', '10.0.0.256'", network),
        ("'allow', 'ip', '10.0.0.0/33'", network),
        ("'allow', 'ip', '10.0.0.0/-1'", network),
        ("'allow', 'ip', '::/129'", network),
        ("'allow', 'ip', '10/8'", network),
        ("'allow', 'ip', '10.1/16'", network),
        ("'allow', 'ip', ' 10.0.0.1'", network),
        ("'allow', 'ip', '10.0.0.1 '", network),
        ("'allow', 'ip', '010.0.0.1'", network),
        ("'allow', 'ip', '10.0.0.0/'", network),
        ("'allow', 'ip', '::ffff:10.0.0.0/120'", network),
        ("'allow', 'ip', 'fe80::1%eth0'", network),
    ]
    .map(|(values, reason)| {
        (format!("INSERT INTO rate_limit_lists (list, attribute, value) VALUES ({values})"), reason)
    })
    .into()
}
