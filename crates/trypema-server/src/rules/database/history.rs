//! The history of changes, and the rules of an earlier revision.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::postgres::PgRow;
use thiserror::Error;
use trypema::rules::Rules;

use super::row::item;
use super::stored::{raw, revision};
use super::{Database, DatabaseError, Purpose, Snapshot, query, with_timeout};
use crate::rules::change::{Item, ItemKind};

/// One change of one item.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HistoryEntry {
    /// The position in the history; later entries have larger ones.
    pub(crate) id: u64,
    /// The revision of the change. All changes of one transaction share a revision.
    pub(crate) revision: u64,
    /// The time of the change, for example `2026-11-15T20:04:34.866155+00:00`.
    pub(crate) changed_at: String,
    /// The author: the name of a token, or a role of the database if the change was made by hand.
    pub(crate) changed_by: String,
    /// The kind of the item.
    pub(crate) kind: ItemKind,
    /// The name of the item: the name of a unit; the id of a rule; the rule and the key of an override; or
    /// the list, the attribute and the value of an entry.
    pub(crate) name: String,
    /// The item before the change; `null` if there was none.
    pub(crate) before: Option<Item>,
    /// The item after the change; `null` if it was removed.
    pub(crate) after: Option<Item>,
}

/// The part of the history to return, the latest first.
#[derive(Debug, Clone)]
pub(crate) struct Page<'a> {
    /// Only changes of this rule or unit, or of the list `allow` or `block`.
    pub(crate) about: Option<&'a str>,
    /// Only changes before this position.
    pub(crate) before: Option<u64>,
    pub(crate) limit: u32,
}

/// The reason why a revision cannot be reconstructed.
#[derive(Debug, Error)]
pub(crate) enum NoSuchRevision {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("there is no revision {requested}: the last one is {last}")]
    Future { requested: u64, last: u64 },
    #[error("revision {0} cannot be reconstructed: later history was deleted or is malformed")]
    Forgotten(u64),
}

const HISTORY: &str = "
    SELECT h.id, revision, trim('\\\"' FROM to_json(changed_at)::text), changed_by, kind, name, before::text, after::text
    FROM rate_limit_history h JOIN rate_limit_revisions USING (revision)
    WHERE ($1::text IS NULL OR split_part(name, ' ', 1) = $1) AND ($2::bigint IS NULL OR h.id < $2)
    ORDER BY h.id DESC LIMIT $3";

/// For each item that changed after a revision, its first change: `before` is the state in that revision.
const SINCE: &str = "
    SELECT DISTINCT ON (kind, name) kind, before::text, after::text FROM rate_limit_history
    WHERE revision > $1 ORDER BY kind, name, id";

impl Database {
    /// Returns a part of the history.
    pub(crate) async fn history(&self, page: Page<'_>) -> Result<Vec<HistoryEntry>, DatabaseError> {
        let mut session = self.session(Purpose::Reading).await?;
        let rows = with_timeout(async {
            let asked = query(HISTORY)
                .bind(page.about)
                .bind(page.before.map(|before| i64::try_from(before).unwrap_or(i64::MAX)))
                .bind(i64::from(page.limit));
            Ok(asked.fetch_all(&mut session.connection).await?)
        });
        let rows = rows.await?;
        let worker = session.purpose.worker();
        session.keep_idle();
        // Each entry may hold two large rules.
        let parsing = self.workers().run(worker, move || rows.iter().map(entry).collect());
        parsing.await.unwrap_or_else(|error| Err(error.into()))
    }
}

fn entry(row: &PgRow) -> Result<HistoryEntry, DatabaseError> {
    let kind = kind_of(row.try_get(4)?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let parse_item = |body: Option<&str>| {
        let body = body?;
        Some(item(kind, body).unwrap_or_else(|_| Item::Unreadable(raw(body))))
    };
    let (before, after) = (parse_item(row.try_get(6)?), parse_item(row.try_get(7)?));
    // Use the name that changes show, not the database's.
    let name = after.as_ref().or(before.as_ref()).and_then(Item::name);
    let name = name.map_or_else(|| row.try_get(5), |item| Ok(item.name))?;
    Ok(HistoryEntry {
        id: revision(row.try_get(0)?),
        revision: revision(row.try_get(1)?),
        changed_at: row.try_get(2)?,
        changed_by: row.try_get(3)?,
        kind,
        name,
        before,
        after,
    })
}

impl Snapshot<'_> {
    /// Returns the rules that were stored after revision `requested`.
    pub(crate) async fn at(&mut self, requested: u64) -> Result<Rules, NoSuchRevision> {
        let last = self.stored().version.revision;
        if requested > last {
            return Err(NoSuchRevision::Future { requested, last });
        }
        let connection = self.connection();
        let after = i64::try_from(requested).unwrap_or(i64::MAX);
        let (known, rows) = with_timeout(async {
            let known = query("SELECT count(*) FROM rate_limit_revisions WHERE revision > $1").bind(after);
            let known: i64 = known.fetch_one(&mut *connection).await?.try_get(0)?;
            Ok((known, query(SINCE).bind(after).fetch_all(connection).await?))
        })
        .await?;
        if revision(known) != last - requested {
            return Err(NoSuchRevision::Forgotten(requested));
        }
        let stored = Arc::clone(self.stored());
        let understanding = self.session().work(move || before(&stored.rules, &rows));
        let stored = understanding.await.unwrap_or_else(|error| Err(error.into()))?;
        stored.ok_or(NoSuchRevision::Forgotten(requested))
    }
}

fn kind_of(name: &str) -> Result<ItemKind, serde::de::value::Error> {
    ItemKind::deserialize(name.into_deserializer())
}

/// Returns the rules before the changes of `rows`, or `None` if a row cannot be parsed.
fn before(rules: &Rules, rows: &[PgRow]) -> Result<Option<Rules>, DatabaseError> {
    let mut items = Item::all(rules);
    for row in rows {
        let Ok(kind) = kind_of(row.try_get(0)?) else { return Ok(None) };
        let stored = |body: Option<&str>| body.map(|body| item(kind, body)).transpose();
        let (Ok(before), after) = (stored(row.try_get(1)?), stored(row.try_get(2)?)) else { return Ok(None) };
        // A name does not change, and one of the two is there.
        if let Some(name) = after.ok().flatten().as_ref().or(before.as_ref()).and_then(Item::name) {
            items.remove(&name);
        }
        items.extend(before.and_then(|before| Some((before.name()?, before))));
    }
    Ok(Some(Item::into_rules(items.into_values())))
}
