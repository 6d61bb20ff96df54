//! Routes that show the rules in force and change the stored ones.

pub(super) mod lists;
pub(super) mod one;
pub(super) mod overrides;
pub(super) mod whole;

use std::sync::Arc;

use http::header::{ETAG, HeaderValue, IF_MATCH};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trypema::rules::Rule;

pub(in crate::front::http) use whole::RulesetPermits;

use crate::app::App;
use crate::background_worker::Worker;
use crate::front::http::accounting::must_send;
use crate::front::http::openapi::Description;
use crate::front::http::problem::ApiError;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, HttpResponse, RouteResult};
use crate::refusal::Permission;
use crate::rules::change::StoredChange;
use crate::rules::database::{
    DatabaseError, EditError, EditResult, InvalidStoredRules, ProposedRules, StoredRules,
};
use crate::rules::store::RuleStore;
use crate::service::Call;
use crate::service::json::read_document;

/// The most changes of an edit that the log names.
const MAX_NAMED: usize = 10;

/// The rules in force on this server.
#[derive(Debug, Serialize, JsonSchema)]
struct RulesResponse<'a> {
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
struct EditResponse {
    /// The revision of the rule set now.
    revision: u64,
    /// The changes that were made, or that a dry run would make; empty if nothing differs.
    changes: Vec<StoredChange>,
}

/// The decisions of candidates compared with those of their live rules, as this server has counted them
/// since it loaded each pair.
#[derive(Debug, Serialize, JsonSchema)]
struct CandidatesResponse {
    candidates: Vec<CandidateReport>,
}

/// One candidate compared with its live rule.
#[derive(Debug, Serialize, JsonSchema)]
struct CandidateReport {
    /// The id of the live rule.
    rule: String,
    /// The id of the candidate.
    candidate: String,
    /// The share of keys for which the candidate is checked.
    share: f64,
    /// Requests that both rules allowed.
    both_allowed: u64,
    /// Requests that both rules denied.
    both_denied: u64,
    /// Requests that the live rule allowed and the candidate would have denied.
    would_deny: u64,
    /// Requests that the live rule denied and the candidate would have allowed.
    would_allow: u64,
}

/// One stored item.
#[derive(Debug, Serialize, JsonSchema)]
struct ItemResponse<'a, T> {
    /// The revision of its last change; `null` if it is in a file.
    revision: Option<u64>,
    /// The item itself.
    #[serde(flatten)]
    item: &'a T,
}

impl<T: Serialize> ItemResponse<'_, T> {
    fn into_response(self) -> HttpResponse {
        with_etag(json_response(StatusCode::OK, &self), self.revision)
    }
}

#[rustfmt::skip]
routes! {
    "GET" "/v1/rules" ADMINISTRATION Read "rules" rules_in_force boxed,
        "Show the rules in force on this server", "", |about| about.answers::<RulesResponse<'_>>("The rules.");
    "GET" "/v1/candidates" ADMINISTRATION Read "rules" candidates boxed,
        "Compare candidates with their live rules, on the requests that this server has seen", "",
        |about| about.answers::<CandidatesResponse>("The comparisons.");
}

impl Api {
    async fn rules_in_force(&self, _: Exchange<'_>) -> RouteResult {
        let rules = self.app().rules();
        let revision = self.app().rule_store().map(|rule_store| rule_store.in_force().version.revision);
        let response = move || {
            let (units, rules) = (rules.units().skip(1).collect(), rules.rules().collect());
            json_response(StatusCode::OK, &RulesResponse { revision, units, rules })
        };
        Ok(self.app().workers().run(Worker::Reads, response).await?)
    }

    async fn candidates(&self, _: Exchange<'_>) -> RouteResult {
        let app = Arc::clone(self.app());
        Ok(self.app().workers().run(Worker::Reads, move || report(&app)).await?)
    }

    /// Returns the database that stores the rules, or a 404 if they are in a file.
    fn rule_store(&self) -> Result<&RuleStore, ApiError> {
        let missing =
            "the rules are in a file and read-only here; set database_url to change them through the API";
        let rule_store = self.app().rule_store().map(|rule_store| &**rule_store);
        rule_store.ok_or_else(|| ApiError::not_found(missing))
    }

    /// Answers with the result of `make` on the stored rules. `make` runs on the readers' worker, because
    /// there may be thousands of rules.
    async fn respond_from_stored(
        &self,
        call: &Call<'_>,
        make: impl FnOnce(&StoredRules) -> RouteResult + Send + 'static,
    ) -> RouteResult {
        let rule_store = self.rule_store()?;
        call.begin(Permission::Read)?;
        let stored = rule_store.database().read().await?;
        self.app().workers().run(Worker::Reads, move || make(&stored)).await?
    }

