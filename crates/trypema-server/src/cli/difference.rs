//! Formats one change for people.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Formats a change field by field. The first character is `+` for an added item, `-` for a removed one,
/// `~` for a changed one.
pub(super) fn difference(change: &Value) -> String {
    let (before, after) = (&change["before"], &change["after"]);
    let sign = match (before.is_null(), after.is_null()) {
        (true, _) => '+',
        (false, true) => '-',
        (false, false) => '~',
    };
    let [kind, name] = ["kind", "name"].map(|field| change[field].as_str().unwrap_or_default());
    let mut text = line(&format!("{sign} {kind} {name}"));
    if sign == '-' {
        return text;
    }
    let (old, new) = (fields(before), fields(after));
    for field in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let value = |fields: &BTreeMap<String, String>| fields.get(field).cloned();
        match (value(&old), value(&new)) {
            (old, new) if old == new => {}
            (None, Some(new)) => text.push_str(&line(&format!("    {field}: {new}"))),
            (Some(old), None) => text.push_str(&line(&format!("    {field}: {old} -> not given"))),
            (Some(old), Some(new)) => text.push_str(&line(&format!("    {field}: {old} -> {new}"))),
            (None, None) => {}
        }
    }
    text
}

/// Returns a single line. Control characters are escaped: text that others wrote must not control the
/// terminal.
pub(super) fn line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().map(shown).collect::<String>() + "\n"
}

/// Returns every leaf field by its full path, such as `strategy.fixed_window.limit`.
fn fields(value: &Value) -> BTreeMap<String, String> {
    fn add(prefix: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    add(&name, member, fields);
                }
            }
            Value::Null => {}
            other => {
                fields.insert(prefix.to_owned(), other.to_string());
            }
        }
    }
    let mut found = BTreeMap::new();
    add("", value, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fields_that_differ_are_told() {
        let change = json!({
            "kind": "rule",
            "name": "a",
            "before": {"id": "a", "name": "x\u{1b}", "strategy": {"fixed_window": {"limit": 1, "window": "1s"}}},
            "after": {"id": "a", "priority": 3, "strategy": {"fixed_window": {"limit": 2, "window": "1s"}}},
        });
        let text = "~ rule a\n    name: \"x\\u001b\" -> not given\n    priority: 3\n    strategy.fixed_window.limit: 1 -> 2\n";
        assert_eq!(difference(&change), text);
        let gone =
            json!({"kind": "list", "name": "block user \u{1b}[2J", "before": {"value": "x"}, "after": null});
        assert_eq!(difference(&gone), "- list block user \\u{1b}[2J\n");
    }
}
