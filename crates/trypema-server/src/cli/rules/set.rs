//! `trypema rules set`: changes single fields of a stored rule.

use http::Method;
use serde_json::{Map, Value, json};
use trypema::rules::Rule;

use crate::cli::confirm::{ChangeArgs, print_done, print_unchanged};
use crate::cli::service::{Call, percent_encode};
use crate::rules::change::canonical_rule;

/// A field and its new value, as in `limit=20`.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Assignment {
    field: String,
    value: Value,
}

impl std::str::FromStr for Assignment {
    type Err = String;

    /// Parses `FIELD=VALUE`. The value is JSON, or text; an empty one removes the field.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((field, "")) if !field.is_empty() => {
                Ok(Self { field: field.to_owned(), value: Value::Null })
            }
            Some((field, value)) if !field.is_empty() => {
                let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
                Ok(Self { field: field.to_owned(), value })
            }
            _ => Err("need a field and a value, as in limit=20".to_owned()),
        }
    }
}

/// Changes fields of a rule: shows the change, then makes it, if nobody changed the rule meanwhile.
pub(super) fn set(id: &str, assignments: &[Assignment], change: &ChangeArgs) -> Result<(), String> {
    let path = format!("/v1/rules/{}", percent_encode(id));
    let mut stored = change.service.call(&Call::new(Method::GET, &path))?;
    let revision = stored.as_object_mut().and_then(|rule| rule.remove("revision"));
    let revision = revision.as_ref().and_then(Value::as_u64).ok_or_else(|| {
        "the rules of this server are in a file: change the file, or set database_url to store them"
            .to_owned()
    })?;
    let before = normalised(stored)?;
    let after = changed(&before, assignments)?;
    if before == after {
        print_unchanged(None);
        return Ok(());
    }
    let shown = json!({"kind": "rule", "name": id, "before": before, "after": after});
    if change.ask(&[shown], None)? {
        let call = Call { body: Some(&after), revision: Some(revision), ..Call::new(Method::PUT, &path) };
        print_done(1, &change.service.call(&call)?);
    }
    Ok(())
}

/// Returns the rule with other values.
fn changed(rule: &Value, assignments: &[Assignment]) -> Result<Value, String> {
    let mut after = rule.clone();
    assignments.iter().try_for_each(|assignment| assignment.apply_to(&mut after))?;
    normalised(after)
}

/// Returns a rule in the form in which the server stores it, in which equal rules are equal.
fn normalised(rule: Value) -> Result<Value, String> {
    let rule: Rule =
        serde_json::from_value(rule).map_err(|error| format!("the rule would be invalid: {error}"))?;
    serde_json::to_value(canonical_rule(rule)).map_err(|error| error.to_string())
}

impl Assignment {
    /// Sets the field. A name that is not a field of rules is a number of the rule's strategy.
    fn apply_to(&self, rule: &mut Value) -> Result<(), String> {
        if self.field == "id" {
            return Err("id cannot be changed: the rule's counters are named after it".to_owned());
        }
        let mut path: Vec<String> = self.field.split('.').map(str::to_owned).collect();
        let schema = schemars::schema_for!(Rule);
        let is_of_rule = path.first().is_some_and(|first| !schema.as_value()["properties"][first].is_null());
        if !is_of_rule {
            let strategy = rule["strategy"].as_object().and_then(|strategy| strategy.keys().next()).cloned();
            path.splice(0..0, std::iter::once("strategy".to_owned()).chain(strategy));
        }
        let Some(name) = path.pop() else { return Ok(()) };
        let mut place = rule;
        for part in &path {
            let object =
                place.as_object_mut().ok_or_else(|| format!("{}: {part} is not in an object", self.field))?;
            place = object.entry(part.clone()).or_insert_with(|| Value::Object(Map::new()));
        }
        let object =
            place.as_object_mut().ok_or_else(|| format!("{}: there is no such field", self.field))?;
        if self.value.is_null() {
            object.remove(&name);
        } else {
            object.insert(name, self.value.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(assignments: &[&str]) -> Result<Value, String> {
        let rule = json!({"id": "a", "scope": "user", "priority": 3, "strategy": {"fixed_window": {"limit": 1, "window": "1m"}}});
        let assignments: Result<Vec<Assignment>, String> =
            assignments.iter().map(|text| text.parse()).collect();
        changed(&normalised(rule).unwrap(), &assignments?)
    }

    #[test]
    fn numbers_and_fields_are_set() {
        let rule =
            set(&["limit=20", "window=90s", "action=log_only", "endpoints=[\"/search\"]", "priority="])
                .unwrap();
        assert_eq!(rule["strategy"], json!({"fixed_window": {"limit": 20, "window": "1m30s"}}));
        assert_eq!((&rule["action"], &rule["endpoints"]), (&json!("log_only"), &json!(["/search"])));
        assert_ne!(rule["priority"], json!(3));
        assert_eq!(set(&["strategy.fixed_window.limit=20"]), set(&["limit=20"]));
        assert_eq!(set(&["unit=requests", "postpaid=false", "when="]), set(&[]));
        let other = set(&["strategy={\"token_bucket\": {\"limit\": 2, \"window\": \"1s\"}}"]).unwrap();
        assert_eq!(other["strategy"], json!({"token_bucket": {"limit": 2, "window": "1s"}}));
    }

    #[test]
    fn mistakes_are_named() {
        for (assignment, part) in [
            ("limt=20", "limt"),
            ("limit=many", "many"),
            ("action=drop", "drop"),
            ("id=b", "counters are named after it"),
            ("limit", "limit=20"),
            ("=20", "limit=20"),
            ("priority.of.it=1", "priority.of.it"),
            ("strategy=", "the rule would be invalid: missing field `strategy`"),
            ("strategy.fixed_window=", "the rule would be invalid"),
        ] {
            let error = set(&[assignment]).unwrap_err();
            assert!(error.contains(part), "{assignment}: {error}");
        }
    }
}
