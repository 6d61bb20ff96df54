//! `/v1/rules/{id}`: one rule.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use trypema::rules::Rule;

use super::item::ItemResponse;
use super::precondition::Precondition;
use crate::front::http::openapi::changes::{edited, if_match};
use crate::front::http::openapi::{Schemas, json_body, responses};
use crate::front::http::problem::ApiError;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::rules::change::ItemName;
use crate::rules::database::{EditScope, ProposedRules, StoredRules};
use serde_json::{Value, json};

/// Enables or disables a rule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::front::http) struct EnabledChange {
    /// Whether the rule is enabled.
    enabled: bool,
}

/// The parameter of the path.
pub(super) const ID: usize = 0;

impl Api {
    pub(in super::super) async fn show_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let id = exchange.parameter(ID).to_owned();
        if self.app().rule_store().is_none() {
            let rules = self.app().rules();
            let item = rules.rule(&id).ok_or_else(|| no_rule(&id))?;
            return Ok(ItemResponse { revision: None, item }.into_response());
        }
        let response = self.respond_from_stored(exchange.work, move |stored| {
            let item = stored.rule(&id).ok_or_else(|| no_rule(&id))??;
            let revision = stored.revisions.get(&ItemName::of_rule(&id)).copied();
            Ok(ItemResponse { revision, item }.into_response())
        });
        response.await
    }

    pub(in super::super) async fn create_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let (who, work) = (exchange.caller.clone(), exchange.work);
        let rule: Rule = self.read_change(exchange.body(self.max_body).await?).await?;
        let changed = self.edit(who.name(), work, move |stored| {
            if stored.rule(&rule.id).is_some() {
                return Err(ApiError::new(
                    StatusCode::CONFLICT,
                    format!("rule {:?} already exists", rule.id),
                ));
            }
            let (mut rules, scope) = (stored.rules.clone(), EditScope::Rule(rule.id.clone()));
            rules.rules.push(rule);
            Ok(ProposedRules { rules, scope, revision: None })
        });
        self.edit_response(StatusCode::CREATED, changed.await?).await
    }

    pub(in super::super) async fn change_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let (who, work, id) = (exchange.caller.clone(), exchange.work, exchange.parameter(ID).to_owned());
        let precondition = Precondition::required(exchange.headers())?;
        let rule: Rule = self.read_change(exchange.body(self.max_body).await?).await?;
        if rule.id != id {
            return Err(ApiError::bad_request(format!(
                "the id of the body is {:?}, that of the path {id:?}",
                rule.id
            )));
        }
        let changed = self.edit(who.name(), work, move |stored| {
            let mut proposed = rules_to_edit(stored, &id, precondition)?;
            proposed.rules.rules.retain(|other| other.id != id);
            proposed.rules.rules.push(rule);
            Ok(proposed)
        });
        self.edit_response(StatusCode::OK, changed.await?).await
    }

    pub(in super::super) async fn switch_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let (who, work, id) = (exchange.caller.clone(), exchange.work, exchange.parameter(ID).to_owned());
        let precondition = Precondition::required(exchange.headers())?;
        let EnabledChange { enabled } = self.read_change(exchange.body(self.max_body).await?).await?;
        let changed = self.edit(who.name(), work, move |stored| {
            stored.rule(&id).transpose()?;
            let mut proposed = rules_to_edit(stored, &id, precondition)?;
            let rules = proposed.rules.rules.iter_mut().filter(|rule| rule.id == id);
            rules.for_each(|rule| rule.enabled = enabled);
            Ok(proposed)
        });
        self.edit_response(StatusCode::OK, changed.await?).await
    }

    pub(in super::super) async fn delete_rule(&self, exchange: Exchange<'_>) -> RouteResult {
        let id = exchange.parameter(ID).to_owned();
        let precondition = Precondition::required(exchange.headers())?;
        let changed = self.edit(exchange.caller.name(), exchange.work, move |stored| {
            let mut proposed = rules_to_edit(stored, &id, precondition)?;
            proposed.rules.rules.retain(|rule| rule.id != id);
            proposed.rules.overrides.retain(|stored_override| stored_override.rule != id);
            Ok(proposed)
        });
        self.edit_response(StatusCode::OK, changed.await?).await
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
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no rule {id:?}"))
}

pub(in crate::front::http::routes) fn describe_create(schemas: &mut Schemas) -> Value {
    let mut responses = edited(schemas, &["413"]);
    if let Some(responses) = responses.as_object_mut()
        && let Some(done) = responses.remove("200")
    {
        responses.insert("201".to_owned(), done);
    }
    json!({"requestBody": json_body(&schemas.of_request::<Rule>()), "responses": responses})
}

pub(in crate::front::http::routes) fn describe_show(schemas: &mut Schemas) -> Value {
    let rule = schemas.of_response::<ItemResponse<'_, Rule>>();
    json!({"responses": responses("The rule.", &rule, &["401", "403", "404", "422", "503"])})
}

pub(in crate::front::http::routes) fn describe_change(schemas: &mut Schemas) -> Value {
    let body = json_body(&schemas.of_request::<Rule>());
    json!({"parameters": [if_match()], "requestBody": body, "responses": edited(schemas, &["413", "428"])})
}

pub(in crate::front::http::routes) fn describe_switch(schemas: &mut Schemas) -> Value {
    let body = json_body(&schemas.of_request::<EnabledChange>());
    json!({"parameters": [if_match()], "requestBody": body, "responses": edited(schemas, &["413", "428"])})
}

pub(in crate::front::http::routes) fn describe_delete(schemas: &mut Schemas) -> Value {
    json!({"parameters": [if_match()], "responses": edited(schemas, &["428"])})
}
