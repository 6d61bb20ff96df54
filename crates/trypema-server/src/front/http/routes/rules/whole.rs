//! `/v1/ruleset`: the whole stored rule set, and its history.

use http::StatusCode;
use http::header::ACCEPT;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit};
use trypema::rules::{Rule, Rules};

use super::one::{ID, no_rule};
use super::{Precondition, with_etag};
use crate::background_worker::Worker;
use crate::config::MAX_RULESET_BYTES;
use crate::front::http::accounting::must_send;
use crate::front::http::openapi::Description;
use crate::front::http::problem::ApiError;
use crate::front::http::response::{json_response, response};
use crate::front::http::{Api, Exchange, RouteResult};
use crate::refusal::Permission;
use crate::rules::change::Item;
use crate::rules::database::{
    EditScope, HistoryEntry, NoSuchRevision, Page, ProposedRules, StoredRules, Version,
};
use crate::service::json::{read, read_document};
use crate::service::{Call, Caller};

/// The default number of history entries in one response.
const PAGE: u32 = 100;
/// The maximum number of history entries in one response: each entry may hold two large rules.
const MAX_PAGE: u32 = 1_000;

/// The number of dry runs at a time. They share one worker, so more would only hold memory.
const DRY_RUNS: usize = 1;
/// The number of dry runs that may wait; further ones are refused.
const WAITING_DRY_RUNS: usize = 16;
/// The number of changes that may hold a rule set at a time: the second can arrive while the first is stored.
const CHANGES: usize = 2;

/// A request to restore a revision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevertRequest {
    /// The revision whose rules are restored; revision 0 has no rules.
    to: u64,
}

