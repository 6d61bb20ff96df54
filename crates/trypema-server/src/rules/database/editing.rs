//! Changes the stored rules: one change at a time, all or nothing, and never to rules that could not be put
//! in force.

use std::sync::Arc;

use sqlx::{PgConnection, Row};
use thiserror::Error;
use tokio::time::timeout;
use trypema::rules::{InvalidRules, RuleSet, Rules};

use super::stored::{self, BadRow, InvalidStoredRules, StoredRules};
use super::write::Writes;
use super::{Database, DatabaseError, DatabaseSession, Purpose, WRITE_TIMEOUT, query, with_timeout};
use crate::rules::change::{self, Item, ItemKind, StoredChange};

/// The stored rules in a transaction. If it only reads, others can change them meanwhile, and changes are dry runs.
/// If it writes, no other change can start until it is finished or dropped.
#[derive(Debug)]
pub(crate) struct Snapshot<'d> {
    session: DatabaseSession<'d>,
    stored: Arc<StoredRules>,
}

/// The part of the stored rules that a change may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditScope {
    /// Everything: items that the change does not contain are deleted.
    Everything,
    /// The rule of this id, and its overrides.
    Rule(String),
    /// A value on a list.
    List,
}

/// The rules to store.
#[derive(Debug)]
pub(crate) struct ProposedRules {
    pub(crate) rules: Rules,
    pub(crate) scope: EditScope,
    /// The revision of the changed item, if the change is about one item.
    pub(crate) revision: Option<u64>,
}

/// The result of a change.
#[derive(Debug)]
pub(crate) struct EditResult {
    /// The revision of the rule set now.
    pub(crate) revision: u64,
    /// The revision of the changed item, which the next change of it has to name.
    pub(crate) item_revision: Option<u64>,
    pub(crate) changes: Vec<StoredChange>,
}

/// A validated change, ready to be written.
struct PreparedEdit {
    /// The result, if nothing is written.
    result: EditResult,
    writes: Writes,
    /// Whether the change is about one rule.
    is_one: bool,
}

/// The reason why a change was not made.
#[derive(Debug, Error)]
pub(crate) enum EditError {
    #[error(transparent)]
    Database(DatabaseError),
    #[error(transparent)]
    InvalidStoredRules(#[from] InvalidStoredRules),
    /// A constraint of the database rejected the change.
    #[error("{0}")]
    Constraint(String),
    /// The commit was not acknowledged, so whether the change was made is unknown.
    #[error("{0}")]
    OutcomeUnknown(DatabaseError),
}

/// An error while writing may be the violation of a constraint.
impl From<DatabaseError> for EditError {
    fn from(error: DatabaseError) -> Self {
        error.constraint_violation().map_or(Self::Database(error), Self::Constraint)
    }
}

impl From<InvalidRules> for EditError {
    fn from(invalid: InvalidRules) -> Self {
        Self::InvalidStoredRules(InvalidStoredRules::Invalid(invalid))
    }
}

impl Database {
    /// Reads the stored rules in a read-only transaction. Others can change them meanwhile.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot<'_>, DatabaseError> {
        let mut session = self.session(Purpose::Reading).await?;
        let stored = with_timeout(async {
            let begin = query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
            begin.execute(&mut session.connection).await?;
            stored::read(&mut session).await
        })
        .await?;
        Ok(Snapshot { session, stored: Arc::new(stored) })
    }

    /// Begins a change by `who`, and waits for the lock on the rule set.
    pub(crate) async fn edit(&self, who: &str) -> Result<Snapshot<'_>, DatabaseError> {
        let mut session = self.session(Purpose::Writing).await?;
        let stored = with_timeout(async {
            let connection = &mut session.connection;
            query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").execute(&mut *connection).await?;
            let name = query("SELECT set_config('trypema.changed_by', $1, true)").bind(who);
            name.execute(&mut *connection).await?;
            query("SELECT FROM rate_limit_state FOR UPDATE").execute(&mut *connection).await?;
            stored::read(&mut session).await
        })
        .await?;
        Ok(Snapshot { session, stored: Arc::new(stored) })
    }
}

