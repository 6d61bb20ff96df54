//! Routes that show the rules in force and change the stored ones. All of them need a token; see
//! [`super::access`].

mod candidates;
mod item;
mod lists;
mod one;
mod overrides;
mod precondition;
mod turns;
mod whole;

use http::header::{ETAG, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trypema::rules::Rule;

pub(super) use candidates::CandidatesAnswer;
pub(super) use item::ItemAnswer;
pub(super) use lists::ListsAnswer;
pub(super) use one::EnabledChange;
pub(super) use overrides::{OverrideChange, OverridesAnswer};
pub(super) use turns::Turns;
pub(super) use whole::{HistoryAnswer, RevertRequest};

use super::accounting::{Accounting, marked};
use super::answer::json;
use super::body::Body;
use super::problem::Refusal;
use super::question::read;
use super::{AdminApi, Answer, Asked, begin};
use crate::background_worker::Worker;
use crate::net::Place;
use crate::rules::book::Book;
use crate::rules::change::Change;
use crate::rules::database::{DatabaseError, EditError, Edited, Stored, Unusable, Wanted};
use crate::tokens::Actor;

/// The most changes of an edit that the log names.
const MAX_NAMED: usize = 10;

/// The rules in force on this server.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RulesAnswer<'a> {
    /// The revision of the rules, if they are stored in a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    /// The rules by priority, including disabled ones.
    rules: Vec<&'a Rule>,
}

/// The result of a change.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EditAnswer {
    /// The revision of the rule set now.
    revision: u64,
    /// The changes that were made, or that a dry run would make; empty if nothing differs.
    changes: Vec<Change>,
}

/// Whether a path is below one of the routes of this module.
pub(super) fn is_below(path: &str) -> bool {
    ["/v1/rules/", "/v1/ruleset/", "/v1/overrides/", "/v1/lists/"].iter().any(|start| path.starts_with(start))
}

impl AdminApi {
    pub(super) async fn rules(&self, request: Request<Incoming>, place: &Place) -> Asked {
        // Every route needs at least a reader's token. Routes that change something check for an editor's
        // token themselves.
        self.access.admit_reader(request.headers(), place)?;
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        let method = request.method().clone();
        match (&parts[..], method) {
            (["rules"], Method::GET) => self.rules_in_force().await,
            (["rules"], Method::POST) => self.create_rule(request, place).await,
            (["rules"], _) => Err(Refusal::wrong_method("GET, POST")),
            (["rules", id], Method::GET) => self.show_rule(id, place).await,
            (["rules", id], Method::PUT) => self.change_rule(id, request, place).await,
            (["rules", id], Method::PATCH) => self.switch_rule(id, request, place).await,
            (["rules", id], Method::DELETE) => self.delete_rule(id, &request, place).await,
            (["rules", _], _) => Err(Refusal::wrong_method("GET, PUT, PATCH, DELETE")),
            (["rules", id, "promote"], Method::POST) => self.promote(id, &request, place).await,
            (["rules", _, "promote"], _) => Err(Refusal::wrong_method("POST")),
            (["ruleset"], Method::GET) => self.export(&request, place).await,
            (["ruleset"], Method::PUT) => self.apply(request, place).await,
            (["ruleset"], _) => Err(Refusal::wrong_method("GET, PUT")),
            (["ruleset", "history"], Method::GET) => self.history(&request, place).await,
            (["ruleset", "history"], _) => Err(Refusal::wrong_method("GET")),
            (["ruleset", "revert"], Method::POST) => self.revert(request, place).await,
            (["ruleset", "revert"], _) => Err(Refusal::wrong_method("POST")),
            (["overrides"], Method::GET) => self.show_overrides(&request, place).await,
            (["overrides"], _) => Err(Refusal::wrong_method("GET")),
            // A key may contain slashes that the client did not encode.
            (["overrides", ..], _) => self.override_of(&path["/v1/overrides/".len()..], request, place).await,
            (["lists"], Method::GET) => self.show_lists(place).await,
            (["lists"], _) => Err(Refusal::wrong_method("GET")),
            (["lists", list, attribute, ..], _) => {
                let start = "/v1/lists/".len() + list.len() + 1 + attribute.len() + 1;
                let value = path.get(start..).unwrap_or_default();
                self.listed(lists::Place { list, attribute, value }, &request, place).await
            }
            (["candidates"], Method::GET) => Ok(self.candidates()),
            (["candidates"], _) => Err(Refusal::wrong_method("GET")),
            _ => Err(Refusal::not_found()),
        }
    }

