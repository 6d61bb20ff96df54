//! Routes that show the rules in force and change the stored ones. All of them need a token; see
//! [`super::access`].

mod candidates;
mod item;
mod lists;
mod one;
mod overrides;
mod permits;
mod precondition;
mod whole;

use http::header::{ETAG, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trypema::rules::{Rule, Rules};

pub(super) use candidates::CandidatesResponse;
pub(super) use item::ItemResponse;
pub(super) use lists::ListsResponse;
pub(super) use one::EnabledChange;
pub(super) use overrides::{OverrideChange, OverridesResponse};
pub(super) use permits::RulesetPermits;
pub(super) use whole::{HistoryResponse, RevertRequest};

use super::accounting::{Accounting, with_accounting};
use super::body::Body;
use super::problem::ApiError;
use super::request::read_document;
use super::response::json;
use super::{AdminApi, HttpResponse, RouteResult, begin};
use crate::background_worker::Worker;
use crate::net::ConnectionSlot;
use crate::rules::change::StoredChange;
use crate::rules::database::{
    DatabaseError, EditError, EditResult, InvalidStoredRules, ProposedRules, StoredRules,
};
use crate::rules::store::RuleStore;
use crate::tokens::Actor;

/// The most changes of an edit that the log names.
const MAX_NAMED: usize = 10;

/// The rules in force on this server.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RulesResponse<'a> {
    /// The revision of the rules, if they are stored in a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    /// The units that rules count besides `requests`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    units: Vec<&'a str>,
    /// The rules by priority, including disabled ones.
    rules: Vec<&'a Rule>,
}

/// The result of a change.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EditResponse {
    /// The revision of the rule set now.
    revision: u64,
    /// The changes that were made, or that a dry run would make; empty if nothing differs.
    changes: Vec<StoredChange>,
}

/// Whether a path is below one of the routes of this module.
pub(super) fn is_below(path: &str) -> bool {
    ["/v1/rules/", "/v1/ruleset/", "/v1/overrides/", "/v1/lists/"].iter().any(|start| path.starts_with(start))
}

impl AdminApi {
    pub(super) async fn rules(&self, request: Request<Incoming>, slot: &ConnectionSlot) -> RouteResult {
        // Every route needs at least a reader's token. Routes that change something check for an admin
        // token themselves.
        self.access.admit_reader(request.headers(), slot)?;
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        let method = request.method().clone();
        match (&parts[..], method) {
            (["rules"], Method::GET) => self.rules_in_force().await,
            (["rules"], Method::POST) => self.create_rule(request, slot).await,
            (["rules"], _) => Err(ApiError::wrong_method("GET, POST")),
            (["rules", id], Method::GET) => self.show_rule(id, slot).await,
            (["rules", id], Method::PUT) => self.change_rule(id, request, slot).await,
            (["rules", id], Method::PATCH) => self.switch_rule(id, request, slot).await,
            (["rules", id], Method::DELETE) => self.delete_rule(id, &request, slot).await,
            (["rules", _], _) => Err(ApiError::wrong_method("GET, PUT, PATCH, DELETE")),
            (["rules", id, "promote"], Method::POST) => self.promote(id, &request, slot).await,
            (["rules", _, "promote"], _) => Err(ApiError::wrong_method("POST")),
            (["ruleset"], Method::GET) => self.export(&request, slot).await,
            (["ruleset"], Method::PUT) => self.apply(request, slot).await,
            (["ruleset"], _) => Err(ApiError::wrong_method("GET, PUT")),
            (["ruleset", "history"], Method::GET) => self.history(&request, slot).await,
            (["ruleset", "history"], _) => Err(ApiError::wrong_method("GET")),
            (["ruleset", "revert"], Method::POST) => self.revert(request, slot).await,
            (["ruleset", "revert"], _) => Err(ApiError::wrong_method("POST")),
            (["overrides"], Method::GET) => self.show_overrides(&request, slot).await,
            (["overrides"], _) => Err(ApiError::wrong_method("GET")),
            // A key may contain slashes that the client did not encode.
            (["overrides", ..], _) => self.override_of(&path["/v1/overrides/".len()..], request, slot).await,
            (["lists"], Method::GET) => self.show_lists(slot).await,
            (["lists"], _) => Err(ApiError::wrong_method("GET")),
            (["lists", list, attribute, ..], _) => {
                let start = "/v1/lists/".len() + list.len() + 1 + attribute.len() + 1;
                let value = path.get(start..).unwrap_or_default();
                self.edit_list_entry(lists::ListEntryPath { list, attribute, value }, &request, slot).await
            }
            (["candidates"], Method::GET) => self.candidates().await,
            (["candidates"], _) => Err(ApiError::wrong_method("GET")),
            _ => Err(ApiError::not_found()),
        }
    }

