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

use super::{Database, DatabaseError, DatabaseSession, Purpose, query, row, with_timeout};
use crate::rules::change::{Item, ItemKind, ItemName};

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
pub(crate) struct BadRow {
    pub(crate) kind: ItemKind,
    /// The id of the rule that the row defines or belongs to, or the name of its list or unit.
    pub(crate) name: String,
    pub(crate) reason: String,
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
        let kind = match self.kind {
            ItemKind::Rule => "rule",
            ItemKind::Override => "override of rule",
            ItemKind::List => "list",
            ItemKind::Unit => "unit",
        };
        let key = &raw(&self.body)["key"];
        match self.kind {
            ItemKind::Override => write!(f, "{kind} {:?} for {key}: {}", self.name, self.reason),
            _ => write!(f, "{kind} {:?}: {}", self.name, self.reason),
        }
    }
}

/// The reason why the stored rules cannot be put in force.
#[derive(Debug, Error)]
pub enum InvalidStoredRules {
    /// Some rows cannot be parsed.
    #[error("{0}")]
    BadRows(BadRows),
    /// The rules are invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRules),
}

/// Rows that cannot be parsed.
#[derive(Debug)]
pub struct BadRows(pub(super) Vec<BadRow>);

impl fmt::Display for BadRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().take(MAX_LISTED).map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))?;
        match self.0.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
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
            bad => Err(InvalidStoredRules::BadRows(BadRows(bad.to_vec()))),
        }
    }

    /// Returns the rule of this id, or the error if its row cannot be parsed.
    pub(crate) fn rule(&self, id: &str) -> Option<Result<&Rule, InvalidStoredRules>> {
        if let Some(rule) = self.rules.rules.iter().find(|rule| rule.id == id) {
            return Some(Ok(rule));
        }
        let bad = self.bad_rows.iter().find(|row| row.kind == ItemKind::Rule && row.name == id)?;
        Some(Err(InvalidStoredRules::BadRows(BadRows(vec![bad.clone()]))))
    }

    /// Parses what the function `trypema_rules` returned.
    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let tables: Tables<'_> = serde_json::from_str(text)?;
        let (at, set_id, change_id) = tables.version.clone();
        let version = Version { set_id, revision: revision(at), change_id };
        let mut stored = Self { version, ..Self::default() };
        for (kind, rows) in tables.by_kind() {
            rows.iter().for_each(|(at, body)| stored.add(kind, revision(*at), body.get()));
        }
        Ok(stored)
    }

    fn add(&mut self, kind: ItemKind, revision: u64, body: &str) {
        match item(kind, body) {
            Ok(item) => {
                self.revisions.extend(item.name().map(|name| (name, revision)));
                item.add_to(&mut self.rules);
            }
            Err(reason) => {
                self.bad_rows.push(BadRow::new(kind, body, reason));
            }
        }
    }
}

/// The value of the function `trypema_rules`: the rows of each table with their revisions, or `None` for an empty
/// one.
#[derive(Deserialize)]
pub(super) struct Tables<'a> {
    version: (i64, String, String),
    #[serde(borrow)]
    unit: Option<Vec<Row<'a>>>,
    #[serde(borrow)]
    rule: Option<Vec<Row<'a>>>,
    #[serde(borrow)]
    r#override: Option<Vec<Row<'a>>>,
    #[serde(borrow)]
    list: Option<Vec<Row<'a>>>,
}

/// A revision, and a row in JSON.
type Row<'a> = (i64, &'a RawValue);

impl<'a> Tables<'a> {
    pub(super) fn by_kind(&self) -> [(ItemKind, &[Row<'a>]); 4] {
        [
            (ItemKind::Unit, self.unit.as_deref().unwrap_or_default()),
            (ItemKind::Rule, self.rule.as_deref().unwrap_or_default()),
            (ItemKind::Override, self.r#override.as_deref().unwrap_or_default()),
            (ItemKind::List, self.list.as_deref().unwrap_or_default()),
        ]
    }
}

/// Parses a row.
pub(super) fn item(kind: ItemKind, body: &str) -> Result<Item, String> {
    fn read<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, String> {
        serde_json::from_str(body).map_err(|error| error.to_string())
    }
    Ok(match kind {
        ItemKind::Rule => Item::Rule(Box::new(row::rule(body)?)),
        ItemKind::Override => Item::Override(Box::new(row::override_of_key(body)?)),
        ItemKind::List => Item::ListEntry(read(body)?),
        ItemKind::Unit => Item::Unit(read(body)?),
    })
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
        let stored = StoredRules::parse(everything.try_get(0)?);
        Ok(stored.map_err(|error| sqlx::Error::Decode(error.into()))?)
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