    async fn rules_in_force(&self) -> Asked {
        let rules = self.app.rules();
        let revision = self.app.book().map(|book| book.in_force().version.revision);
        let answer = move || json(StatusCode::OK, &RulesAnswer { revision, rules: rules.rules().collect() });
        Ok(Worker::Reads.run(answer).await?)
    }

    /// Returns the database that stores the rules, or a 404 if they are in a file.
    fn book(&self) -> Result<&Book, Refusal> {
        let missing =
            "the rules are in a file and read-only here; set database_url to change them through the API";
        self.app.book().map(|book| &**book).ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, missing))
    }

    /// Answers with the result of `make` on the stored rules. `make` runs on the readers' worker, because
    /// there may be thousands of rules.
    async fn answer_from_stored(
        &self,
        place: &Place,
        make: impl FnOnce(&Stored) -> Asked + Send + 'static,
    ) -> Asked {
        let book = self.book()?;
        begin(place)?;
        let stored = book.database().read().await?;
        Worker::Reads.run(move || make(&stored)).await?
    }

    /// Changes the stored rules to the result of `make`, and announces the change to all servers.
    async fn edit(
        &self,
        who: &Actor,
        place: &Place,
        make: impl FnOnce(&Stored) -> Result<Wanted, Refusal> + Send + 'static,
    ) -> Result<Edited, Refusal> {
        let book = self.book()?;
        begin(place)?;
        let editing = book.database().edit(&who.name).await?;
        self.finish(who, editing.finish(make).await?).await
    }

    async fn finish(&self, who: &Actor, edited: Edited) -> Result<Edited, Refusal> {
        let (revision, count) = (edited.revision, edited.changes.len());
        if count > 0 {
            let named: Vec<&str> =
                edited.changes.iter().take(MAX_NAMED).map(|change| &*change.name).collect();
            let more = if count > MAX_NAMED { " …" } else { "" };
            // Names come from editors, so they are fields, whose control characters are escaped.
            let (who, changes) = (&*who.name, named.join(", ") + more);
            tracing::info!(who, revision, count, changes, "rules: an editor stored revision {revision}");
        }
        self.book()?.spread(&edited).await;
        Ok(edited)
    }
}

/// Answers a change of one item. The `ETag` is the revision that the next change has to name.
async fn edited(status: StatusCode, edited: Edited) -> Asked {
    let revision = edited.item_revision;
    let answer = json_on(Worker::Changes, status, EditAnswer::from(edited)).await?;
    let answer = marked(answer, Accounting::MustSend);
    Ok(match revision {
        Some(revision) => tagged(answer, revision),
        None => answer,
    })
}

impl From<Edited> for EditAnswer {
    fn from(edited: Edited) -> Self {
        Self { revision: edited.revision, changes: edited.changes }
    }
}

/// Parses a body on `worker`, because it may be long.
async fn read_on<T: DeserializeOwned + Send + 'static>(worker: Worker, body: Body) -> Result<T, Refusal> {
    worker.run(move || read(&body)).await?
}

/// Writes a JSON response on `worker`, because it may be long.
async fn json_on(worker: Worker, status: StatusCode, value: impl Serialize + Send + 'static) -> Asked {
    Ok(worker.run(move || json(status, &value)).await?)
}

/// Adds the revision as `ETag`.
fn tagged(mut answer: Answer, revision: u64) -> Answer {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}

/// Hides the details: callers must not learn the database's address or its messages.
impl From<DatabaseError> for Refusal {
    fn from(error: DatabaseError) -> Self {
        tracing::warn!("rules: request to PostgreSQL failed ({error}); the client got 503");
        Self::unavailable(error.told())
    }
}

impl From<Unusable> for Refusal {
    fn from(unusable: Unusable) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, unusable.to_string())
    }
}

impl From<EditError> for Refusal {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Database(error) => error.into(),
            EditError::Unsure(error) => {
                tracing::warn!(
                    "rules: PostgreSQL did not acknowledge COMMIT ({error}); the change may have been stored, the \
                     client got 503"
                );
                Self::unavailable(
                    "commit not acknowledged: the change may have been stored; check /v1/ruleset/history",
                )
            }
            EditError::Unusable(_) | EditError::Constraint(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
            }
        }
    }
}
