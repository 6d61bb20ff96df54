//! Changing what is stored: one at a time, all or nothing, and never to rules that could not be put in force.

use std::sync::Arc;

use sqlx::{PgConnection, Row};
use thiserror::Error;
use tokio::time::timeout;
use trypema::rules::{InvalidRules, RuleSet, Rules};

use super::stored::{self, BadRow, BadRows, Stored, Unusable};
use super::write::Writes;
use super::{Database, DatabaseError, Purpose, Session, UNTIL_WRITTEN, query, within};
use crate::background_worker::Worker;
use crate::rules::change::{self, Change, Item, Kind};

/// What is stored, as one moment has it, to be looked at and tried on.
#[derive(Debug)]
pub(crate) struct Snapshot<'d> {
    session: Session<'d>,
    stored: Arc<Stored>,
}

/// A change that was begun: nobody else changes anything until it is finished, or dropped.
#[derive(Debug)]
pub(crate) struct Editing<'d>(Snapshot<'d>);

/// How much of what is stored a change speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All of it: what it does not have is to go.
    Everything,
    /// The rule of this id, or what belongs to it; nothing else may be touched.
    Rule(String),
    /// A value on a list.
    List,
}

/// What is to be stored.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) rules: Rules,
    pub(crate) reach: Reach,
    /// That of the one thing that is changed, if there is one.
    pub(crate) revision: Option<u64>,
}

/// What became of a change.
#[derive(Debug)]
pub(crate) struct Edited {
    /// The revision now.
    pub(crate) revision: u64,
    /// That of the one thing that was changed, for whoever changes it next.
    pub(crate) item_revision: Option<u64>,
    pub(crate) changes: Vec<Change>,
}

/// A change that can be made.
struct Prepared {
    changes: Vec<Change>,
    writes: Writes,
    /// That of the one thing that is changed, before it is.
    item_revision: Option<u64>,
    /// Whether it is one thing.
    is_one: bool,
}

/// Why a change was not made.
#[derive(Debug, Error)]
pub(crate) enum EditError {
    #[error(transparent)]
    Database(DatabaseError),
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// A constraint has a word to say.
    #[error("{0}")]
    Constraint(String),
    /// Whether it was made is not known.
    #[error("{0}")]
    Unsure(DatabaseError),
}

/// While something is written, constraints may refuse it.
impl From<DatabaseError> for EditError {
    fn from(error: DatabaseError) -> Self {
        error.refusal().map_or(Self::Database(error), Self::Constraint)
    }
}

impl From<InvalidRules> for EditError {
    fn from(invalid: InvalidRules) -> Self {
        Self::Unusable(Unusable::Invalid(invalid))
    }
}

impl Database {
    /// What is stored now. Nobody is kept from changing it meanwhile.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot<'_>, DatabaseError> {
        let mut session = self.session(Purpose::Looking).await?;
        let stored = within(async {
            let begin = query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
            begin.execute(&mut session.connection).await?;
            stored::read(&mut session).await
        })
        .await?;
        Ok(Snapshot { session, stored: Arc::new(stored) })
    }

    /// Begins a change that `who` makes.
    pub(crate) async fn edit(&self, who: &str) -> Result<Editing<'_>, DatabaseError> {
        let mut session = self.session(Purpose::Changing).await?;
        let stored = within(async {
            let connection = &mut session.connection;
            query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").execute(&mut *connection).await?;
            let name = query("SELECT set_config('trypema.changed_by', $1, true)").bind(who);
            name.execute(&mut *connection).await?;
            query("SELECT FROM rate_limit_state FOR UPDATE").execute(&mut *connection).await?;
            stored::read(&mut session).await
        })
        .await?;
        Ok(Editing(Snapshot { session, stored: Arc::new(stored) }))
    }
}