    /// Changes an item of the stored rules, to the result of `make`, and announces the change to all servers. The
    /// `ETag` of the answer is the revision that the next change has to name.
    async fn edit(
        &self,
        call: &Call<'_>,
        status: StatusCode,
        make: impl FnOnce(&StoredRules) -> Result<ProposedRules, ApiError> + Send + 'static,
    ) -> RouteResult {
        let (rule_store, who) = (self.rule_store()?, call.caller.name());
        call.begin(Permission::Change)?;
        let transaction = rule_store.database().edit(who).await?;
        let edit = self.announce(who, transaction.finish(make).await?).await?;
        let revision = edit.item_revision;
        let response = self.edit_response(Worker::Changes, status, edit).await?;
        Ok(must_send(with_etag(response, revision)))
    }

    /// Logs a change, and tells all servers.
    async fn announce(&self, who: &str, edit: EditResult) -> Result<EditResult, ApiError> {
        let (revision, count) = (edit.revision, edit.changes.len());
        if count > 0 {
            let named: Vec<&str> = edit.changes.iter().take(MAX_NAMED).map(|change| &*change.name).collect();
            let more = if count > MAX_NAMED { " …" } else { "" };
            // Names come from editors, so they are fields, whose control characters are escaped.
            let changes = named.join(", ") + more;
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

    /// Writes the answer to a change on `worker`, because it may be long.
    async fn edit_response(&self, worker: Worker, status: StatusCode, edit: EditResult) -> RouteResult {
        let response = EditResponse { revision: edit.revision, changes: edit.changes };
        Ok(self.app().workers().run(worker, move || json_response(status, &response)).await?)
    }

    /// Parses a change on the worker for changes: an invalid body may be long.
    async fn read_change<'s, T: DeserializeOwned + Send + 'static>(
        &self,
        exchange: Exchange<'s>,
    ) -> Result<(T, Call<'s>), ApiError> {
        let (body, call) = exchange.body(self.max_body()).await?;
        let read = move || read_document(&body, |_| None);
        Ok((self.app().workers().run(Worker::Changes, read).await??, call))
    }
}

/// Compares every candidate of the rules in force, of which there may be thousands.
fn report(app: &App) -> HttpResponse {
    let rules = app.rules();
    let report = |candidate: &Rule| {
        let compared = app.metrics.rules.comparisons(&candidate.id);
        Some(CandidateReport {
            rule: candidate.candidate_for.clone()?,
            candidate: candidate.id.clone(),
            share: candidate.share.unwrap_or(1.0),
            both_allowed: compared.both_allowed.get(),
            both_denied: compared.both_denied.get(),
            would_deny: compared.would_deny.get(),
            would_allow: compared.would_allow.get(),
        })
    };
    json_response(
        StatusCode::OK,
        &CandidatesResponse { candidates: rules.rules().filter_map(report).collect() },
    )
}

/// The revision that a change is based on, from `If-Match`, so that no client overwrites changes that it has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precondition {
    /// Any revision (`*`).
    Any,
    Revision(u64),
}

impl Precondition {
    /// Parses `If-Match`: `"17"` or `*`. Returns `None` if the header is missing.
    fn read(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let Some(given) = headers.get(IF_MATCH) else { return Ok(None) };
        let given = given.to_str().unwrap_or_default().trim();
        if given == "*" {
            return Ok(Some(Self::Any));
        }
        let revision =
            given.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(given).parse();
        let revision =
            revision.map_err(|_| ApiError::bad_request("If-Match: need a revision, as in \"17\", or *"))?;
        Ok(Some(Self::Revision(revision)))
    }

    /// Parses `If-Match`, and fails with 428 if it is missing.
    fn required(headers: &HeaderMap) -> Result<Self, ApiError> {
        let missing = || {
            let detail =
                "If-Match is required: send the revision that the change is based on, from ETag, or *";
            ApiError::new(StatusCode::PRECONDITION_REQUIRED, detail)
        };
        Self::read(headers)?.ok_or_else(missing)
    }

    /// Fails with 409 if `what` is no longer at the named revision.
    fn check(self, what: &str, revision: u64) -> Result<(), ApiError> {
        match self {
            Self::Revision(named) if named != revision => {
                let detail = format!("{what} changed meanwhile: it is at revision {revision}, not {named}");
                Err(ApiError::new(StatusCode::CONFLICT, detail))
            }
            Self::Any | Self::Revision(_) => Ok(()),
        }
    }
}

impl Description<'_> {
    /// Describes the answer to a change of a rule or an override.
    pub(super) fn edits(self, status: &str) -> Self {
        let described = self.answers_as::<EditResponse>(status, "The changes.", |schema| schema);
        described.fails(&["400", "404", "409", "422", "503"])
    }
}

/// Adds the revision as `ETag`.
fn with_etag(mut response: HttpResponse, revision: Option<u64>) -> HttpResponse {
    let tag = revision.and_then(|revision| HeaderValue::from_str(&format!("\"{revision}\"")).ok());
    response.headers_mut().extend(tag.map(|tag| (ETAG, tag)));
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