impl Snapshot<'_> {
    /// Returns the stored rules before the change.
    pub(crate) fn stored(&self) -> &Arc<StoredRules> {
        &self.stored
    }

    pub(super) fn session(&self) -> &DatabaseSession<'_> {
        &self.session
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.session.connection
    }

    /// Changes the stored rules to the result of `make`, and ends the transaction. If that only reads, or if nothing
    /// differs, nothing is written, and the revision stays.
    pub(crate) async fn finish<E: From<EditError> + Send + 'static>(
        self,
        make: impl FnOnce(&StoredRules) -> Result<ProposedRules, E> + Send + 'static,
    ) -> Result<EditResult, E> {
        let Self { mut session, stored } = self;
        let prepared = prepare(&session, &stored, make).await;
        session.discard(stored);
        let is_writing = session.purpose == Purpose::Writing;
        let PreparedEdit { mut result, writes, is_one } = match prepared {
            Ok(prepared) if is_writing && !prepared.result.changes.is_empty() => prepared,
            other => {
                session.roll_back().await;
                return Ok(other?.result);
            }
        };
        let connection = &mut session.connection;
        let writing = async {
            writes.run(connection).await?;
            // Check deferred constraints here, within the timeout, and not in the commit.
            query("SET CONSTRAINTS ALL IMMEDIATE").execute(&mut *connection).await?;
            let row = query("SELECT revision FROM rate_limit_state").fetch_one(&mut *connection).await?;
            Ok(stored::revision(row.try_get(0)?))
        };
        let written = timeout(WRITE_TIMEOUT, writing).await.unwrap_or(Err(DatabaseError::Timeout));
        result.revision = written.map_err(EditError::from)?;
        result.item_revision = is_one.then_some(result.revision);
        // The commit is the only statement whose effect may be unknown after a failure.
        let commit = async { Ok(query("COMMIT").execute(&mut session.connection).await?) };
        with_timeout(commit).await.map_err(EditError::OutcomeUnknown)?;
        session.keep_idle();
        Ok(result)
    }

    /// Ends the snapshot.
    pub(crate) async fn close(self) {
        self.session.roll_back().await;
    }
}

/// Validates a change and computes its differences, on a worker: there may be thousands of rules.
fn prepare<'d, E, F>(
    session: &DatabaseSession<'d>,
    stored: &Arc<StoredRules>,
    make: F,
) -> impl Future<Output = Result<PreparedEdit, E>> + use<'d, E, F>
where
    E: From<EditError> + Send + 'static,
    F: FnOnce(&StoredRules) -> Result<ProposedRules, E> + Send + 'static,
{
    let stored = Arc::clone(stored);
    let preparing = session.work(move || {
        let ProposedRules { rules, scope, revision: item_revision } = make(&stored)?;
        let changes = stored.changes(&rules, &scope)?;
        // The compiler has to accept the rules, or no server could put them in force.
        RuleSet::compile(&rules).map_err(EditError::from)?;
        let writes = Writes::new(&changes, &stored.bad_rows);
        let result = EditResult { revision: stored.version.revision, item_revision, changes };
        Ok(PreparedEdit { result, writes, is_one: matches!(scope, EditScope::Rule(_)) })
    });
    async move { preparing.await.unwrap_or_else(|error| Err(EditError::Database(error.into()).into())) }
}

impl StoredRules {
    /// Returns the changes from the stored rules to `proposed`. Fails if rows that cannot be parsed would
    /// remain; the change has to delete or replace them.
    fn changes(&self, proposed: &Rules, scope: &EditScope) -> Result<Vec<StoredChange>, EditError> {
        let stays = |row: &&BadRow| match scope {
            EditScope::Everything => false,
            EditScope::Rule(id) => row.kind != ItemKind::Rule || row.name != *id,
            EditScope::List => true,
        };
        let staying: Vec<BadRow> = self.bad_rows.iter().filter(stays).cloned().collect();
        if !staying.is_empty() {
            return Err(InvalidStoredRules::BadRows(staying).into());
        }
        let mut changes = change::diff(&self.rules, proposed);
        for row in &self.bad_rows {
            let before = Some(Item::Unreadable(stored::raw(&row.body)));
            match changes.iter_mut().find(|change| change.kind == row.kind && change.name == row.name) {
                Some(change) => change.before = before,
                None => {
                    changes.push(StoredChange {
                        kind: row.kind,
                        name: row.name.clone(),
                        before,
                        after: None,
                    });
                }
            }
        }
        Ok(changes)
    }
}