impl<'d> Editing<'d> {
    /// What is stored before the change.
    pub(crate) fn before(&mut self) -> &mut Snapshot<'d> {
        &mut self.0
    }

    /// Makes what is stored what `make` says. Where that is nothing new, nothing is changed, and the revision stays.
    pub(crate) async fn finish<E: From<EditError> + Send + 'static>(
        self,
        make: impl FnOnce(&Stored) -> Result<Wanted, E> + Send + 'static,
    ) -> Result<Edited, E> {
        let Self(Snapshot { mut session, stored }) = self;
        let worker = session.purpose.worker();
        let prepared = prepare(worker, &stored, make).await;
        let Prepared { changes, writes, is_one, .. } = match prepared {
            Ok(prepared) if !prepared.changes.is_empty() => prepared,
            other => {
                session.roll_back().await;
                let revision = stored.version.revision;
                worker.discard(stored);
                let Prepared { changes, item_revision, .. } = other?;
                return Ok(Edited { revision, item_revision, changes });
            }
        };
        worker.discard(stored);
        let connection = &mut session.connection;
        let writing = async {
            writes.run(connection).await?;
            // What belongs together is checked here, within bounds, and not at the end.
            query("SET CONSTRAINTS ALL IMMEDIATE").execute(&mut *connection).await?;
            let row = query("SELECT revision FROM rate_limit_state").fetch_one(&mut *connection).await?;
            Ok(stored::revision(row.try_get(0)?))
        };
        let written = timeout(UNTIL_WRITTEN, writing).await.unwrap_or(Err(DatabaseError::Silent));
        let revision = written.map_err(EditError::from)?;
        // Only of this it may not be known whether it was done.
        let commit = async { Ok(query("COMMIT").execute(&mut session.connection).await?) };
        within(commit).await.map_err(EditError::Unsure)?;
        session.rest();
        Ok(Edited { revision, item_revision: is_one.then_some(revision), changes })
    }
}

impl Snapshot<'_> {
    /// What is stored.
    pub(crate) fn stored(&self) -> &Arc<Stored> {
        &self.stored
    }

    /// The worker that does what takes long.
    pub(super) fn worker(&self) -> Worker {
        self.session.purpose.worker()
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.session.connection
    }

    /// What a change would change, if anything.
    pub(crate) async fn try_out<E: From<EditError> + Send + 'static>(
        self,
        make: impl FnOnce(&Stored) -> Result<Wanted, E> + Send + 'static,
    ) -> Result<Edited, E> {
        let worker = self.worker();
        let prepared = prepare(worker, &self.stored, make).await;
        self.session.roll_back().await;
        let revision = self.stored.version.revision;
        worker.discard(self.stored);
        let Prepared { changes, item_revision, .. } = prepared?;
        Ok(Edited { revision, item_revision, changes })
    }

    /// Leaves it.
    pub(crate) async fn leave(self) {
        self.session.roll_back().await;
    }
}

/// Thinks a change through, on a thread that decides nothing: there may be thousands of rules.
async fn prepare<E: From<EditError> + Send + 'static>(
    worker: Worker,
    stored: &Arc<Stored>,
    make: impl FnOnce(&Stored) -> Result<Wanted, E> + Send + 'static,
) -> Result<Prepared, E> {
    let stored = Arc::clone(stored);
    let preparing = worker.run(move || {
        let Wanted { rules, reach, revision } = make(&stored)?;
        let changes = stored.changes(&rules, &reach)?;
        // Never to rules that could not be put in force.
        RuleSet::compile(&rules).map_err(EditError::from)?;
        let writes = Writes::new(&changes, &stored.bad_rows);
        let is_one = matches!(reach, Reach::Rule(_));
        Ok(Prepared { changes, writes, item_revision: revision, is_one })
    });
    preparing.await.unwrap_or_else(|not_done| Err(EditError::Database(not_done.into()).into()))
}

impl Stored {
    /// What is to be changed. Rows that cannot be understood stand in the way, unless they go or are written anew.
    fn changes(&self, wanted: &Rules, reach: &Reach) -> Result<Vec<Change>, EditError> {
        let stays = |row: &&BadRow| match reach {
            Reach::Everything => false,
            Reach::Rule(id) => row.kind != Kind::Rule || row.name != *id,
            Reach::List => true,
        };
        let staying: Vec<BadRow> = self.bad_rows.iter().filter(stays).cloned().collect();
        if !staying.is_empty() {
            return Err(Unusable::BadRows(BadRows(staying)).into());
        }
        let mut changes = change::between(&self.rules, wanted);
        for row in &self.bad_rows {
            let before = Some(Item::Unreadable(serde_json::from_str(&row.body).unwrap_or_default()));
            match changes.iter_mut().find(|change| change.kind == row.kind && change.name == row.name) {
                Some(change) => change.before = before,
                None => changes.push(Change { kind: row.kind, name: row.name.clone(), before, after: None }),
            }
        }
        Ok(changes)
    }
}
