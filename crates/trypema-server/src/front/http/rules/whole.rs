//! `/v1/ruleset`: the whole stored rule set, and its history.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trypema::rules::{Rule, Rules};

use super::one::no_rule;
use super::precondition::Precondition;
use super::{EditAnswer, json_on, read_on, tagged};
use crate::background_worker::Worker;
use crate::config::MAX_RULESET_BYTES;
use crate::front::http::accounting::{Accounting, marked};
use crate::front::http::answer::{json, json_bytes};
use crate::front::http::problem::Refusal;
use crate::front::http::query::pairs;
use crate::front::http::question::read;
use crate::front::http::{AdminApi, Asked, begin, body};
use crate::net::Place;
use crate::rules::change::Item;
use crate::rules::database::{
    Edited, HistoryEntry, NoSuchRevision, Page, Reach, Snapshot, Stored, Version, Wanted,
};
use crate::tokens::Actor;

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
pub(in crate::front::http) struct HistoryAnswer {
    entries: Vec<HistoryEntry>,
    /// The value of `before` for the next page; `null` if there is none.
    next: Option<u64>,
}

/// Whether a change is made, or is a dry run.
enum Doing {
    Really(Actor, Precondition),
    Trying(Precondition),
}

impl Doing {
    /// Returns the worker for long work. A dry run never delays a change.
    fn worker(&self) -> Worker {
        match self {
            Self::Really(..) => Worker::Changes,
            Self::Trying(_) => Worker::Reads,
        }
    }
}

impl AdminApi {
    /// Answers with the stored rules, now or after a revision, as JSON or YAML.
    pub(super) async fn export(&self, request: &Request<Incoming>, place: &Place) -> Asked {
        let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let is_yaml = accept.is_some_and(|accept| accept.contains("yaml"));
        let write = move |stored: &Stored| {
            let rules = sorted(stored.understood()?);
            let answer = if is_yaml { yaml(&rules)? } else { json(StatusCode::OK, &rules) };
            Ok(tagged(answer, stored.version.revision))
        };
        let Some(revision) = revision_of(request)? else {
            return self.answer_from_stored(place, write).await;
        };
        let book = self.book()?;
        begin(place)?;
        let mut snapshot = book.database().snapshot().await?;
        let rules = snapshot.at(revision).await?;
        snapshot.leave().await;
        let version = Version { revision, ..Version::default() };
        let stored = Stored { version, rules, ..Stored::default() };
        Worker::Reads.run(move || write(&stored)).await?
    }

    /// Replaces the stored rules by those of the body.
    pub(super) async fn apply(&self, request: Request<Incoming>, place: &Place) -> Asked {
        let doing = self.doing(&request, place)?;
        self.book()?;
        let worker = doing.worker();
        let _turn = self.rulesets.take(worker).await?;
        let body = body::read(request.into_body(), MAX_RULESET_BYTES.max(self.max_body), place).await?;
        let rules: Rules = read_on(worker, body).await?;
        begin(place)?;
        edited_set(worker, self.change_all(doing, Change::To(rules)).await?).await
    }

    /// Restores the stored rules of a revision.
    pub(super) async fn revert(&self, request: Request<Incoming>, place: &Place) -> Asked {
        let doing = self.doing(&request, place)?;
        self.book()?;
        let RevertRequest { to } = read(&body::read(request.into_body(), self.max_body, place).await?)?;
        begin(place)?;
        edited_set(doing.worker(), self.change_all(doing, Change::Back(to)).await?).await
    }

    /// Replaces a live rule by its candidate. The live rule keeps its id, name, counters and overrides, and
    /// whether it is enabled.
    pub(super) async fn promote(&self, id: &str, request: &Request<Incoming>, place: &Place) -> Asked {
        let doing = self.doing(request, place)?;
        self.book()?;
        begin(place)?;
        edited_set(doing.worker(), self.change_all(doing, Change::Promote(id.to_owned())).await?).await
    }

    async fn change_all(&self, doing: Doing, change: Change) -> Result<Edited, Refusal> {
        let database = self.book()?.database();
        match doing {
            Doing::Trying(precondition) => {
                let mut snapshot = database.snapshot().await?;
                precondition.check(SET, snapshot.stored().version.revision)?;
                let change = change.resolved(&mut snapshot).await?;
                snapshot.try_out(move |stored| change.make(stored)).await
            }
            Doing::Really(who, precondition) => {
                let mut editing = database.edit(&who.name).await?;
                precondition.check(SET, editing.before().stored().version.revision)?;
                let change = change.resolved(editing.before()).await?;
                let edited = editing.finish(move |stored| change.make(stored)).await?;
                self.finish(&who, edited).await
            }
        }
    }

