//! `/v1/rules/{id}`: one rule.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use trypema::rules::Rule;

use super::{ItemResponse, Precondition};
use crate::front::http::problem::ApiError;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::rules::change::ItemName;
use crate::rules::database::{EditScope, ProposedRules, StoredRules};

/// Enables or disables a rule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EnabledChange {
    /// Whether the rule is enabled.
    enabled: bool,
}

/// The parameter of the path.
pub(super) const ID: usize = 0;

#[rustfmt::skip]
routes! {
    "POST" "/v1/rules" ADMINISTRATION Change "rules" create_rule boxed,
        "Store a new rule", r#"{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}"#,
        |about| about.reads::<Rule>().edits("201");
    "GET" "/v1/rules/{id}" ADMINISTRATION Read "rules" show_rule boxed,
        "Show a rule", "", |about| about.answers::<ItemResponse<'_, Rule>>("The rule.").fails(&["404", "422", "503"]);
    "PUT" "/v1/rules/{id}" ADMINISTRATION Change "rules" change_rule boxed,
        "Change a rule", r#"{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}"#,
        |about| about.changes_a_revision().reads::<Rule>().edits("200");
    "PATCH" "/v1/rules/{id}" ADMINISTRATION Change "rules" switch_rule boxed,
        "Enable or disable a rule", r#"{"enabled": false}"#,
        |about| about.changes_a_revision().reads::<EnabledChange>().edits("200");
    "DELETE" "/v1/rules/{id}" ADMINISTRATION Change "rules" delete_rule boxed,
        "Delete a rule, and its overrides", "", |about| about.changes_a_revision().edits("200");
}

impl Api {
    async fn show_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let id = exchange.parameter(ID).to_owned();
        if self.app().rule_store().is_none() {
            let rules = self.app().rules();
            let item = rules.rule(&id).ok_or_else(|| no_rule(&id))?;
            return Ok(ItemResponse { revision: None, item }.into_response());
        }
        let write = move |stored: &StoredRules| {
            let item = stored.rule(&id).ok_or_else(|| no_rule(&id))??;
            let revision = stored.revisions.get(&ItemName::of_rule(&id)).copied();
            Ok(ItemResponse { revision, item }.into_response())
        };
        self.respond_from_stored(&exchange.call, write).await
    }

    async fn create_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let (rule, call): (Rule, _) = self.read_change(exchange).await?;
        let make = move |stored: &StoredRules| {
            if stored.rule(&rule.id).is_some() {
                return Err(ApiError::new(
                    StatusCode::CONFLICT,
                    format!("rule {:?} already exists", rule.id),
                ));
            }
            let (mut rules, scope) = (stored.rules.clone(), EditScope::Rule(rule.id.clone()));
            rules.rules.push(rule);
            Ok(ProposedRules { rules, scope, revision: None })
        };
        self.edit(&call, StatusCode::CREATED, make).await
    }

    async fn change_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let (id, precondition) =
            (exchange.parameter(ID).to_owned(), Precondition::required(exchange.headers())?);
        let (rule, call): (Rule, _) = self.read_change(exchange).await?;
        if rule.id != id {
            return Err(ApiError::bad_request(format!(
                "the id of the body is {:?}, that of the path {id:?}",
                rule.id
            )));
        }
        let make = move |stored: &StoredRules| {
            let mut proposed = rules_to_edit(stored, &id, precondition)?;
            proposed.rules.rules.retain(|other| other.id != id);
            proposed.rules.rules.push(rule);
            Ok(proposed)
        };
        self.edit(&call, StatusCode::OK, make).await
    }

    async fn switch_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let (id, precondition) =
            (exchange.parameter(ID).to_owned(), Precondition::required(exchange.headers())?);
        let (EnabledChange { enabled }, call) = self.read_change(exchange).await?;
        let make = move |stored: &StoredRules| {
            stored.rule(&id).transpose()?;
            let mut proposed = rules_to_edit(stored, &id, precondition)?;
            let rules = proposed.rules.rules.iter_mut().filter(|rule| rule.id == id);
            rules.for_each(|rule| rule.enabled = enabled);
            Ok(proposed)
        };
        self.edit(&call, StatusCode::OK, make).await
    }

    async fn delete_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let (id, precondition) =
            (exchange.parameter(ID).to_owned(), Precondition::required(exchange.headers())?);
        let make = move |stored: &StoredRules| {
            let mut proposed = rules_to_edit(stored, &id, precondition)?;
            proposed.rules.rules.retain(|rule| rule.id != id);
            proposed.rules.overrides.retain(|stored_override| stored_override.rule != id);
            Ok(proposed)
        };
        self.edit(&exchange.call, StatusCode::OK, make).await
    }
}

/// Returns the stored rules for editing, if the rule still has the expected revision.
fn rules_to_edit(
    stored: &StoredRules,
    id: &str,
    precondition: Precondition,
) -> Result<ProposedRules, ApiError> {
    if stored.rule(id).is_none() {
        return Err(no_rule(id));
    }
    // A row that cannot be parsed has no revision that a client could know, so there is nothing to compare.
    let revision = stored.revisions.get(&ItemName::of_rule(id)).copied();
    if let Some(revision) = revision {
        precondition.check(&format!("rule {id:?}"), revision)?;
    }
    Ok(ProposedRules { rules: stored.rules.clone(), scope: EditScope::Rule(id.to_owned()), revision })
}

pub(super) fn no_rule(id: &str) -> ApiError {
    ApiError::not_found(format!("there is no rule {id:?}"))
}
