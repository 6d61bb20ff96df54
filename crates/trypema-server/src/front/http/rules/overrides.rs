//! `/v1/overrides/{key}`: what a single key gets in place of its rule's limit.

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trypema::AddressKey;
use trypema::rules::{KeyValues, KeyVerdict, Numbers, Override, Rule, RuleSet, Rules};

use super::edited;
use super::item::ItemAnswer;
use super::precondition::Precondition;
use crate::front::http::answer::json;
use crate::front::http::problem::Refusal;
use crate::front::http::query::pairs;
use crate::front::http::question::read;
use crate::front::http::text::decoded_path;
use crate::front::http::{Asked, Front, body};
use crate::net::Place;
use crate::rules::change::Name;
use crate::rules::database::{Reach, Stored, Unusable, Wanted};

/// What a key is to get: numbers for its rule's strategy, or a verdict.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::front::http) struct OverrideChange {
    /// Other numbers for the rule's strategy.
    #[serde(default)]
    strategy: Option<Numbers>,
    /// Or a verdict: `block` denies it always, `allow` never.
    #[serde(default)]
    verdict: Option<KeyVerdict>,
}

/// Overrides that are stored.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct OverridesAnswer<'a> {
    overrides: Vec<&'a Override>,
}

impl Front {
    pub(super) async fn show_overrides(&self, request: &Request<Incoming>, place: &Place) -> Asked {
        let mut rule = None;
        for pair in pairs(request.uri().query().unwrap_or_default()) {
            match pair? {
                (name, value) if name == "rule" => rule = Some(value),
                (name, _) => return Err(Refusal::bad_request(format!("{name:?} is not understood here"))),
            }
        }
        let rule = rule.map(|rule| rule.into_owned());
        let answer = self.answer_from_stored(place, move |stored| {
            let is_wanted = |special: &&Override| rule.as_ref().is_none_or(|rule| special.rule == *rule);
            let overrides = stored.rules.overrides.iter().filter(is_wanted).collect();
            Ok(json(StatusCode::OK, &OverridesAnswer { overrides }))
        });
        answer.await
    }

    pub(super) async fn override_of(&self, name: &str, request: Request<Incoming>, place: &Place) -> Asked {
        self.book()?;
        let name = decoded_path(name);
        let name =
            name.ok_or_else(|| Refusal::bad_request("the key is not percent-encoded UTF-8"))?.into_owned();
        match *request.method() {
            Method::GET => {
                let answer = self.answer_from_stored(place, move |stored| {
                    let key = key_of(stored, &name)?;
                    let item = find(stored, &key).ok_or_else(no_override)?;
                    let revision = stored.revisions.get(&Name::of(item)).copied();
                    Ok(ItemAnswer { revision, item }.into_answer())
                });
                answer.await
            }
            Method::PUT => self.set_override(name, request, place).await,
            Method::DELETE => self.remove_override(name, &request, place).await,
            _ => Err(Refusal::wrong_method("GET, PUT, DELETE")),
        }
    }

    async fn set_override(&self, name: String, request: Request<Incoming>, place: &Place) -> Asked {
        let who = self.admit_editor(request.headers())?;
        let precondition = Precondition::read(request.headers())?;
        let OverrideChange { strategy, verdict } =
            read(&body::read(request.into_body(), self.max_body, place).await?)?;
        let changed = self.edit(&who, place, move |stored| {
            let key = key_of(stored, &name)?;
            let mut wanted = without(stored, &key, precondition)?;
            let KeyValues { rule, values, .. } = key;
            wanted.rules.overrides.push(Override { rule, key: values, strategy, verdict });
            Ok(wanted)
        });
        edited(StatusCode::OK, changed.await?).await
    }

    async fn remove_override(&self, name: String, request: &Request<Incoming>, place: &Place) -> Asked {
        let who = self.admit_editor(request.headers())?;
        let precondition = Precondition::read(request.headers())?;
        let changed = self.edit(&who, place, move |stored| {
            let key = key_of(stored, &name)?;
            find(stored, &key).ok_or_else(no_override)?;
            without(stored, &key, precondition)
        });
        edited(StatusCode::OK, changed.await?).await
    }
}

/// What a key names, by the rules that are stored: this server may not have them in force yet.
fn key_of(stored: &Stored, name: &str) -> Result<KeyValues, Refusal> {
    let id = name.split('|').next().unwrap_or_default();
    let rule = stored.rule(id).ok_or_else(no_key)??;
    let alone = Rule { candidate_for: None, share: None, ..rule.clone() };
    let alone = RuleSet::compile(&Rules { rules: vec![alone], ..Rules::default() });
    alone.map_err(Unusable::from)?.values_of(name).ok_or_else(no_key)
}

/// What is stored, without the override of a key.
fn without(stored: &Stored, key: &KeyValues, precondition: Option<Precondition>) -> Result<Wanted, Refusal> {
    let revision = find(stored, key).and_then(|special| stored.revisions.get(&Name::of(special))).copied();
    if let Some(precondition) = precondition {
        precondition.check("the override", revision.unwrap_or(0))?;
    }
    let mut rules = stored.rules.clone();
    rules.overrides.retain(|special| !is_for(special, key));
    Ok(Wanted { rules, reach: Reach::Rule(key.rule.clone()), revision })
}

fn find<'s>(stored: &'s Stored, key: &KeyValues) -> Option<&'s Override> {
    stored.rules.overrides.iter().find(|special| is_for(special, key))
}

/// Whether an override is for a key, whichever way its address is written.
fn is_for(special: &Override, key: &KeyValues) -> bool {
    let folded =
        |address: &str| address.parse().ok().map(|address| AddressKey::of(address).as_str().to_owned());
    let is_same = |name: &str, one: &str, other: &str| {
        one == other
            || (name == "ip"
                && (folded(one).as_deref() == Some(other) || folded(other).as_deref() == Some(one)))
    };
    special.rule == key.rule
        && special.key.len() == key.values.len()
        && special
            .key
            .iter()
            .all(|(name, value)| key.values.get(name).is_some_and(|other| is_same(name, value, other)))
}

fn no_key() -> Refusal {
    let detail = "no rule has such a key, or its values are too long to be told by it: answers tell keys as in per-user|user=ann";
    Refusal::new(StatusCode::NOT_FOUND, detail)
}

fn no_override() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "this key has no override")
}
