//! Validates stored rules for somebody who changes them with SQL: before a COMMIT, or after it.

use serde_json::{Value, json};
use sqlx::Row;
use thiserror::Error;
use trypema::rules::{Document, RuleProblem, Rules};

use super::row::{self, OVERRIDES, RULES};
use super::stored::{self, BadRow, StoredRules, Tables};
use super::{Database, DatabaseError, Purpose, with_timeout};
use crate::rules::change::ItemKind;

/// The reason why stored rules are not valid.
#[derive(Debug, Error)]
pub(crate) enum CheckError {
    /// The text is not from the database.
    #[error("need the result of `SELECT trypema_rules()`, as text and nothing else: {0}")]
    NotRules(#[from] serde_json::Error),
    /// The problems, each in one line.
    #[error("{}", .0.join("\n"))]
    Problems(Vec<String>),
}

/// Valid stored rules.
#[derive(Debug)]
pub(crate) struct CheckedRules {
    /// The number of rules.
    pub(crate) rules: usize,
    pub(crate) revision: u64,
}

/// Compiles what the function `trypema_rules` returned. Servers would refuse the same rules.
pub(crate) fn check(text: &str) -> Result<CheckedRules, CheckError> {
    let stored = StoredRules::parse(text)?;
    match stored.compile() {
        Ok(rules) => Ok(CheckedRules { rules: rules.len(), revision: stored.version.revision }),
        Err(invalid) => {
            let problems = problems(&serde_json::from_str(text)?);
            let unexplained = || vec![invalid.to_string()];
            Err(CheckError::Problems(if problems.is_empty() { unexplained() } else { problems }))
        }
    }
}

/// Returns every problem of the rows, with its row and its column.
fn problems(tables: &Tables<'_>) -> Vec<String> {
    let (mut rules, mut bad_rows) = (Rules::default(), Vec::new());
    let (mut of_rules, mut of_overrides) = (Vec::new(), Vec::new());
    for (kind, rows) in tables.by_kind() {
        for (_, body) in rows {
            let body = body.get();
            let read = match kind {
                ItemKind::Rule => row::rule_fields(body).map(|fields| of_rules.push(fields)),
                ItemKind::Override => row::override_fields(body).map(|fields| of_overrides.push(fields)),
                ItemKind::Unit | ItemKind::List => {
                    stored::item(kind, body).map(|item| item.add_to(&mut rules))
                }
            };
            bad_rows.extend(read.err().map(|reason| BadRow::new(kind, body, reason).to_string()));
        }
    }
    // Without these rows, others would seem wrong.
    if !bad_rows.is_empty() {
        return bad_rows;
    }
    let Rules { units, allow, block, .. } = rules;
    let whole =
        json!({"units": units, RULES: of_rules, OVERRIDES: of_overrides, "allow": allow, "block": block});
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
    let Some((list, place)) = field.split_once('[') else { return described };
    match list {
        RULES => format!("rule {id:?}: {described}"),
        OVERRIDES => {
            let place: Option<usize> = place.split_once(']').and_then(|(place, _)| place.parse().ok());
            let key = place.map(|place| &whole[OVERRIDES][place]["key"]).unwrap_or(&Value::Null);
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
        let text = json!({"version": version, "unit": null, "rule": rows(rules), "override": rows(overrides), "list": null});
        match check(&text.to_string()) {
            Ok(checked) => format!("{} {}", checked.rules, checked.revision),
            Err(error) => error.to_string(),
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
        let error = check(" trypema_rules \n-----\n").unwrap_err().to_string();
        assert!(error.starts_with("need the result of `SELECT trypema_rules()`"), "{error}");
    }
}
