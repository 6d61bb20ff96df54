//! `/v1/ruleset`: the whole stored rule set, and its history.

use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trypema::rules::{Rule, Rules};

use super::one::{ID, no_rule};
use super::precondition::Precondition;
use super::{EditResponse, with_etag};
use crate::background_worker::Worker;
use crate::config::MAX_RULESET_BYTES;
use crate::front::http::accounting::{Accounting, with_accounting};
use crate::front::http::openapi::changes::{dry_run, edited, edited_whole, if_match_unless_dry_run};
use crate::front::http::openapi::{Schemas, in_query, responses};
use crate::front::http::problem::ApiError;
use crate::front::http::query::pairs;
use crate::front::http::response::{json_bytes, json_response};
use crate::front::http::{Api, Exchange, RouteResult};
use crate::rules::change::Item;
use crate::rules::database::{
    EditResult, EditScope, HistoryEntry, NoSuchRevision, Page, ProposedRules, Snapshot, StoredRules, Version,
};
use crate::service::Caller;
use crate::service::json::read;
use serde_json::{Value, json};

/// The default number of history entries in one response.
const PAGE: u32 = 100;
/// The maximum number of history entries in one response: each entry may hold two large rules.
const MAX_PAGE: u32 = 1_000;

/// A request to restore a revision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::front::http) struct RevertRequest {
    /// The revision whose rules are restored; revision 0 has no rules.
    to: u64,
}

/// Changes, the latest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct HistoryResponse {
    entries: Vec<HistoryEntry>,
    /// The value of `before` for the next page; `null` if there is none.
    next: Option<u64>,
}

/// Whether a change is made, or is a dry run.
enum EditMode {
    Apply(Caller, Precondition),
    DryRun(Precondition),
}

impl EditMode {
    /// Reads whether a change is a dry run, who makes it, and the revision that it is based on. A dry run needs no
    /// permission to change, and need not name a revision.
    fn of(exchange: &Exchange<'_>) -> Result<Self, ApiError> {
        if is_dry_run(exchange.query())? {
            return Ok(Self::DryRun(Precondition::read(exchange.headers())?.unwrap_or(Precondition::Any)));
        }
        let who = exchange.admit_to_change()?;
        Ok(Self::Apply(who, Precondition::required(exchange.headers())?))
    }

    /// Returns the worker for long work. A dry run never delays a change.
    fn worker(&self) -> Worker {
        match self {
            Self::Apply(..) => Worker::Changes,
            Self::DryRun(_) => Worker::Reads,
        }
    }
}

impl Api {
    /// Answers with the stored rules, now or after a revision, as JSON or YAML.
    pub(in super::super) async fn export(&self, exchange: Exchange<'_>) -> RouteResult {
        let accept = exchange.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let is_yaml = accept.is_some_and(|accept| accept.contains("yaml"));
        let write = move |stored: &StoredRules| {
            let rules = sorted(stored.valid_rules()?);
            let response = if is_yaml { yaml(&rules)? } else { json_response(StatusCode::OK, &rules) };
            Ok(with_etag(response, stored.version.revision))
        };
        let Some(revision) = revision_of(exchange.query())? else {
            return self.respond_from_stored(exchange.work, write).await;
        };
        let rule_store = self.rule_store()?;
        exchange.work.begin_decision()?;
        let mut snapshot = rule_store.database().snapshot().await?;
        let rules = snapshot.at(revision).await?;
        snapshot.close().await;
        let version = Version { revision, ..Version::default() };
        let stored = StoredRules { version, rules, ..StoredRules::default() };
        self.app().workers().run(Worker::Reads, move || write(&stored)).await?
    }

    /// Replaces the stored rules with those of the body.
    pub(in super::super) async fn apply(&self, exchange: Exchange<'_>) -> RouteResult {
        let mode = EditMode::of(&exchange)?;
        self.rule_store()?;
        let (worker, work) = (mode.worker(), exchange.work);
        let _turn = self.rulesets.acquire(worker).await?;
        let body = exchange.body(MAX_RULESET_BYTES.max(self.max_body)).await?;
        let rules: Rules = self.read_rules(worker, body).await?;
        work.begin_decision()?;
        self.ruleset_response(worker, self.edit_ruleset(mode, RulesetEdit::Replace(rules)).await?).await
    }

