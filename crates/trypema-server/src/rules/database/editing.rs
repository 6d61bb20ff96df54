//! Changing what is stored: one at a time, all or nothing, and never to rules that could not be put in force.

use std::sync::LazyLock;

use serde::Serialize;
use sqlx::{AssertSqlSafe, PgConnection};
use thiserror::Error;
use tokio::time::timeout;
use trypema::rules::{InvalidRules, RuleSet, Rules};

use super::row::{ListRow, OverrideRow, RuleRow};
use super::stored::{self, BadRow, BadRows, Stored, Unusable};
use super::{Database, DatabaseError, Session, UNTIL_WRITTEN, within};
use crate::rules::change::{self, Change, Item, Kind};

/// What is stored, as one moment has it, to be looked at and tried on.
#[derive(Debug)]
pub(crate) struct Snapshot<'d> {
    session: Session<'d>,
    stored: Stored,
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

/// What became of a change.
#[derive(Debug)]
pub(crate) struct Edited {
    /// The revision now.
    pub(crate) revision: u64,
    pub(crate) changes: Vec<Change>,
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
        let mut session = self.session().await?;
        let stored = within(async {
            let connection = &mut session.connection;
            sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(&mut *connection).await?;
            stored::read(connection).await
        })
        .await?;
        Ok(Snapshot { session, stored })
    }

    /// Begins a change that `who` makes.
    pub(crate) async fn edit(&self, who: &str) -> Result<Editing<'_>, DatabaseError> {
        let mut session = self.session().await?;
        let stored = within(async {
            let connection = &mut session.connection;
            sqlx::query("BEGIN").execute(&mut *connection).await?;
            sqlx::query("SELECT set_config('trypema.changed_by', $1, true)")
                .bind(who)
                .execute(&mut *connection)
                .await?;
            sqlx::query("SELECT FROM rate_limit_state FOR UPDATE").execute(&mut *connection).await?;
            stored::read(connection).await
        })
        .await?;
        Ok(Editing(Snapshot { session, stored }))
    }
}

impl<'d> Editing<'d> {
    /// What is stored before the change.
    pub(crate) fn before(&mut self) -> &mut Snapshot<'d> {
        &mut self.0
    }

    /// Makes what is stored what is `wanted`. Where that is nothing new, nothing is changed, and the revision stays.
    pub(crate) async fn finish(self, wanted: Rules, reach: Reach) -> Result<Edited, EditError> {
        let Self(Snapshot { mut session, stored }) = self;
        let changes = stored.changes(&wanted, &reach)?;
        compiled(wanted).await?;
        if changes.is_empty() && stored.bad_rows.is_empty() {
            return Ok(Edited { revision: stored.version.revision, changes });
        }
        let connection = &mut session.connection;
        let written = async {
            write(connection, &changes, &stored.bad_rows).await?;
            let revision: i64 = sqlx::query_scalar("SELECT revision FROM rate_limit_state")
                .fetch_one(&mut *connection)
                .await
                .map_err(DatabaseError::from)?;
            // What belongs together is checked here.
            match sqlx::query("COMMIT").execute(connection).await.map_err(DatabaseError::from) {
                Ok(_) => Ok(revision),
                Err(error) => Err(error.refusal().map_or(EditError::Unsure(error), EditError::Constraint)),
            }
        };
        let written =
            timeout(UNTIL_WRITTEN, written).await.unwrap_or(Err(EditError::Unsure(DatabaseError::Silent)))?;
        Ok(Edited { revision: stored::revision(written), changes })
    }
}

impl Snapshot<'_> {
    /// What is stored.
    pub(crate) fn stored(&self) -> &Stored {
        &self.stored
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.session.connection
    }

    /// What a change would change, if anything.
    pub(crate) async fn try_out(self, wanted: Rules, reach: Reach) -> Result<Edited, EditError> {
        let (revision, changes) = (self.stored.version.revision, self.stored.changes(&wanted, &reach)?);
        compiled(wanted).await?;
        Ok(Edited { revision, changes })
    }
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
        Ok(change::between(&self.rules, wanted))
    }
}

/// Whether rules could be put in force.
async fn compiled(rules: Rules) -> Result<(), EditError> {
    let compiling = tokio::task::spawn_blocking(move || RuleSet::compile(&rules).map(drop));
    Ok(compiling.await.map_err(|_| DatabaseError::Silent)??)
}

const RULE_COLUMNS: &str = "id, name, key_pattern, scope, algorithm, limit_count, window_seconds, burst_limit, refill_rate, \
     limits, group_ms, hard_limit_factor, temp_window_seconds, temp_threshold, temp_block_seconds, \
     long_window_seconds, long_threshold, long_block_seconds, count_while_blocked, plan_tiers, endpoints, action, \
     max_delay_seconds, on_store_failure, priority, enabled, candidate_for, share";
