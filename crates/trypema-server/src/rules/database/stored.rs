//! The stored rules, as one consistent snapshot.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use thiserror::Error;
use trypema::rules::{InvalidRules, Rule, RuleSet, Rules};

use super::migrate::SCHEMA;
use super::{Database, DatabaseError, DatabaseSession, Purpose, query, row, with_timeout};
use crate::rules::change::{ItemKind, ItemName};

/// The number of invalid rows that an error lists: nobody repairs more at once.
const MAX_LISTED: usize = 100;

/// Reads everything as one value: a consistent snapshot, and decoding thousands of rows would block a thread that
/// decides.
const EVERYTHING: &str = "SELECT trypema_rules()::text";

const VERSION: &str = "SELECT revision, set_id::text, change_id::text FROM rate_limit_state";

/// The version of a rule set: its database, and its last change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Version {
    /// The id of the database, because each database counts its own revisions.
    pub(crate) set_id: String,
    pub(crate) revision: u64,
    /// Distinguishes a revision from one of the same number that was lost by restoring a backup or by a
    /// failover.
    pub(crate) change_id: String,
}

/// The stored rules.
#[derive(Debug, Default)]
pub(crate) struct StoredRules {
    pub(crate) version: Version,
    pub(crate) rules: Rules,
    /// The revision of the last change of each item.
    pub(crate) revisions: BTreeMap<ItemName, u64>,
    /// Rows that cannot be parsed, because someone bypassed the constraints.
    pub(crate) bad_rows: Vec<BadRow>,
}

/// A row that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    pub(super) kind: ItemKind,
    /// The id of the rule that the row defines or belongs to, or the name of its list or unit.
    pub(super) name: String,
    reason: String,
    /// The row in JSON, as it was read.
    pub(super) body: String,
}

impl BadRow {
    pub(super) fn new(kind: ItemKind, body: &str, reason: String) -> Self {
        Self { kind, name: name_of(kind, body), reason, body: body.to_owned() }
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, reason, .. } = self;
        match kind {
            ItemKind::Rule => write!(f, "rule {name:?}: {reason}"),
            ItemKind::Override => {
                write!(f, "override of rule {name:?} for {}: {reason}", raw(&self.body)["key"])
            }
            ItemKind::List => write!(f, "list {name:?}: {reason}"),
            ItemKind::Unit => write!(f, "unit {name:?}: {reason}"),
        }
    }
}

/// The reason why the stored rules cannot be put in force.
#[derive(Debug, Error)]
pub enum InvalidStoredRules {
    /// Some rows cannot be parsed.
    #[error("{}", listed(.0))]
    BadRows(Vec<BadRow>),
    /// The rules are invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRules),
}