/// Changes, the latest first.
#[derive(Debug, Serialize, JsonSchema)]
struct HistoryResponse {
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
        let [dry_run] = exchange.query(["dry_run"])?;
        let is_dry_run = match dry_run.as_deref() {
            Some("true") => true,
            Some("false") | None => false,
            Some(_) => return Err(ApiError::bad_request("dry_run: need true or false")),
        };
        if is_dry_run {
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

#[rustfmt::skip]
routes! {
    "POST" "/v1/rules/{id}/promote" ADMINISTRATION Read "rules" promote boxed,
        "Promote a candidate: replace the live rule with it, or with `?dry_run=true` show the changes", "",
        |about| about.may_be_dry().edits("200");
    "GET" "/v1/ruleset" ADMINISTRATION Read "rules" export boxed,
        "Export the stored rules, now or after `?revision=N`, as JSON or YAML", "", describe_export;
    "PUT" "/v1/ruleset" ADMINISTRATION Read "rules" apply boxed,
        "Replace the stored rules, or with `?dry_run=true` show the changes", r#"{"rules": [{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}]}"#,
        |about| about.may_be_dry().reads::<Rules>().edits("200");
    "GET" "/v1/ruleset/history" ADMINISTRATION Read "rules" history boxed,
        "Show who changed what, the latest first (`?about=`, `?before=`, `?limit=`)", "",
        describe_history;
    "POST" "/v1/ruleset/revert" ADMINISTRATION Read "rules" revert boxed,
        "Restore the rules of a revision, or with `?dry_run=true` show the changes", r#"{"to": 17}"#,
        |about| about.may_be_dry().reads::<RevertRequest>().edits("200");
}

impl Api {
    /// Answers with the stored rules, now or after a revision, as JSON or YAML.
    async fn export(&self, exchange: Exchange<'_>) -> RouteResult {
        let accept = exchange.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let is_yaml = accept.is_some_and(|accept| accept.contains("yaml"));
        let write = move |stored: &StoredRules| {
            let rules = sorted(stored.valid_rules()?);
            let response = if is_yaml { yaml(&rules)? } else { json_response(StatusCode::OK, &rules) };
            Ok(with_etag(response, Some(stored.version.revision)))
        };
        let [revision] = exchange.query(["revision"])?;
        let Some(revision) = revision else { return self.respond_from_stored(&exchange.call, write).await };
        let revision = number("revision", &revision)?;
        let rule_store = self.rule_store()?;
        exchange.call.begin(Permission::Read)?;
        let mut snapshot = rule_store.database().snapshot().await?;
        let rules = snapshot.at(revision).await?;
        snapshot.close().await;
        let version = Version { revision, ..Version::default() };
        let stored = StoredRules { version, rules, ..StoredRules::default() };
        self.app().workers().run(Worker::Reads, move || write(&stored)).await?
    }

    /// Replaces the stored rules with those of the body.
    async fn apply(&self, exchange: Exchange<'_>) -> RouteResult {
        let mode = EditMode::of(&exchange)?;
        self.rule_store()?;
        let worker = mode.worker();
        let _turn = self.rulesets.acquire(worker).await?;
        let (body, call) = exchange.body(MAX_RULESET_BYTES.max(self.max_body())).await?;
        // It may be long.
        let read = move || read_document(&body, |document| document.rule_set().err());
        let rules: Rules = self.app().workers().run(worker, read).await??;
        self.edit_ruleset(&call, mode, None, |_, _| Ok((rules, EditScope::Everything))).await
    }

    /// Restores the stored rules of a revision.
    async fn revert(&self, exchange: Exchange<'_>) -> RouteResult {
        let mode = EditMode::of(&exchange)?;
        self.rule_store()?;
        let (body, call) = exchange.body(self.max_body()).await?;
        let RevertRequest { to } = read(&body)?;
        self.edit_ruleset(&call, mode, Some(to), |_, then| Ok((then, EditScope::Everything))).await
    }

    /// Replaces a live rule with its candidate. The live rule keeps its id, name, counters and overrides, and
    /// whether it is enabled.
    async fn promote(&self, exchange: Exchange<'_>) -> RouteResult {
        let mode = EditMode::of(&exchange)?;
        let id = exchange.parameter(ID).to_owned();
        let make = |stored: &StoredRules, _| Ok((promote_candidate(stored, &id)?, EditScope::Rule(id)));
        self.edit_ruleset(&exchange.call, mode, None, make).await
    }

    /// Changes the rule set to the result of `make`, which gets the stored rules, and those after the revision `to` if there is one.
    async fn edit_ruleset(
        &self,
        call: &Call<'_>,
        mode: EditMode,
        to: Option<u64>,
        make: impl FnOnce(&StoredRules, Rules) -> Result<(Rules, EditScope), ApiError> + Send + 'static,
    ) -> RouteResult {
        let (database, worker) = (self.rule_store()?.database(), mode.worker());
        call.begin(Permission::Read)?;
        let (mut snapshot, precondition) = match &mode {
            EditMode::DryRun(precondition) => (database.snapshot().await?, precondition),
            EditMode::Apply(who, precondition) => (database.edit(who.name()).await?, precondition),
        };
        precondition.check(SET, snapshot.stored().version.revision)?;
        let then = match to {
            Some(to) => snapshot.at(to).await?,
            None => Rules::default(),
        };
        let propose = move |stored: &StoredRules| {
            let (rules, scope) = make(stored, then)?;
            Ok::<_, ApiError>(ProposedRules { rules, scope, revision: None })
        };
        let edited = snapshot.finish(propose).await?;
        let edited = match mode {
            EditMode::DryRun(_) => edited,
            EditMode::Apply(who, _) => self.announce(who.name(), edited).await?,
        };
        let revision = Some(edited.revision);
        let response = with_etag(self.edit_response(worker, StatusCode::OK, edited).await?, revision);
        Ok(if worker == Worker::Changes { must_send(response) } else { response })
    }

    async fn history(&self, exchange: Exchange<'_>) -> RouteResult {
        let rule_store = self.rule_store()?;
        let [about, before, limit] = exchange.query(["about", "before", "limit"])?;
        let before = before.map(|before| number("before", &before)).transpose()?;
        let limit = limit.map_or(Ok(PAGE.into()), |limit| number("limit", &limit))?;
        let limit = u32::try_from(limit).unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
        exchange.call.begin(Permission::Read)?;
        let page = Page { about: about.as_deref(), before, limit };
        let entries = rule_store.database().history(page).await?;
        let next = entries.last().map(|last| last.id).filter(|_| entries.len() == limit as usize);
        let write = move || json_response(StatusCode::OK, &HistoryResponse { entries, next });
        Ok(self.app().workers().run(Worker::Reads, write).await?)
    }
}

/// Permits to hold a whole rule set in memory, because each may have many megabytes. Editors never wait for readers.
#[derive(Debug)]
pub(in crate::front::http) struct RulesetPermits {
    dry_runs: Semaphore,
    /// Places in the queue of dry runs, including those that are running.
    queue: Semaphore,
    changes: Semaphore,
}

impl Default for RulesetPermits {
    fn default() -> Self {
        Self {
            dry_runs: Semaphore::new(DRY_RUNS),
            queue: Semaphore::new(DRY_RUNS + WAITING_DRY_RUNS),
            changes: Semaphore::new(CHANGES),
        }
    }
}

impl RulesetPermits {
    /// Waits for the permits to receive a rule set that `worker` will process. They end when they are dropped.
    ///
    /// # Errors
    ///
    /// Too many dry runs are waiting already.
    async fn acquire(&self, worker: Worker) -> Result<[Option<SemaphorePermit<'_>>; 2], ApiError> {
        let (permits, queued) = match worker {
            Worker::Changes => (&self.changes, None),
            Worker::Reads | Worker::Operators => {
                let busy = |_| ApiError::unavailable("too many dry runs are queued; retry");
                (&self.dry_runs, Some(self.queue.try_acquire().map_err(busy)?))
            }
        };
        // The semaphores are never closed.
        Ok([permits.acquire().await.ok(), queued])
    }
}

fn yaml(rules: &Rules) -> RouteResult {
    let text = serde_saphyr::to_string(rules).map_err(|_| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the rules cannot be written as YAML")
    })?;
    Ok(response(StatusCode::OK, "application/yaml", text))
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

fn number(name: &str, value: &str) -> Result<u64, ApiError> {
    value.parse().map_err(|_| ApiError::bad_request(format!("{name}: need a number")))
}

impl From<NoSuchRevision> for ApiError {
    fn from(error: NoSuchRevision) -> Self {
        match error {
            NoSuchRevision::Database(error) => error.into(),
            NoSuchRevision::Future { .. } | NoSuchRevision::Forgotten(_) => {
                Self::not_found(error.to_string())
            }
        }
    }
}

fn describe_export(about: Description<'_>) -> Description<'_> {
    let revision = json!({"type": "integer", "minimum": 0});
    about
        .says("As YAML if Accept asks for it.")
        .takes("revision", "Export this revision instead of the current one.", revision)
        .answers::<Rules>("The rules.")
        .answers_also("application/yaml")
        .fails(&["404", "422", "503"])
}

fn describe_history(about: Description<'_>) -> Description<'_> {
    let number = |minimum: u64| json!({"type": "integer", "minimum": minimum});
    let mut limit = number(1);
    limit["maximum"] = json!(MAX_PAGE);
    let of_about = "Only changes of this rule or unit, or of the list `allow` or `block`.";
    about
        .takes("about", of_about, json!({"type": "string"}))
        .takes("before", "Only entries before this id.", number(0))
        .takes("limit", "The maximum number of entries.", limit)
        .answers::<HistoryResponse>("The changes.")
        .fails(&["404", "503"])
}
