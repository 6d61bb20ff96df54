//! `/v1/overrides/{key}`: the override of a single key, in place of its rule's limit.

use std::collections::BTreeMap;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trypema::rules::{KeyValues, KeyVerdict, Numbers, Override, Rule, RuleSet, Rules};

use super::item::ItemResponse;
use super::precondition::Precondition;
use crate::front::http::openapi::changes::edited;
use crate::front::http::openapi::{Schemas, in_query, json_body, responses};
use crate::front::http::problem::ApiError;
use crate::front::http::query::pairs;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::rules::change::ItemName;
use crate::rules::database::{EditScope, InvalidStoredRules, ProposedRules, StoredRules};
use serde_json::{Value, json};

/// The override of a key: other numbers for its rule's strategy, or a verdict.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::front::http) struct OverrideChange {
    /// Other numbers for the rule's strategy.
    #[serde(default)]
    strategy: Option<Numbers>,
    /// A verdict in place of numbers: `block` denies every request of the key, `allow` none.
    #[serde(default)]
    verdict: Option<KeyVerdict>,
}

/// The stored overrides.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct OverridesResponse<'a> {
    overrides: Vec<&'a Override>,
}

/// The parameter of the path.
const KEY: usize = 0;

impl Api {
    pub(in super::super) async fn show_overrides(&self, exchange: Exchange<'_>) -> RouteResult {
        let mut rule = None;
        for pair in pairs(exchange.query().unwrap_or_default()) {
            match pair? {
                (name, value) if name == "rule" => rule = Some(value.into_owned()),
                (name, _) => return Err(ApiError::bad_request(format!("unknown parameter {name:?}"))),
            }
        }
        let response = self.respond_from_stored(exchange.work, move |stored| {
            let is_wanted =
                |stored_override: &&Override| rule.as_ref().is_none_or(|rule| stored_override.rule == *rule);
            let overrides = stored.rules.overrides.iter().filter(is_wanted).collect();
            Ok(json_response(StatusCode::OK, &OverridesResponse { overrides }))
        });
        response.await
    }

    pub(in super::super) async fn show_override(&self, exchange: Exchange<'_>) -> RouteResult {
        let key = exchange.decoded(KEY, "the key is")?;
        let response = self.respond_from_stored(exchange.work, move |stored| {
            let target = OverrideTarget::of(stored, &key)?;
            let item = target.find(stored).ok_or_else(no_override)?;
            let revision = stored.revisions.get(&ItemName::of_override(item)).copied();
            Ok(ItemResponse { revision, item }.into_response())
        });
        response.await
    }

    pub(in super::super) async fn set_override(&self, exchange: Exchange<'_>) -> RouteResult {
        self.rule_store()?;
        let (who, work, key) = (exchange.caller.clone(), exchange.work, exchange.decoded(KEY, "the key is")?);
        let precondition = Precondition::read(exchange.headers())?;
        let OverrideChange { strategy, verdict } =
            self.read_change(exchange.body(self.max_body).await?).await?;
        let changed = self.edit(who.name(), work, move |stored| {
            let target = OverrideTarget::of(stored, &key)?;
            let mut proposed = target.without(stored, precondition)?;
            let KeyValues { rule, values, .. } = target.key;
            proposed.rules.overrides.push(Override { rule, key: values, strategy, verdict });
            Ok(proposed)
        });
        self.edit_response(StatusCode::OK, changed.await?).await
    }

    pub(in super::super) async fn remove_override(&self, exchange: Exchange<'_>) -> RouteResult {
        self.rule_store()?;
        let key = exchange.decoded(KEY, "the key is")?;
        let precondition = Precondition::read(exchange.headers())?;
        let changed = self.edit(exchange.caller.name(), exchange.work, move |stored| {
            let target = OverrideTarget::of(stored, &key)?;
            target.find(stored).ok_or_else(no_override)?;
            target.without(stored, precondition)
        });
        self.edit_response(StatusCode::OK, changed.await?).await
    }
}

