//! Validates stored rules for somebody who changes them with SQL: before a COMMIT, or after it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sqlx::Row;
use trypema::rules::{Document, RuleProblem};

use super::row::{self, table_of};
use super::stored::{self, BadRow, StoredRules, StoredTables};
use super::{Database, DatabaseError, Purpose, with_timeout};

/// Valid stored rules.
#[derive(Debug)]
pub(crate) struct CheckedRules {
    /// The number of rules.
    pub(crate) rules: usize,
    pub(crate) revision: u64,
}

/// Compiles what the function `trypema_rules` returned. Servers would refuse the same rules.
///
/// # Errors
///
/// The problems, each in one line.
pub(crate) fn check(text: &str) -> Result<CheckedRules, String> {
    let tables: StoredTables<'_> = serde_json::from_str(text).map_err(|error| {
        format!("need the result of `SELECT trypema_rules()`, as text and nothing else: {error}")
    })?;
    let stored = StoredRules::of(&tables);
    match stored.compile() {
        Ok(rules) => Ok(CheckedRules { rules: rules.len(), revision: stored.version.revision }),
        Err(invalid) => match problems(&stored, &tables).join("\n") {
            unexplained if unexplained.is_empty() => Err(invalid.to_string()),
            problems => Err(problems),
        },
    }
}

/// Returns every problem of the rows, with its row and its column.
fn problems(stored: &StoredRules, tables: &StoredTables<'_>) -> Vec<String> {
    let mut lists = BTreeMap::<_, Vec<Map<String, Value>>>::new();
    let mut bad_rows = Vec::new();
    for (kind, _, body) in tables.rows() {
        // Unlike an item, the fields of a row may have wrong values.
        let read = match table_of(kind) {
            Some(table) => table.fields(body).map(|fields| lists.entry(table.list).or_default().push(fields)),
            None => row::item(kind, body).map(drop),
        };
        bad_rows.extend(read.err().map(|reason| BadRow::new(kind, body, reason).to_string()));
    }
    // Without these rows, others would seem wrong.
    if !bad_rows.is_empty() {
        return bad_rows;
    }
    let mut whole = json!(stored.rules);
    for (list, fields) in lists {
        whole[list] = json!(fields);
    }
    let text = whole.to_string();
    // Unlike the tables' own types, a document continues after a problem.
    let document = serde_json::from_str::<Document<'_>>(&text).ok();
    let Some(invalid) = document.and_then(|document| document.rule_set().err()) else { return Vec::new() };
    let more = (invalid.more() > 0).then(|| format!("and {} more", invalid.more()));
    invalid.problems().iter().map(|problem| described(problem, &whole)).chain(more).collect()
}

/// Formats a problem with its row.
fn described(problem: &RuleProblem, whole: &Value) -> String {
    let described = row::described(problem);
    let (id, field) = (problem.rule().unwrap_or_default(), problem.field().to_string());
    match field.split_once('[') {
        Some(("rules", _)) => format!("rule {id:?}: {described}"),
        Some((list @ "overrides", place)) => {
            let place: Option<usize> = place.split_once(']').and_then(|(place, _)| place.parse().ok());
            let key = place.map(|place| &whole[list][place]["key"]).unwrap_or(&Value::Null);
            format!("override of rule {id:?} for {key}: {described}")
        }
        _ => described,
    }
}

impl Database {
    /// Returns the committed rules, as the function `trypema_rules` does.
    pub(crate) async fn stored_text(&self) -> Result<String, DatabaseError> {
        let mut session = self.session(Purpose::Reading).await?;
        let everything = with_timeout(stored::everything(&mut session.connection)).await?;
        Ok(everything.try_get(0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(rules: &Value, overrides: &Value) -> String {
        let rows = |rows: &Value| {
            rows.as_array().map(|rows| rows.iter().map(|row| json!([1, row])).collect::<Value>())
        };
        let version = json!([7, "set", "change"]);
        let tables = json!({"unit": null, "rule": rows(rules), "override": rows(overrides), "list": null});
        let text = json!({"schema": 1, "version": version, "tables": tables});
        match check(&text.to_string()) {
            Ok(checked) => format!("{} {}", checked.rules, checked.revision),
            Err(error) => error,
        }
    }

    fn rule(id: &str, more: &Value) -> Value {
        let mut row = json!({"id": id, "scope": "user", "algorithm": "fixed_window", "limit_count": 5, "window_seconds": 60});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    }

    #[test]
    fn every_problem_is_told_with_its_row_and_column() {
        let rules = json!([
            rule("a", &json!({"limit_count": 0, "extra": {"when": {"model": ["gpt-5", ""]}}})),
            rule(
                "b",
                &json!({"extra": {"unit": "tokens", "share": 2, "if_mising": "deny", "postpaid": "yes"}})
            ),
            rule("c", &json!({"algorithm": "leaky", "plan_tiers": ["free", "\n"]})),
            rule("d", &json!({"algorithm": "abuse", "extra": {"temp": {"window": "1m", "threshold": 3}}})),
            rule("e", &json!({})),
        ]);
        let overrides = json!([{"rule_id": "e", "key": {"usr": "ann"}, "verdict": "block"}]);
        let told = checked(&rules, &overrides);
        for line in [
            "rule \"a\": limit_count: invalid limit 0",
            "rule \"a\": extra.when.model[1]: ",
            "rule \"b\": extra.if_mising: ",
            "rule \"b\": extra.postpaid: ",
            "rule \"b\": extra.share: ",
            "rule \"c\": algorithm: ",
            "rule \"c\": plan_tiers[1]: ",
            "rule \"d\": limit_count: ",
            "rule \"d\": extra.temp.block: missing",
            "override of rule \"e\" for {\"usr\":\"ann\"}: key",
        ] {
            assert!(told.lines().any(|told| told.starts_with(line)), "{line}\n{told}");
        }
    }

    #[test]
    fn valid_rules_have_their_number_and_revision() {
        assert_eq!(
            checked(&json!([rule("a", &json!({})), rule("b", &json!({"extra": {}}))]), &json!([])),
            "2 7"
        );
        assert_eq!(checked(&Value::Null, &Value::Null), "0 7");
    }

    #[test]
    fn a_table_drawn_by_psql_is_no_rules() {
        let error = check(" trypema_rules \n-----\n").unwrap_err();
        assert!(error.starts_with("need the result of `SELECT trypema_rules()`"), "{error}");
    }
}