    /// Restores the stored rules of a revision.
    pub(in super::super) async fn revert(&self, exchange: Exchange<'_>) -> RouteResult {
        let mode = EditMode::of(&exchange)?;
        self.rule_store()?;
        let work = exchange.work;
        let RevertRequest { to } = read(&exchange.body(self.max_body).await?)?;
        work.begin_decision()?;
        self.ruleset_response(mode.worker(), self.edit_ruleset(mode, RulesetEdit::Revert(to)).await?).await
    }

    /// Replaces a live rule with its candidate. The live rule keeps its id, name, counters and overrides, and
    /// whether it is enabled.
    pub(in super::super) async fn promote(&self, exchange: Exchange<'_>) -> RouteResult {
        let mode = EditMode::of(&exchange)?;
        self.rule_store()?;
        exchange.work.begin_decision()?;
        let edit = RulesetEdit::Promote(exchange.parameter(ID).to_owned());
        self.ruleset_response(mode.worker(), self.edit_ruleset(mode, edit).await?).await
    }

    async fn edit_ruleset(&self, mode: EditMode, edit: RulesetEdit) -> Result<EditResult, ApiError> {
        let database = self.rule_store()?.database();
        let (mut snapshot, precondition) = match &mode {
            EditMode::DryRun(precondition) => (database.snapshot().await?, precondition),
            EditMode::Apply(who, precondition) => (database.edit(who.name()).await?, precondition),
        };
        precondition.check(SET, snapshot.stored().version.revision)?;
        let edit = edit.resolve(&mut snapshot).await?;
        let edited = snapshot.finish(move |stored| edit.propose(stored)).await?;
        match mode {
            EditMode::DryRun(_) => Ok(edited),
            EditMode::Apply(who, _) => self.finish(who.name(), edited).await,
        }
    }

    pub(in super::super) async fn history(&self, exchange: Exchange<'_>) -> RouteResult {
        let rule_store = self.rule_store()?;
        let (mut about, mut before, mut limit) = (None, None, PAGE);
        for pair in pairs(exchange.query().unwrap_or_default()) {
            let (name, value) = pair?;
            match &*name {
                "about" => about = Some(value),
                "before" => before = Some(number("before", &value)?),
                "limit" => {
                    limit = u32::try_from(number("limit", &value)?).unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE)
                }
                _ => return Err(unknown(&name)),
            }
        }
        exchange.work.begin_decision()?;
        let page = Page { about: about.as_deref(), before, limit };
        let entries = rule_store.database().history(page).await?;
        let next = entries.last().map(|last| last.id).filter(|_| entries.len() == limit as usize);
        self.json_on(Worker::Reads, StatusCode::OK, HistoryResponse { entries, next }).await
    }

    async fn ruleset_response(&self, worker: Worker, edited: EditResult) -> RouteResult {
        let revision = edited.revision;
        let response = self.json_on(worker, StatusCode::OK, EditResponse::from(edited)).await?;
        Ok(match worker {
            Worker::Changes => with_accounting(with_etag(response, revision), Accounting::MustSend),
            Worker::Reads | Worker::Operators => with_etag(response, revision),
        })
    }
}

/// A change of the whole rule set.
enum RulesetEdit {
    Replace(Rules),
    Revert(u64),
    Promote(String),
}

impl RulesetEdit {
    /// Replaces the number of a revision with its rules.
    async fn resolve(self, snapshot: &mut Snapshot<'_>) -> Result<Self, ApiError> {
        match self {
            Self::Revert(to) => Ok(Self::Replace(snapshot.at(to).await?)),
            other => Ok(other),
        }
    }

    fn propose(self, stored: &StoredRules) -> Result<ProposedRules, ApiError> {
        let (rules, scope) = match self {
            Self::Replace(rules) => (rules, EditScope::Everything),
            Self::Revert(_) => (stored.rules.clone(), EditScope::Everything),
            Self::Promote(id) => (promote_candidate(stored, &id)?, EditScope::Rule(id)),
        };
        Ok(ProposedRules { rules, scope, revision: None })
    }
}

fn yaml(rules: &Rules) -> RouteResult {
    let text = serde_saphyr::to_string(rules).map_err(|_| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the rules cannot be written as YAML")
    })?;
    let mut response = json_bytes(StatusCode::OK, text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    Ok(response)
}