fn listed(rows: &[BadRow]) -> String {
    let mut lines: Vec<String> = rows.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if let more @ 1.. = rows.len().saturating_sub(MAX_LISTED) {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

impl StoredRules {
    /// Validates and compiles the rules. This may take long, so call it on a worker.
    pub(crate) fn compile(&self) -> Result<RuleSet, InvalidStoredRules> {
        self.valid_rules()?;
        Ok(RuleSet::compile(&self.rules)?)
    }

    /// Returns the rules if every row could be parsed.
    pub(crate) fn valid_rules(&self) -> Result<&Rules, InvalidStoredRules> {
        match &self.bad_rows[..] {
            [] => Ok(&self.rules),
            bad => Err(InvalidStoredRules::BadRows(bad.to_vec())),
        }
    }

    /// Returns the rule of this id, or the error if its row cannot be parsed.
    pub(crate) fn rule(&self, id: &str) -> Option<Result<&Rule, InvalidStoredRules>> {
        if let Some(rule) = self.rules.rules.iter().find(|rule| rule.id == id) {
            return Some(Ok(rule));
        }
        let bad = self.bad_rows.iter().find(|row| row.kind == ItemKind::Rule && row.name == id)?;
        Some(Err(InvalidStoredRules::BadRows(vec![bad.clone()])))
    }

    /// Parses the rows of the tables.
    pub(super) fn of(tables: &StoredTables<'_>) -> Self {
        let (at, set_id, change_id) = tables.version.clone();
        let version = Version { set_id, revision: revision(at), change_id };
        let mut stored = Self { version, ..Self::default() };
        for (kind, at, body) in tables.rows() {
            match row::item(kind, body) {
                Ok(item) => {
                    stored.revisions.extend(item.name().map(|name| (name, revision(at))));
                    item.add_to(&mut stored.rules);
                }
                Err(reason) => stored.bad_rows.push(BadRow::new(kind, body, reason)),
            }
        }
        stored
    }
}

/// The value of the function `trypema_rules`.
#[derive(Deserialize)]
pub(super) struct StoredTables<'a> {
    /// The number of the last migration.
    schema: i64,
    version: (i64, String, String),
    /// The rows with their revisions; `None` for an empty table.
    #[serde(borrow)]
    tables: BTreeMap<ItemKind, Option<Vec<(i64, &'a RawValue)>>>,
}

impl StoredTables<'_> {
    /// Returns the kind, the revision and the JSON of each row.
    pub(super) fn rows(&self) -> impl Iterator<Item = (ItemKind, i64, &str)> {
        let of_kind = |(kind, rows): (&ItemKind, _)| {
            let kind = *kind;
            Option::iter(rows).flatten().map(move |(at, body): &(i64, &RawValue)| (kind, *at, body.get()))
        };
        self.tables.iter().flat_map(of_kind)
    }
}

/// Returns a name for a row that cannot be parsed.
fn name_of(kind: ItemKind, body: &str) -> String {
    let column = match kind {
        ItemKind::Rule => "id",
        ItemKind::Override => "rule_id",
        ItemKind::List => "list",
        ItemKind::Unit => "name",
    };
    raw(body)[column].as_str().unwrap_or("(without a name)").to_owned()
}

/// Returns the columns of a row that cannot be parsed, without those that are not JSON to this program
/// either, such as a number out of range.
pub(super) fn raw(body: &str) -> Value {
    let columns: BTreeMap<String, &RawValue> = serde_json::from_str(body).unwrap_or_default();
    let column = |(name, value): (String, &RawValue)| {
        serde_json::from_str::<Value>(value.get()).ok().map(|value| (name, value))
    };
    columns.into_iter().filter_map(column).collect()
}

impl Database {
    /// Reads the stored rules.
    pub(crate) async fn read(&self) -> Result<StoredRules, DatabaseError> {
        let mut session = self.session(Purpose::Reading).await?;
        let stored = with_timeout(read(&mut session)).await?;
        session.keep_idle();
        Ok(stored)
    }

    /// Reads the stored rules if their version differs from `known`.
    pub(crate) async fn read_unless(
        &self,
        known: Option<&Version>,
    ) -> Result<Option<StoredRules>, DatabaseError> {
        let mut session = self.session(Purpose::Watching).await?;
        let stored = with_timeout(async {
            if known.is_some() && known == Some(&version(&mut session.connection).await?) {
                return Ok(None);
            }
            read(&mut session).await.map(Some)
        })
        .await?;
        session.keep_idle();
        Ok(stored)
    }

    /// Returns the version of the stored rules.
    pub(crate) async fn version(&self) -> Result<Version, DatabaseError> {
        let mut session = self.session(Purpose::Watching).await?;
        let stored = with_timeout(version(&mut session.connection)).await?;
        session.keep_idle();
        Ok(stored)
    }
}

async fn version(connection: &mut PgConnection) -> Result<Version, DatabaseError> {
    let row = query(VERSION).fetch_one(connection).await.map_err(not_migrated)?;
    Ok(Version { set_id: row.try_get(1)?, revision: revision(row.try_get(0)?), change_id: row.try_get(2)? })
}

pub(super) async fn read(session: &mut DatabaseSession<'_>) -> Result<StoredRules, DatabaseError> {
    let everything = everything(&mut session.connection).await?;
    let stored = session.work(move || {
        let tables: StoredTables<'_> = serde_json::from_str(everything.try_get(0)?)
            .map_err(|error| sqlx::Error::Decode(error.into()))?;
        // A table or a function is of an earlier version of this program.
        if tables.schema < SCHEMA { Err(DatabaseError::NotMigrated) } else { Ok(StoredRules::of(&tables)) }
    });
    stored.await.unwrap_or_else(|error| Err(error.into()))
}

/// Returns everything that is stored, as this transaction sees it: one text.
pub(super) async fn everything(connection: &mut PgConnection) -> Result<PgRow, DatabaseError> {
    query(EVERYTHING).fetch_one(connection).await.map_err(not_migrated)
}

/// Converts a revision of the database; a negative one becomes 0.
pub(super) fn revision(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

/// Distinguishes missing tables, columns or functions from other errors.
fn not_migrated(error: sqlx::Error) -> DatabaseError {
    let is_missing = |code: &str| matches!(code, "42P01" | "42703" | "42883");
    match error.as_database_error().and_then(|error| error.code()) {
        Some(code) if is_missing(&code) => DatabaseError::NotMigrated,
        _ => DatabaseError::Failed(error),
    }
}
