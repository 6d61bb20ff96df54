//! `/v1/overrides/{key}`: the override of a single key, in place of its rule's limit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trypema::rules::{KeyValues, KeyVerdict, Numbers, Override, Rule, RuleSet, Rules};

use super::{ItemResponse, Precondition};
use crate::front::http::problem::ApiError;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::rules::change::ItemName;
use crate::rules::database::{EditScope, InvalidStoredRules, ProposedRules, StoredRules};

/// The override of a key: other numbers for its rule's strategy, or a verdict.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OverrideChange {
    /// Other numbers for the rule's strategy.
    #[serde(default)]
    strategy: Option<Numbers>,
    /// A verdict in place of numbers: `block` denies every request of the key, `allow` none.
    #[serde(default)]
    verdict: Option<KeyVerdict>,
}

/// The stored overrides.
#[derive(Debug, Serialize, JsonSchema)]
struct OverridesResponse<'a> {
    overrides: Vec<&'a Override>,
}

/// The parameter of the path.
const KEY: usize = 0;

#[rustfmt::skip]
routes! {
    "GET" "/v1/overrides" ADMINISTRATION Read "rules" show_overrides boxed,
        "List overrides of single keys (`?rule=`)", "",
        |about| about.takes("rule", "Only overrides of this rule.", json!({"type": "string"}))
            .answers::<OverridesResponse<'_>>("The overrides.").fails(&["404", "503"]);
    "GET" "/v1/overrides/{key..}" ADMINISTRATION Read "rules" show_override boxed,
        "Show the override of a key", "",
        |about| about.answers::<ItemResponse<'_, Override>>("The override.").fails(&["404", "503"]);
    "PUT" "/v1/overrides/{key..}" ADMINISTRATION Change "rules" set_override boxed,
        "Set the override of a key: another limit, an exemption or a block", r#"{"verdict": "block"}"#,
        |about| about.reads::<OverrideChange>().edits("200");
    "DELETE" "/v1/overrides/{key..}" ADMINISTRATION Change "rules" remove_override boxed,
        "Remove the override of a key", "", |about| about.edits("200");
}

impl Api {
    async fn show_overrides(&self, exchange: Exchange<'_>) -> RouteResult {
        let [rule] = exchange.query(["rule"])?.map(|rule| rule.map(Cow::into_owned));
        let write = move |stored: &StoredRules| {
            let is_wanted =
                |stored_override: &&Override| rule.as_ref().is_none_or(|rule| stored_override.rule == *rule);
            let overrides = stored.rules.overrides.iter().filter(is_wanted).collect();
            Ok(json_response(StatusCode::OK, &OverridesResponse { overrides }))
        };
        self.respond_from_stored(&exchange.call, write).await
    }

    async fn show_override(&self, exchange: Exchange<'_>) -> RouteResult {
        let key = exchange.decoded(KEY, "the key is")?;
        let write = move |stored: &StoredRules| {
            let target = OverrideTarget::of(stored, &key)?;
            let item = target.find(stored).ok_or_else(no_override)?;
            let revision = stored.revisions.get(&ItemName::of(item)).copied();
            Ok(ItemResponse { revision, item }.into_response())
        };
        self.respond_from_stored(&exchange.call, write).await
    }

    async fn set_override(&self, exchange: Exchange<'_>) -> RouteResult {
        self.rule_store()?;
        let key = exchange.decoded(KEY, "the key is")?;
        let precondition = Precondition::read(exchange.headers())?;
        let (OverrideChange { strategy, verdict }, call) = self.read_change(exchange).await?;
        let make = move |stored: &StoredRules| {
            let target = OverrideTarget::of(stored, &key)?;
            let mut proposed = target.without(stored, precondition)?;
            let KeyValues { rule, values, .. } = target.key;
            proposed.rules.overrides.push(Override { rule, key: values, strategy, verdict });
            Ok(proposed)
        };
        self.edit(&call, StatusCode::OK, make).await
    }

    async fn remove_override(&self, exchange: Exchange<'_>) -> RouteResult {
        self.rule_store()?;
        let key = exchange.decoded(KEY, "the key is")?;
        let precondition = Precondition::read(exchange.headers())?;
        let make = move |stored: &StoredRules| {
            let target = OverrideTarget::of(stored, &key)?;
            if let Some(bad) = stored.bad_override(&target.key.rule, |key| target.is_key(key)) {
                // Such a row has no revision that a client could know.
                let (rules, scope) = (stored.rules.clone(), EditScope::BadRow(bad.clone()));
                return Ok(ProposedRules { rules, scope, revision: None });
            }
            target.find(stored).ok_or_else(no_override)?;
            target.without(stored, precondition)
        };
        self.edit(&exchange.call, StatusCode::OK, make).await
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
            .and_then(|stored_override| stored.revisions.get(&ItemName::of(stored_override)))
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
        stored_override.rule == self.key.rule && self.is_key(&stored_override.key)
    }

    fn is_key(&self, key: &BTreeMap<String, String>) -> bool {
        self.rule.key_of(&self.key.rule, key).as_deref() == Some(&*self.name)
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
    ApiError::not_found(detail)
}

fn no_override() -> ApiError {
    ApiError::not_found("this key has no override")
}