fn promote_candidate(stored: &StoredRules, id: &str) -> Result<Rules, ApiError> {
    let candidate = stored.rule(id).ok_or_else(|| no_rule(id))??;
    let Some(live) = &candidate.candidate_for else {
        return Err(ApiError::new(StatusCode::CONFLICT, format!("rule {id:?} is not a candidate")));
    };
    let live = stored.rule(live).ok_or_else(|| no_rule(live))??;
    let promoted = Rule {
        id: live.id.clone(),
        name: live.name.clone(),
        enabled: live.enabled,
        candidate_for: None,
        share: None,
        ..candidate.clone()
    };
    let mut rules = stored.rules.clone();
    rules.rules.retain(|rule| rule.id != candidate.id && rule.id != promoted.id);
    rules.rules.push(promoted);
    rules.overrides.retain(|stored_override| stored_override.rule != id);
    Ok(rules)
}

/// The subject of a conflict message.
const SET: &str = "the set of rules";

/// Sorts the items by name, so that two exports can be compared.
fn sorted(rules: &Rules) -> Rules {
    Item::into_rules(Item::all(rules).into_values())
}

fn is_dry_run(query: Option<&str>) -> Result<bool, ApiError> {
    let mut is_dry_run = false;
    for pair in pairs(query.unwrap_or_default()) {
        let (name, value) = pair?;
        is_dry_run = match (&*name, &*value) {
            ("dry_run", "true") => true,
            ("dry_run", "false") => false,
            ("dry_run", _) => return Err(ApiError::bad_request("dry_run: need true or false")),
            _ => return Err(unknown(&name)),
        };
    }
    Ok(is_dry_run)
}

fn revision_of(query: Option<&str>) -> Result<Option<u64>, ApiError> {
    let mut revision = None;
    for pair in pairs(query.unwrap_or_default()) {
        let (name, value) = pair?;
        match &*name {
            "revision" => revision = Some(number("revision", &value)?),
            _ => return Err(unknown(&name)),
        }
    }
    Ok(revision)
}

fn number(name: &str, value: &str) -> Result<u64, ApiError> {
    value.parse().map_err(|_| ApiError::bad_request(format!("{name}: need a number")))
}

fn unknown(name: &str) -> ApiError {
    ApiError::bad_request(format!("unknown parameter {name:?}"))
}

impl From<NoSuchRevision> for ApiError {
    fn from(error: NoSuchRevision) -> Self {
        match error {
            NoSuchRevision::Database(error) => error.into(),
            NoSuchRevision::Future { .. } | NoSuchRevision::Forgotten(_) => {
                Self::new(StatusCode::NOT_FOUND, error.to_string())
            }
        }
    }
}

pub(in crate::front::http::routes) fn describe_promote(schemas: &mut Schemas) -> Value {
    json!({"parameters": [if_match_unless_dry_run(), dry_run()], "responses": edited(schemas, &["428"])})
}

pub(in crate::front::http::routes) fn describe_export(schemas: &mut Schemas) -> Value {
    let rules = schemas.of_response::<Rules>();
    let mut responses = responses("The rules.", &rules, &["400", "401", "403", "404", "422", "503"]);
    responses["200"]["content"]["application/yaml"] = json!({"schema": {"type": "string"}});
    let revision = json!({"type": "integer", "minimum": 0});
    json!({
        "description": "As YAML if Accept asks for it.",
        "parameters": [in_query("revision", "Export this revision instead of the current one.", &revision)],
        "responses": responses,
    })
}

pub(in crate::front::http::routes) fn describe_apply(schemas: &mut Schemas) -> Value {
    edited_whole(schemas, Schemas::of_request::<Rules>)
}

pub(in crate::front::http::routes) fn describe_revert(schemas: &mut Schemas) -> Value {
    edited_whole(schemas, Schemas::of_request::<RevertRequest>)
}

pub(in crate::front::http::routes) fn describe_history(schemas: &mut Schemas) -> Value {
    let number = |minimum: u64| json!({"type": "integer", "minimum": minimum});
    let mut limit = number(1);
    limit["maximum"] = json!(1000);
    json!({
        "parameters": [
            in_query("about", "Only changes of this rule or unit, or of the list `allow` or `block`.", &json!({"type": "string"})),
            in_query("before", "Only entries before this id.", &number(0)),
            in_query("limit", "The maximum number of entries.", &limit),
        ],
        "responses": responses("The changes.", &schemas.of_response::<HistoryResponse>(), &["400", "401", "403", "404", "503"]),
    })
}