    async fn rules_in_force(&self) -> RouteResult {
        let rules = self.app.rules();
        let revision = self.app.rule_store().map(|rule_store| rule_store.in_force().version.revision);
        let response = move || {
            let (units, rules) = (rules.units().skip(1).collect(), rules.rules().collect());
            json(StatusCode::OK, &RulesResponse { revision, units, rules })
        };
        Ok(self.app.workers().run(Worker::Reads, response).await?)
    }

    /// Returns the database that stores the rules, or a 404 if they are in a file.
    fn rule_store(&self) -> Result<&RuleStore, ApiError> {
        let missing =
            "the rules are in a file and read-only here; set database_url to change them through the API";
        self.app
            .rule_store()
            .map(|rule_store| &**rule_store)
            .ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, missing))
    }

    /// Answers with the result of `make` on the stored rules. `make` runs on the readers' worker, because
    /// there may be thousands of rules.
    async fn respond_from_stored(
        &self,
        slot: &ConnectionSlot,
        make: impl FnOnce(&StoredRules) -> RouteResult + Send + 'static,
    ) -> RouteResult {
        let rule_store = self.rule_store()?;
        begin(slot)?;
        let stored = rule_store.database().read().await?;
        self.app.workers().run(Worker::Reads, move || make(&stored)).await?
    }

    /// Changes the stored rules to the result of `make`, and announces the change to all servers.
    async fn edit(
        &self,
        who: &Actor,
        slot: &ConnectionSlot,
        make: impl FnOnce(&StoredRules) -> Result<ProposedRules, ApiError> + Send + 'static,
    ) -> Result<EditResult, ApiError> {
        let rule_store = self.rule_store()?;
        begin(slot)?;
        let transaction = rule_store.database().edit(&who.name).await?;
        self.finish(who, transaction.finish(make).await?).await
    }

    async fn finish(&self, who: &Actor, edit: EditResult) -> Result<EditResult, ApiError> {
        let (revision, count) = (edit.revision, edit.changes.len());
        if count > 0 {
            let named: Vec<&str> = edit.changes.iter().take(MAX_NAMED).map(|change| &*change.name).collect();
            let more = if count > MAX_NAMED { " …" } else { "" };
            // Names come from editors, so they are fields, whose control characters are escaped.
            let (who, changes) = (&*who.name, named.join(", ") + more);
            tracing::info!(
                who,
                revision,
                count,
                changes,
                "rules: revision {revision} stored through the API"
            );
        }
        self.rule_store()?.announce(&edit).await;
        Ok(edit)
    }

    /// Answers a change of one item. The `ETag` is the revision that the next change has to name.
    async fn edit_response(&self, status: StatusCode, edit: EditResult) -> RouteResult {
        let revision = edit.item_revision;
        let response = self.json_on(Worker::Changes, status, EditResponse::from(edit)).await?;
        let response = with_accounting(response, Accounting::MustSend);
        Ok(match revision {
            Some(revision) => with_etag(response, revision),
            None => response,
        })
    }

    /// Parses a rule set on `worker`, because it may be long.
    async fn read_rules(&self, worker: Worker, body: Body) -> Result<Rules, ApiError> {
        let read = move || read_document(&body, |document| document.rule_set().err());
        self.app.workers().run(worker, read).await?
    }

    /// Parses a change on the worker for changes: an invalid body may be long.
    async fn read_change<T: DeserializeOwned + Send + 'static>(&self, body: Body) -> Result<T, ApiError> {
        self.app.workers().run(Worker::Changes, move || read_document(&body, |_| None)).await?
    }

    /// Writes a JSON response on `worker`, because it may be long.
    async fn json_on(
        &self,
        worker: Worker,
        status: StatusCode,
        value: impl Serialize + Send + 'static,
    ) -> RouteResult {
        Ok(self.app.workers().run(worker, move || json(status, &value)).await?)
    }
}

impl From<EditResult> for EditResponse {
    fn from(edit: EditResult) -> Self {
        Self { revision: edit.revision, changes: edit.changes }
    }
}

/// Adds the revision as `ETag`.
fn with_etag(mut response: HttpResponse, revision: u64) -> HttpResponse {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Hides the details: callers must not learn the database's address or its messages.
impl From<DatabaseError> for ApiError {
    fn from(error: DatabaseError) -> Self {
        tracing::warn!("rules: request to PostgreSQL failed ({error}); the client got 503");
        Self::unavailable(error.public_message())
    }
}

impl From<InvalidStoredRules> for ApiError {
    fn from(unusable: InvalidStoredRules) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, unusable.to_string())
    }
}

impl From<EditError> for ApiError {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Database(error) => error.into(),
            EditError::OutcomeUnknown(error) => {
                tracing::warn!(
                    "rules: PostgreSQL did not acknowledge COMMIT ({error}); the change may have been stored, the \
                     client got 503"
                );
                Self::unavailable(
                    "commit not acknowledged: the change may have been stored; check /v1/ruleset/history",
                )
            }
            EditError::InvalidStoredRules(_) | EditError::Constraint(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
            }
        }
    }
}