    /// Reads whether a change is a dry run, who makes it, and the revision that it is based on. A dry run
    /// need not name a revision.
    fn doing(&self, request: &Request<Incoming>, place: &Place) -> Result<Doing, Refusal> {
        if is_dry_run(request)? {
            return Ok(Doing::Trying(Precondition::read(request.headers())?.unwrap_or(Precondition::Any)));
        }
        let who = self.access.admit_editor(request.headers(), place)?;
        Ok(Doing::Really(who, Precondition::required(request.headers())?))
    }

    pub(super) async fn history(&self, request: &Request<Incoming>, place: &Place) -> Asked {
        let book = self.book()?;
        let (mut about, mut before, mut limit) = (None, None, PAGE);
        for pair in pairs(request.uri().query().unwrap_or_default()) {
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
        begin(place)?;
        let page = Page { about: about.as_deref(), before, limit };
        let entries = book.database().history(page).await?;
        let next = entries.last().map(|last| last.id).filter(|_| entries.len() == limit as usize);
        json_on(Worker::Reads, StatusCode::OK, HistoryAnswer { entries, next }).await
    }
}

/// A change of the whole rule set.
enum Change {
    To(Rules),
    Back(u64),
    Promote(String),
}

impl Change {
    /// Replaces the number of a revision by its rules.
    async fn resolved(self, snapshot: &mut Snapshot<'_>) -> Result<Self, Refusal> {
        match self {
            Self::Back(to) => Ok(Self::To(snapshot.at(to).await?)),
            other => Ok(other),
        }
    }

    fn make(self, stored: &Stored) -> Result<Wanted, Refusal> {
        let (rules, reach) = match self {
            Self::To(rules) => (rules, Reach::Everything),
            Self::Back(_) => (stored.rules.clone(), Reach::Everything),
            Self::Promote(id) => (promoted(stored, &id)?, Reach::Rule(id)),
        };
        Ok(Wanted { rules, reach, revision: None })
    }
}

fn yaml(rules: &Rules) -> Asked {
    let text = serde_saphyr::to_string(rules).map_err(|_| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the rules cannot be written as YAML")
    })?;
    let mut answer = json_bytes(StatusCode::OK, text);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    Ok(answer)
}

fn promoted(stored: &Stored, id: &str) -> Result<Rules, Refusal> {
    let candidate = stored.rule(id).ok_or_else(|| no_rule(id))??;
    let Some(live) = &candidate.candidate_for else {
        return Err(Refusal::new(StatusCode::CONFLICT, format!("rule {id:?} is no candidate")));
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
    rules.overrides.retain(|special| special.rule != id);
    Ok(rules)
}

/// The subject of a conflict message.
const SET: &str = "the set of rules";

/// Sorts the items by name, so that two exports can be compared.
fn sorted(rules: &Rules) -> Rules {
    Item::together(Item::all(rules).into_values())
}

async fn edited_set(worker: Worker, edited: Edited) -> Asked {
    let revision = edited.revision;
    let answer = json_on(worker, StatusCode::OK, EditAnswer::from(edited)).await?;
    Ok(match worker {
        Worker::Changes => marked(tagged(answer, revision), Accounting::MustSend),
        Worker::Reads => tagged(answer, revision),
    })
}

fn is_dry_run(request: &Request<Incoming>) -> Result<bool, Refusal> {
    let mut is_dry_run = false;
    for pair in pairs(request.uri().query().unwrap_or_default()) {
        let (name, value) = pair?;
        is_dry_run = match (&*name, &*value) {
            ("dry_run", "true") => true,
            ("dry_run", "false") => false,
            ("dry_run", _) => return Err(Refusal::bad_request("dry_run: need true or false")),
            _ => return Err(unknown(&name)),
        };
    }
    Ok(is_dry_run)
}

fn revision_of(request: &Request<Incoming>) -> Result<Option<u64>, Refusal> {
    let mut revision = None;
    for pair in pairs(request.uri().query().unwrap_or_default()) {
        let (name, value) = pair?;
        match &*name {
            "revision" => revision = Some(number("revision", &value)?),
            _ => return Err(unknown(&name)),
        }
    }
    Ok(revision)
}

fn number(name: &str, value: &str) -> Result<u64, Refusal> {
    value.parse().map_err(|_| Refusal::bad_request(format!("{name}: need a number")))
}

fn unknown(name: &str) -> Refusal {
    Refusal::bad_request(format!("unknown parameter {name:?}"))
}

impl From<NoSuchRevision> for Refusal {
    fn from(error: NoSuchRevision) -> Self {
        match error {
            NoSuchRevision::Database(error) => error.into(),
            NoSuchRevision::Future { .. } | NoSuchRevision::Forgotten(_) => {
                Self::new(StatusCode::NOT_FOUND, error.to_string())
            }
        }
    }
}