/// The key of an override.
struct OverrideTarget {
    key: KeyValues,
    /// The canonical name of the key's counter.
    name: String,
    /// A rule set of this rule alone, which computes the names of counters.
    rule: RuleSet,
}

impl OverrideTarget {
    /// Resolves a key by the stored rules, because this server may not have them in force yet.
    fn of(stored: &StoredRules, name: &str) -> Result<Self, ApiError> {
        let id = name.split('|').next().unwrap_or_default();
        let rule = stored.rule(id).ok_or_else(no_key)??;
        let rule = RuleSet::compile(&alone(rule, stored)).map_err(InvalidStoredRules::from)?;
        let key = rule.values_of(name).ok_or_else(no_key)?;
        let name = rule.key_of(&key.rule, &key.values).ok_or_else(no_key)?;
        Ok(Self { key, name, rule })
    }

    fn find<'s>(&self, stored: &'s StoredRules) -> Option<&'s Override> {
        stored.rules.overrides.iter().find(|stored_override| self.is_of(stored_override))
    }

    /// Returns the stored rules without the override of this key.
    fn without(
        &self,
        stored: &StoredRules,
        precondition: Option<Precondition>,
    ) -> Result<ProposedRules, ApiError> {
        let revision = self
            .find(stored)
            .and_then(|stored_override| stored.revisions.get(&ItemName::of_override(stored_override)))
            .copied();
        if let Some(precondition) = precondition {
            precondition.check("the override", revision.unwrap_or(0))?;
        }
        let mut rules = stored.rules.clone();
        rules.overrides.retain(|stored_override| !self.is_of(stored_override));
        Ok(ProposedRules { rules, scope: EditScope::Rule(self.key.rule.clone()), revision })
    }

    /// Whether an override is for this key, in whichever form its address or path is written.
    fn is_of(&self, stored_override: &Override) -> bool {
        stored_override.rule == self.key.rule
            && self.rule.key_of(&stored_override.rule, &stored_override.key).as_deref() == Some(&*self.name)
    }
}

/// Returns a rule set of this rule alone, with everything of the stored rules that the rule refers to. Names every
/// field, so that a new one is not forgotten.
fn alone(rule: &Rule, stored: &StoredRules) -> Rules {
    Rules {
        units: stored.rules.units.clone(),
        rules: vec![Rule { candidate_for: None, share: None, ..rule.clone() }],
        overrides: Vec::new(),
        allow: BTreeMap::new(),
        block: BTreeMap::new(),
    }
}

fn no_key() -> ApiError {
    let detail = "unknown key, a digest of values that are too long, or a path with dot segments or encoded slashes; use a key as responses contain it, for example per-user|user=ann";
    ApiError::new(StatusCode::NOT_FOUND, detail)
}

fn no_override() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "this key has no override")
}

pub(in crate::front::http::routes) fn describe_overrides(schemas: &mut Schemas) -> Value {
    let overrides = schemas.of_response::<OverridesResponse<'_>>();
    json!({
        "parameters": [in_query("rule", "Only overrides of this rule.", &json!({"type": "string"}))],
        "responses": responses("The overrides.", &overrides, &["400", "401", "403", "404", "503"]),
    })
}

pub(in crate::front::http::routes) fn describe_show_override(schemas: &mut Schemas) -> Value {
    let item = schemas.of_response::<ItemResponse<'_, Override>>();
    json!({"responses": responses("The override.", &item, &["400", "401", "403", "404", "503"])})
}

pub(in crate::front::http::routes) fn describe_set_override(schemas: &mut Schemas) -> Value {
    let body = json_body(&schemas.of_request::<OverrideChange>());
    json!({"requestBody": body, "responses": edited(schemas, &["413"])})
}

pub(in crate::front::http::routes) fn describe_remove_override(schemas: &mut Schemas) -> Value {
    json!({"responses": edited(schemas, &[])})
}