const OVERRIDE_COLUMNS: &str = "rule_id, key, verdict, algorithm, limit_count, window_seconds, burst_limit, refill_rate, limits, \
     group_ms, hard_limit_factor, temp_window_seconds, temp_threshold, temp_block_seconds, long_window_seconds, \
     long_threshold, long_block_seconds, count_while_blocked";
const LIST_COLUMNS: &str = "list, attribute, value";

/// How the rows of a table are written, given as an array in JSON.
struct Statements {
    insert: String,
    update: String,
    delete: String,
    /// Given as an array of rows as they were read.
    delete_bad: String,
}

impl Statements {
    fn of(table: &str, columns: &str, key: &str) -> Self {
        let rows = format!("jsonb_populate_recordset(NULL::{table}, $1::jsonb) AS given");
        let with = |prefix: &str, names: &str| {
            names.split(", ").map(|name| format!("{prefix}{name}")).collect::<Vec<_>>().join(", ")
        };
        let is_same = format!("({}) = ({})", with("stored.", key), with("given.", key));
        Self {
            insert: format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM {rows}"),
            update: format!(
                "UPDATE {table} AS stored SET ({columns}) = ROW ({}) FROM {rows} WHERE {is_same}",
                with("given.", columns)
            ),
            delete: format!("DELETE FROM {table} AS stored USING {rows} WHERE {is_same}"),
            delete_bad: format!(
                "DELETE FROM {table} AS stored WHERE json_strip_nulls(to_json(stored))::text = ANY ($1)"
            ),
        }
    }
}

static RULES: LazyLock<Statements> = LazyLock::new(|| Statements::of("rate_limit_rules", RULE_COLUMNS, "id"));
static OVERRIDES: LazyLock<Statements> =
    LazyLock::new(|| Statements::of("rate_limit_overrides", OVERRIDE_COLUMNS, "rule_id, key"));
static LISTS: LazyLock<Statements> =
    LazyLock::new(|| Statements::of("rate_limit_lists", LIST_COLUMNS, LIST_COLUMNS));

/// A row to be written.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AnyRow {
    Rule(Box<RuleRow>),
    Override(Box<OverrideRow>),
    List(ListRow),
}

impl From<&Item> for AnyRow {
    fn from(item: &Item) -> Self {
        match item {
            Item::Rule(rule) => Self::Rule(Box::new(RuleRow::from(&**rule))),
            Item::Override(special) => Self::Override(Box::new(OverrideRow::from(&**special))),
            Item::Listed(listed) => Self::List(ListRow {
                list: listed.list,
                attribute: listed.attribute.clone(),
                value: listed.value.clone(),
            }),
        }
    }
}

async fn write(
    connection: &mut PgConnection,
    changes: &[Change],
    bad_rows: &[BadRow],
) -> Result<(), DatabaseError> {
    // What points to others goes before them, and comes after them.
    let kinds = [(Kind::Rule, &*RULES), (Kind::List, &*LISTS), (Kind::Override, &*OVERRIDES)];
    for (kind, statements) in kinds.into_iter().rev() {
        let bad: Vec<&str> = bad_rows.iter().filter(|row| row.kind == kind).map(|row| &*row.body).collect();
        if !bad.is_empty() {
            sqlx::query(AssertSqlSafe(&*statements.delete_bad)).bind(bad).execute(&mut *connection).await?;
        }
        run(
            connection,
            &statements.delete,
            rows_of(changes, kind, |change| match change {
                Change { before: Some(gone), after: None, .. } => Some(gone),
                _ => None,
            }),
        )
        .await?;
    }
    for (kind, statements) in kinds {
        run(
            connection,
            &statements.update,
            rows_of(changes, kind, |change| match change {
                Change { before: Some(_), after, .. } => after.as_ref(),
                _ => None,
            }),
        )
        .await?;
        run(
            connection,
            &statements.insert,
            rows_of(changes, kind, |change| match change {
                Change { before: None, after, .. } => after.as_ref(),
                _ => None,
            }),
        )
        .await?;
    }
    Ok(())
}

fn rows_of(changes: &[Change], kind: Kind, choose: impl Fn(&Change) -> Option<&Item>) -> Vec<AnyRow> {
    changes.iter().filter(|change| change.kind == kind).filter_map(choose).map(AnyRow::from).collect()
}

async fn run(connection: &mut PgConnection, statement: &str, rows: Vec<AnyRow>) -> Result<(), DatabaseError> {
    if rows.is_empty() {
        return Ok(());
    }
    // Rows of texts and numbers can always be written.
    let rows = serde_json::to_string(&rows).unwrap_or_default();
    sqlx::query(AssertSqlSafe(statement)).bind(rows).execute(connection).await?;
    Ok(())
}
