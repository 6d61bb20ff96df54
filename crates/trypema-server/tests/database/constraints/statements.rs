//! SQL statements next to the rules `per-user`, `all` and `candidate` (for `per-user`), and the expected
//! result of each.

/// Returns each statement with a part of its expected error, or with `fine`.
pub fn all() -> Vec<(String, &'static str)> {
    let given =
        [overrides(), rules(), calendars(), concurrency(), conditions(), units(), limits(), lists()].concat();
    let whole = WHOLE.map(|(statement, reason)| (statement.to_owned(), reason));
    given.into_iter().chain(whole).collect()
}

const WHOLE: [(&str, &str); 14] = [
    ("TRUNCATE rate_limit_rules CASCADE", "use DELETE"),
    ("TRUNCATE rate_limit_overrides", "use DELETE"),
    ("TRUNCATE rate_limit_lists", "use DELETE"),
    ("TRUNCATE rate_limit_units CASCADE", "use DELETE"),
    // Within a transaction one unit can take the place of another, and rules can come before their units.
    (
        "WITH unit AS (INSERT INTO rate_limit_units (name) VALUES ('words')) UPDATE rate_limit_rules SET unit = 'words'",
        "fine",
    ),
    (
        "WITH gone AS (DELETE FROM rate_limit_units) INSERT INTO rate_limit_units (name) \
         SELECT 'unit-' || number FROM generate_series(1, 15) number",
        "fine",
    ),
    (
        "INSERT INTO rate_limit_units (name) SELECT 'unit-' || number FROM generate_series(1, 15) number",
        "16 units: at most 15 are allowed",
    ),
    ("UPDATE rate_limit_rules SET unit = 'token' WHERE id = 'all'", "rate_limit_rules_unit_fkey"),
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
    let zero = "rule \"per-user\": limit_count is 0, but fixed_window needs 1 to 9007199254740991";
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
        (r#"'per-user', '{"user": "a"}', 'block', NULL, 1, NULL"#, "limit_count is 1, but algorithm is NULL"),
        (r#"'per-user', '{"user": "a"}', NULL, 'fixed_window', 0, 1"#, zero),
        (r#"'per-user', '{"user": "a"}', 'maybe', NULL, NULL, NULL"#, "verdict_is_known"),
    ]
    .map(|(values, reason)| {
        let columns = "rule_id, key, verdict, algorithm, limit_count, window_seconds";
        (format!("INSERT INTO rate_limit_overrides ({columns}) VALUES ({values})"), reason)
    })
    .into()
}

fn rules() -> Vec<(String, &'static str)> {
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
        ("on_store_failure = 'shout'", "on_store_failure_is_known"),
        ("if_missing = 'deny'", "fine"),
        ("if_missing = 'shout'", "if_missing_is_known"),
        ("if_missing = NULL", "null value"),
        (
            "window_seconds = 'NaN'",
            "window_seconds is NaN, but fixed_window needs more than 0 and at most 31622400",
        ),
        ("window_seconds = 0.0000004", "window_seconds is 0.000000, but fixed_window needs more than 0"),
        ("window_seconds = NULL", "window_seconds is NULL, but fixed_window needs more than 0"),
        ("limit_count = -1", "rule \"all\": limit_count is -1, but fixed_window needs 1 to 9007199254740991"),
        (
            "algorithm = 'sliding_window', limit_count = 4294967296",
            "but sliding_window needs 1 to 4294967295",
        ),
        (
            "limit_count = 0, window_seconds = 0",
            "limit_count is 0, but fixed_window needs 1 to 9007199254740991; window_seconds is 0.000000, but",
        ),
        ("burst_limit = 1", "burst_limit is 1, but only token_bucket has it"),
        ("limits = to_jsonb(repeat('x', 9999))", "x, but only token_bucket has it"),
        (
            "algorithm = 'token_bucket', limit_count = NULL, window_seconds = NULL, \
             limits = jsonb_build_array(repeat('x', 9999))",
            "x, but needs limit_count, window_seconds and at most burst_limit",
        ),
        ("group_ms = 1", "group_ms is 1, but only absolute, suppressed have it"),
        ("algorithm = 'absolute', group_ms = 0", "group_ms is 0, but it needs 1 to 3600000"),
        ("hard_limit_factor = 2", "hard_limit_factor is 2, but only suppressed has it"),
        (
            "algorithm = 'suppressed', hard_limit_factor = 'NaN'",
            "hard_limit_factor is NaN, but it needs 1 to 1000000",
        ),
        ("while_blocked = 'ignore'", "while_blocked is ignore, but only abuse has it"),
        (
            "algorithm = 'abuse'",
            "temp_window_seconds is NULL, but abuse needs more than 0 and at most 31622400",
        ),
        ("algorithm = 'token_bucket', burst_limit = 0", "burst_limit is 0, but token_bucket needs 1 to"),
        (
            "algorithm = 'token_bucket', refill_rate = 0",
            "refill_rate is 0, but token_bucket needs more than 0 and at most 100000000",
        ),
        ("algorithm = 'token_bucket', limit_count = 9007199254740881", "cannot be counted exactly"),
    ]
    .map(|(values, reason)| (format!("UPDATE rate_limit_rules SET {values} WHERE id = 'all'"), reason))
    .into()
}

fn concurrency() -> Vec<(String, &'static str)> {
    let hold = "but concurrency needs more than 0 and at most 3600";
    let given = [
        ("20, 60, NULL, false", "fine"),
        ("1, 0.000001, NULL, false", "fine"),
        ("9007199254740991, 3600, NULL, false", "fine"),
        ("0, 60, NULL, false", "limit_count is 0, but concurrency needs 1 to 9007199254740991"),
        ("9007199254740992, 60, NULL, false", "but concurrency needs 1 to 9007199254740991"),
        ("NULL, 60, NULL, false", "limit_count is NULL, but concurrency needs 1 to"),
        ("20, NULL, NULL, false", "hold_seconds is NULL, but concurrency needs more than 0 and at most 3600"),
        ("20, 0, NULL, false", hold),
        ("20, -1, NULL, false", hold),
        ("20, 3600.000001, NULL, false", hold),
        ("20, 'NaN', NULL, false", "hold_seconds is NaN, but concurrency needs more than 0"),
        (
            "0, 0, NULL, false",
            "limit_count is 0, but concurrency needs 1 to 9007199254740991; hold_seconds is 0.000000, but",
        ),
        (
            "20, 60, 60, false",
            "window_seconds is 60.000000, but only absolute, suppressed, token_bucket, sliding_window, fixed_window have it",
        ),
        ("20, 60, NULL, true", "postpaid is true, but concurrency limits what is held at the moment"),
    ];
    let of_rule = given.map(|(values, reason)| {
        let columns = "algorithm, limit_count, hold_seconds, window_seconds, postpaid";
        (
            format!("UPDATE rate_limit_rules SET ({columns}) = ('concurrency', {values}) WHERE id = 'all'"),
            reason,
        )
    });
    let others = [
        (
            "UPDATE rate_limit_rules SET hold_seconds = 60 WHERE id = 'all'",
            "hold_seconds is 60.000000, but only concurrency has it",
        ),
        (
            "INSERT INTO rate_limit_overrides (rule_id, key, verdict, hold_seconds) VALUES ('per-user', '{\"user\": \"a\"}', 'block', 60)",
            "hold_seconds is 60.000000, but algorithm is NULL",
        ),
        (
            "INSERT INTO rate_limit_overrides (rule_id, key, algorithm, limit_count, hold_seconds) \
             VALUES ('per-user', '{\"user\": \"a\"}', 'concurrency', 1, 60)",
            "does not fit",
        ),
        (
            "WITH changed AS (UPDATE rate_limit_rules SET (algorithm, hold_seconds, window_seconds) = ('concurrency', 60, NULL) \
             WHERE id = 'per-user') INSERT INTO rate_limit_overrides (rule_id, key, algorithm, limit_count, hold_seconds) \
             VALUES ('per-user', '{\"user\": \"a\"}', 'concurrency', 1, 3600)",
            "fine",
        ),
    ];
    of_rule.into_iter().chain(others.map(|(statement, reason)| (statement.to_owned(), reason))).collect()
}

fn calendars() -> Vec<(String, &'static str)> {
    let zone = "but it needs an IANA name such as Europe/Berlin";
    let given = [
        ("'month', NULL, NULL, NULL", "fine"),
        ("'month', 'Europe/Berlin', '28', NULL", "fine"),
        ("'month', 'America/Argentina/ComodRivadavia', '1', NULL", "fine"),
        ("'week', 'Etc/GMT+12', 'sunday', NULL", "fine"),
        ("'day', 'UTC', '23:59', NULL", "fine"),
        ("'year', NULL, NULL, NULL", r#"per is "year", but it needs day, week or month"#),
        ("'day', '', NULL, NULL", zone),
        (
            "'day', 'Europe/', NULL, NULL",
            r#"zone is "Europe/", but it needs an IANA name such as Europe/Berlin"#,
        ),
        ("'day', 'Europe Berlin', NULL, NULL", r#"zone is "Europe Berlin", but it needs an IANA name"#),
        ("'day', E'a\\n\"b\"', NULL, NULL", r#"zone is "a\n\"b\"", but it needs an IANA name"#),
        ("'day', repeat('x', 65), NULL, NULL", zone),
        ("'day', 'x' || repeat('☂', 9999), NULL, NULL", zone),
        (
            "'day', 'europe/berlin', NULL, NULL",
            r#"zone is "europe/berlin", but it needs the spelling Europe/Berlin"#,
        ),
        ("'day', 'utc', NULL, NULL", r#"zone is "utc", but it needs the spelling UTC"#),
        ("'day', 'etc/GMT+12', NULL, NULL", r#"zone is "etc/GMT+12", but it needs the spelling Etc/GMT+12"#),
        ("'month', NULL, '0', NULL", r#"starts is "0", but per month needs a day from 1 to 28"#),
        ("'month', NULL, '29', NULL", r#"starts is "29", but per month needs a day from 1 to 28"#),
        ("'month', NULL, 'monday', NULL", r#"starts is "monday", but per month needs a day from 1 to 28"#),
        (
            "'week', NULL, 'Monday', NULL",
            r#"starts is "Monday", but per week needs a weekday such as monday"#,
        ),
        ("'day', NULL, '24:00', NULL", r#"starts is "24:00", but per day needs a time from 00:00 to 23:59"#),
        ("'day', NULL, '6:00', NULL", r#"starts is "6:00", but per day needs a time from 00:00 to 23:59"#),
        ("'day', NULL, NULL, 60", "window_seconds is 60.000000, but per is given, so it must be NULL"),
        (
            "NULL, NULL, NULL, NULL",
            "window_seconds is NULL, but fixed_window needs more than 0 and at most 31622400, or per",
        ),
        ("NULL, 'UTC', NULL, 60", r#"zone is "UTC", but per is NULL"#),
        ("NULL, NULL, '1', 60", r#"starts is "1", but per is NULL"#),
    ];
    let columns = "per, zone, starts, window_seconds";
    let in_rule = given.map(|(values, reason)| {
        (format!("UPDATE rate_limit_rules SET ({columns}) = ROW ({values}) WHERE id = 'all'"), reason)
    });
    let in_override = given.map(|(values, reason)| {
        let numbers = format!(r#"'per-user', '{{"user": "a"}}', 'fixed_window', 1, {values}"#);
        let columns = format!("rule_id, key, algorithm, limit_count, {columns}");
        (format!("INSERT INTO rate_limit_overrides ({columns}) VALUES ({numbers})"), reason)
    });
    let other = (
        "UPDATE rate_limit_rules SET algorithm = 'sliding_window', per = 'day' WHERE id = 'all'".to_owned(),
        "rule \"all\": per is \"day\", but only fixed_window has it",
    );
    in_rule.into_iter().chain(in_override).chain([other]).collect()
}

/// Conditions of the rule `per-user`, whose key has the attribute `user`.
fn conditions() -> Vec<(String, &'static str)> {
    let shape = r#"but it needs a list of values, {"not": [...]} or "absent""#;
    [
        ("'{}'", "fine"),
        (r#"'{"model": ["gpt-5", "*"], "region": {"not": ["eu"]}, "batch_id": "absent"}'"#, "fine"),
        (r#"'{"user": ["*"]}'"#, "fine"),
        (r#"'{"user": {"not": ["ann*"]}}'"#, "fine"),
        ("NULL", "null value"),
        ("'[]'", "conditions is [], but it needs an object"),
        ("'null'", "conditions is null, but it needs an object"),
        (r#"'"absent"'"#, "conditions is \"absent\", but it needs an object"),
        (
            "(SELECT jsonb_object_agg('a' || number, 'absent') FROM generate_series(1, 33) number)",
            "conditions has 33 attributes, but a request has at most 32",
        ),
        (r#"'{"us er": ["a"]}'"#, r#"conditions."us er" is ["a"], but an attribute needs 1 to 64 letters"#),
        (r#"'{"": "absent"}'"#, r#"conditions."" is "absent", but an attribute needs 1 to 64 letters"#),
        (r#"'{"endpoint": ["/"]}'"#, r#"conditions.endpoint is ["/"], but the column endpoints selects paths"#),
        (r#"'{"method": ["GET"]}'"#, r#"conditions.method is ["GET"], but the column endpoints selects methods"#),
        (r#"'{"plan": "absent"}'"#, r#"conditions.plan is "absent", but the column plan_tiers selects plans"#),
        (r#"'{"ip": ["::1"]}'"#, r#"conditions.ip is ["::1"], but conditions compare text"#),
        (r#"'{"user": "absent"}'"#, r#"conditions.user is "absent", but this can never hold"#),
        (r#"'{"user": {"not": ["a", "*"]}}'"#, r#"conditions.user.not[1] is "*", but this can never hold"#),
        (r#"'{"model": {"not": ["**"]}}'"#, r#"conditions.model.not[0] is "**", but this holds only if the"#),
        (r#"'{"model": "gpt-5"}'"#, r#"conditions.model is "gpt-5", but it needs a list of values"#),
        (r#"'{"model": null}'"#, r#"conditions.model is null, but it needs a list of values"#),
        (r#"'{"model": {}}'"#, shape),
        (r#"'{"model": {"not": "a"}}'"#, shape),
        (r#"'{"model": {"not": ["a"], "or": ["b"]}}'"#, shape),
        (r#"'{"model": []}'"#, "conditions.model has 0 values, but it needs 1 to 256"),
        (r#"'{"model": {"not": []}}'"#, "conditions.model.not has 0 values, but it needs 1 to 256"),
        (
            "(SELECT jsonb_build_object('model', jsonb_agg('m' || number)) FROM generate_series(1, 257) number)",
            "conditions.model has 257 values, but it needs 1 to 256",
        ),
        (r#"'{"model": ["a", ""]}'"#, r#"conditions.model[1] is "", but it needs 1 to 255 characters"#),
        (r#"'{"model": [7]}'"#, "conditions.model[0] is 7, but it needs 1 to 255 characters"),
        (r#"'{"model": ["a\n"]}'"#, r#"conditions.model[0] is "a\n", but it needs 1 to 255 characters"#),
        (
            "jsonb_build_object('model', jsonb_build_array(repeat('☂', 256)))",
            "but it needs 1 to 255 characters",
        ),
        (
            r#"'{"ip": ["a"], "model": []}'"#,
            "conditions compare text, and an address has many spellings: use rate_limit_lists; conditions.model has 0",
        ),
    ]
    .map(|(value, reason)| {
        (format!("UPDATE rate_limit_rules SET conditions = {value} WHERE id = 'per-user'"), reason)
    })
    .into()
}

fn units() -> Vec<(String, &'static str)> {
    let declared = [
        ("'Words.per_day-9'", "fine"),
        ("repeat('x', 64)", "fine"),
        ("'requests'", "unit \"requests\" always exists: leave it out"),
        ("''", "unit \"\" is not 1 to 64 letters, digits, _, - and ."),
        ("'us d'", "unit \"us d\" is not 1 to 64 letters, digits, _, - and ."),
        ("E'a\\n'", "unit \"a\\n\" is not 1 to 64 letters, digits, _, - and ."),
        ("repeat('x', 65)", "is not 1 to 64 letters, digits, _, - and ."),
        ("'tokens'", "rate_limit_units_pkey"),
        ("NULL", "null value"),
    ]
    .map(|(value, reason)| (format!("INSERT INTO rate_limit_units (name) VALUES ({value})"), reason));
    let counted = [
        ("unit = 'tokens'", "fine"),
        ("unit = 'tokens', postpaid = true", "fine"),
        ("unit = 'requests'", "rule \"all\": unit is requests, but requests are counted if it is NULL"),
        ("postpaid = NULL", "null value"),
        (
            "algorithm = 'abuse', limit_count = NULL, window_seconds = NULL, temp_window_seconds = 1, temp_threshold = 1, \
             temp_block_seconds = 1, long_window_seconds = 1, long_threshold = 1, long_block_seconds = 1, postpaid = true",
            "rule \"all\": postpaid is true, but abuse counts attempts, which have no later cost",
        ),
        ("refused_by_older_servers = 1", "can only be updated to DEFAULT"),
    ]
    .map(|(values, reason)| (format!("UPDATE rate_limit_rules SET {values} WHERE id = 'all'"), reason));
    declared.into_iter().chain(counted).collect()
}

fn limits() -> Vec<(String, &'static str)> {
    let (refused, none) =
        ("but needs limit_count, window_seconds and at most", "needs to be a list of 1 to 16 limits");
    [
        (r#"[{"limit_count": 1, "window_seconds": 1, "burst_limit": null}]"#, "fine"),
        ("[]", none),
        ("{}", none),
        ("null", none),
        ("[7]", refused),
        ("[[]]", refused),
        (r#"[{"limit_count": 1}]"#, refused),
        (r#"[{"limit_count": 1, "window_seconds": 1, "refill_rate": 1}]"#, refused),
        (r#"[{"limit_count": "1", "window_seconds": 1}]"#, refused),
        (r#"[{"limit_count": 1, "window_seconds": "1"}]"#, refused),
        (r#"[{"limit_count": 1, "window_seconds": 1, "burst_limit": "1"}]"#, refused),
        // A tenth of a microsecond rounds to zero.
        (r#"[{"limit_count": 1, "window_seconds": 0.0000001}]"#, refused),
    ]
    .map(|(limits, reason)| {
        let columns = "id, scope, algorithm, limits";
        (
            format!(
                "INSERT INTO rate_limit_rules ({columns}) VALUES ('x', 'user', 'token_bucket', '{limits}')"
            ),
            reason,
        )
    })
    .into()
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
