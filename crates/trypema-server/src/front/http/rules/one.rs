//! `/v1/rules/{id}`: one rule.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Deserialize;
use trypema::rules::Rule;

use super::edited;
use super::item::ItemAnswer;
use super::precondition::Precondition;
use crate::front::http::problem::Refusal;
use crate::front::http::question::read;
use crate::front::http::{AdminApi, Asked, body};
use crate::net::Place;
use crate::rules::change::Name;
use crate::rules::database::{Reach, Stored, Wanted};

/// Enables or disables a rule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::front::http) struct EnabledChange {
    /// Whether the rule is enabled.
    enabled: bool,
}

impl AdminApi {
    pub(super) async fn show_rule(&self, id: &str, place: &Place) -> Asked {
        if self.app.book().is_none() {
            let rules = self.app.rules();
            let item = rules.rule(id).ok_or_else(|| no_rule(id))?;
            return Ok(ItemAnswer { revision: None, item }.into_answer());
        }
        let id = id.to_owned();
        let answer = self.answer_from_stored(place, move |stored| {
            let item = stored.rule(&id).ok_or_else(|| no_rule(&id))??;
            let revision = stored.revisions.get(&Name::Rule(id)).copied();
            Ok(ItemAnswer { revision, item }.into_answer())
        });
        answer.await
    }

    pub(super) async fn create_rule(&self, request: Request<Incoming>, place: &Place) -> Asked {
        let who = self.access.admit_editor(request.headers(), place)?;
        let rule: Rule = read(&body::read(request.into_body(), self.max_body, place).await?)?;
        let changed = self.edit(&who, place, move |stored| {
            if stored.rule(&rule.id).is_some() {
                return Err(Refusal::new(StatusCode::CONFLICT, format!("rule {:?} already exists", rule.id)));
            }
            let (mut rules, reach) = (stored.rules.clone(), Reach::Rule(rule.id.clone()));
            rules.rules.push(rule);
            Ok(Wanted { rules, reach, revision: None })
        });
        edited(StatusCode::CREATED, changed.await?).await
    }

    pub(super) async fn change_rule(&self, id: &str, request: Request<Incoming>, place: &Place) -> Asked {
        let who = self.access.admit_editor(request.headers(), place)?;
        let precondition = Precondition::required(request.headers())?;
        let rule: Rule = read(&body::read(request.into_body(), self.max_body, place).await?)?;
        if rule.id != id {
            return Err(Refusal::bad_request(format!(
                "the id of the body is {:?}, that of the path {id:?}",
                rule.id
            )));
        }
        let id = id.to_owned();
        let changed = self.edit(&who, place, move |stored| {
            let mut wanted = wanted(stored, &id, precondition)?;
            wanted.rules.rules.retain(|other| other.id != id);
            wanted.rules.rules.push(rule);
            Ok(wanted)
        });
        edited(StatusCode::OK, changed.await?).await
    }

    pub(super) async fn switch_rule(&self, id: &str, request: Request<Incoming>, place: &Place) -> Asked {
        let who = self.access.admit_editor(request.headers(), place)?;
        let precondition = Precondition::required(request.headers())?;
        let EnabledChange { enabled } = read(&body::read(request.into_body(), self.max_body, place).await?)?;
        let id = id.to_owned();
        let changed = self.edit(&who, place, move |stored| {
            stored.rule(&id).transpose()?;
            let mut wanted = wanted(stored, &id, precondition)?;
            wanted
                .rules
                .rules
                .iter_mut()
                .filter(|rule| rule.id == id)
                .for_each(|rule| rule.enabled = enabled);
            Ok(wanted)
        });
        edited(StatusCode::OK, changed.await?).await
    }

    pub(super) async fn delete_rule(&self, id: &str, request: &Request<Incoming>, place: &Place) -> Asked {
        let who = self.access.admit_editor(request.headers(), place)?;
        let precondition = Precondition::required(request.headers())?;
        let id = id.to_owned();
        let changed = self.edit(&who, place, move |stored| {
            let mut wanted = wanted(stored, &id, precondition)?;
            wanted.rules.rules.retain(|rule| rule.id != id);
            wanted.rules.overrides.retain(|special| special.rule != id);
            Ok(wanted)
        });
        edited(StatusCode::OK, changed.await?).await
    }
}

/// Returns the stored rules for editing, if the rule still has the expected revision.
fn wanted(stored: &Stored, id: &str, precondition: Precondition) -> Result<Wanted, Refusal> {
    if stored.rule(id).is_none() {
        return Err(no_rule(id));
    }
    // A row that cannot be parsed has no revision that a client could know, so there is nothing to compare.
    let revision = stored.revisions.get(&Name::Rule(id.to_owned())).copied();
    if let Some(revision) = revision {
        precondition.check(&format!("rule {id:?}"), revision)?;
    }
    Ok(Wanted { rules: stored.rules.clone(), reach: Reach::Rule(id.to_owned()), revision })
}

pub(super) fn no_rule(id: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("there is no rule {id:?}"))
}
