//! Rules as an operator writes them into the table with SQL.

use trypema::rules::{
    AbuseNumbers, Action, BucketNumbers, ConcurrencyNumbers, CounterNumbers, IfMissing, Numbers,
    OnStoreFailure, Period, Rule, Scope, SuppressedNumbers, WindowNumbers,
};

/// Returns the statement that stores a rule.
pub fn insert(rule: &Rule) -> String {
    let mut columns = vec![
        ("id", text(&rule.id)),
        ("scope", text(scope(rule.scope))),
        ("action", text(action(rule.action))),
        ("plan_tiers", texts(&rule.plan_tiers)),
        ("endpoints", texts(&rule.endpoints)),
        ("priority", rule.priority.to_string()),
        ("enabled", rule.enabled.to_string()),
        ("postpaid", rule.postpaid.to_string()),
        ("conditions", text(&serde_json::to_string(&rule.when).unwrap())),
    ];
    columns.extend(rule.unit.iter().map(|unit| ("unit", text(unit))));
    columns.extend(rule.name.iter().map(|name| ("name", text(name))));
    columns.extend(rule.key_pattern.iter().map(|pattern| ("key_pattern", text(pattern))));
    columns.extend(rule.max_delay.map(|delay| ("max_delay_seconds", seconds(delay))));
    columns.extend(if_missing(rule.if_missing).map(|then| ("if_missing", text(then))));
    columns.extend(rule.on_store_failure.map(|answer| ("on_store_failure", text(failure(answer)))));
    columns.extend(rule.candidate_for.iter().map(|live| ("candidate_for", text(live))));
    columns.extend(rule.share.map(|share| ("share", fraction(share))));
    columns.extend(numbers(&rule.strategy));
    let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    format!("INSERT INTO rate_limit_rules ({}) VALUES ({})", names.join(", "), values.join(", "))
}

/// Returns the statement that declares units.
pub fn declare(units: &[&str]) -> String {
    let rows: Vec<String> = units.iter().map(|unit| format!("({})", text(unit))).collect();
    format!("INSERT INTO rate_limit_units (name) VALUES {}", rows.join(", "))
}

/// Returns the value of the column, or `None` for the column's default.
fn if_missing(then: IfMissing) -> Option<&'static str> {
    match then {
        IfMissing::Skip => None,
        IfMissing::Deny => Some("deny"),
        IfMissing::Error => Some("error"),
    }
}

/// Returns a text as an SQL literal.
pub fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

fn texts(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| text(value)).collect();
    format!("ARRAY[{}]::varchar[]", values.join(", "))
}

fn numbers(numbers: &Numbers) -> Vec<(&'static str, String)> {
    let mut columns = Vec::new();
    let algorithm = match numbers {
        Numbers::Absolute(WindowNumbers { limit, window, group }) => {
            columns.extend(counter(*limit, *window));
            columns.extend(group.map(milliseconds));
            "absolute"
        }
        Numbers::Suppressed(SuppressedNumbers { limit, window, group, hard_limit_factor }) => {
            columns.extend(counter(*limit, *window));
            columns.extend(group.map(milliseconds));
            columns.extend(hard_limit_factor.map(|factor| ("hard_limit_factor", fraction(factor))));
            "suppressed"
        }
        Numbers::SlidingWindow(CounterNumbers { limit, window }) => {
            columns.extend(counter(*limit, *window));
            "sliding_window"
        }
        Numbers::FixedWindow(numbers) => {
            columns.push(("limit_count", numbers.limit.to_string()));
            columns.extend(numbers.window.map(|window| ("window_seconds", seconds(window))));
            columns.extend(numbers.per.map(|per| ("per", text(&format!("{per:?}").to_lowercase()))));
            columns.extend(numbers.zone.iter().map(|zone| ("zone", text(zone))));
            columns.extend(numbers.starts.map(|starts| ("starts", text(&starts.to_string()))));
            "fixed_window"
        }
        Numbers::TokenBucket(numbers) => {
            columns.extend(buckets(numbers));
            "token_bucket"
        }
        Numbers::Abuse(numbers) => {
            columns.extend(tiers(numbers));
            "abuse"
        }
        Numbers::Concurrency(ConcurrencyNumbers { limit, hold }) => {
            columns.extend([("limit_count", limit.to_string()), ("hold_seconds", seconds(*hold))]);
            "concurrency"
        }
    };
    columns.push(("algorithm", text(algorithm)));
    columns
}

fn counter(limit: u64, window: Period) -> [(&'static str, String); 2] {
    [("limit_count", limit.to_string()), ("window_seconds", seconds(window))]
}

fn buckets(numbers: &BucketNumbers) -> Vec<(&'static str, String)> {
    let mut columns = Vec::new();
    columns.extend(numbers.limit.map(|limit| ("limit_count", limit.to_string())));
    columns.extend(numbers.window.map(|window| ("window_seconds", seconds(window))));
    columns.extend(numbers.burst.map(|burst| ("burst_limit", burst.to_string())));
    columns.extend(numbers.refill_rate.map(|rate| ("refill_rate", fraction(rate))));
    if !numbers.limits.is_empty() {
        let limits: Vec<String> = numbers
            .limits
            .iter()
            .map(|limit| {
                let burst =
                    limit.burst.map(|burst| format!(", \"burst_limit\": {burst}")).unwrap_or_default();
                format!(
                    "{{\"limit_count\": {}, \"window_seconds\": {}{burst}}}",
                    limit.limit,
                    seconds(limit.window)
                )
            })
            .collect();
        columns.push(("limits", text(&format!("[{}]", limits.join(", ")))));
    }
    columns
}

fn tiers(numbers: &AbuseNumbers) -> [(&'static str, String); 7] {
    let AbuseNumbers { temp, long, while_blocked } = numbers;
    [
        ("temp_window_seconds", seconds(temp.window)),
        ("temp_threshold", temp.threshold.to_string()),
        ("temp_block_seconds", seconds(temp.block)),
        ("long_window_seconds", seconds(long.window)),
        ("long_threshold", long.threshold.to_string()),
        ("long_block_seconds", seconds(long.block)),
        ("while_blocked", text(&format!("{while_blocked:?}").to_lowercase())),
    ]
}

fn seconds(period: Period) -> String {
    format!("{}.{:06}", period.0.as_secs(), period.0.subsec_micros())
}

fn milliseconds(period: Period) -> (&'static str, String) {
    ("group_ms", period.0.as_millis().to_string())
}

/// Formats a number with all digits that distinguish it from its neighbours.
fn fraction(value: f64) -> String {
    if value.is_finite() { format!("{value:?}") } else { text(&value.to_string().replace("inf", "Infinity")) }
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Global => "global",
        Scope::Tenant => "tenant",
        Scope::User => "user",
        Scope::Ip => "ip",
        Scope::Endpoint => "endpoint",
    }
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Reject => "reject",
        Action::Throttle => "throttle",
        Action::LogOnly => "log_only",
    }
}

fn failure(answer: OnStoreFailure) -> &'static str {
    match answer {
        OnStoreFailure::Error => "error",
        OnStoreFailure::Allow => "allow",
        OnStoreFailure::Deny => "deny",
    }
}
