//! Checks whether an existing table `rate_limit_rules` has the documented shape.

use sqlx::{PgConnection, Row};

use super::super::{DatabaseError, query};

/// The columns of the documented table, with the types that can be converted without loss.
const DOCUMENTED: [(&str, Presence, &[&str]); 16] = [
    ("id", Presence::Needed, &["uuid", "text", "character varying", "bigint", "integer", "smallint"]),
    ("name", Presence::Needed, TEXTS),
    ("key_pattern", Presence::Needed, TEXTS),
    ("scope", Presence::Needed, TEXTS),
    ("algorithm", Presence::Needed, TEXTS),
    ("limit_count", Presence::Needed, NUMBERS),
    ("window_seconds", Presence::Needed, NUMBERS),
    ("burst_limit", Presence::Optional, NUMBERS),
    ("refill_rate", Presence::Optional, NUMBERS),
    ("plan_tiers", Presence::Optional, TEXT_LISTS),
    ("endpoints", Presence::Optional, TEXT_LISTS),
    ("action", Presence::Optional, TEXTS),
    ("priority", Presence::Optional, &["integer", "bigint", "smallint"]),
    ("enabled", Presence::Optional, &["boolean"]),
    ("created_at", Presence::Optional, TIMES),
    ("updated_at", Presence::Optional, TIMES),
];
const TEXTS: &[&str] = &["character varying", "text", AN_ENUM];
const NUMBERS: &[&str] = &["integer", "bigint", "smallint", "numeric", "double precision", "real"];
const TEXT_LISTS: &[&str] = &["character varying[]", "text[]"];
/// Timestamps without a time zone are read as UTC.
const TIMES: &[&str] = &["timestamp with time zone", "timestamp without time zone"];
const AN_ENUM: &str = "an enum";

/// Whether a table must have a column to be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Needed,
    Optional,
}

/// Columns that `trypema rules migrate` adds. An existing column of such a name has another meaning.
const ADDED: [&str; 3] = ["candidate_for", "extra", "revision"];

/// Locks the table, within `lock_timeout`.
const LOCK_TABLE: &str = include_str!("../../../../migrations/adopt/lock.sql");

const IS_THERE: &str = "SELECT to_regclass(quote_ident(current_schema()) || '.rate_limit_rules') IS NOT NULL";

/// A query for the reasons why the table cannot be altered in place, whatever its columns are.
const OBSTACLES: &str = "
    SELECT array_remove(ARRAY[
        CASE WHEN relkind <> 'r' THEN 'it is not an ordinary table' END,
        CASE WHEN relispartition OR EXISTS (SELECT FROM pg_inherits WHERE oid IN (inhrelid, inhparent))
             THEN 'it is part of an inheritance tree' END,
        CASE WHEN relforcerowsecurity THEN 'row security is forced on it: some rows may be hidden' END,
        (SELECT 'the foreign key ' || conname || ' of ' || conrelid::regclass || ' refers to it' FROM pg_constraint
         WHERE contype = 'f' AND confrelid = pg_class.oid LIMIT 1),
        (SELECT 'its primary key is not its id: ' || pg_get_constraintdef(oid) FROM pg_constraint
         WHERE contype = 'p' AND conrelid = pg_class.oid AND pg_get_constraintdef(oid) <> 'PRIMARY KEY (id)')
    ], NULL)
    FROM pg_class WHERE oid = 'rate_limit_rules'::regclass";

const COLUMNS: &str = "
    SELECT attname::text, CASE WHEN typtype = 'e' THEN 'an enum' ELSE format_type(atttypid, NULL) END,
           attnotnull AND NOT atthasdef AND attidentity = '' AND attgenerated = ''
    FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
    WHERE attrelid = 'rate_limit_rules'::regclass AND attnum > 0 AND NOT attisdropped";

struct Column {
    name: String,
    type_name: String,
    /// Whether an insert must provide a value.
    has_to_be_given: bool,
}

/// Whether there is a table to adopt. Locks the table until the transaction ends.
///
/// # Errors
///
/// Every reason why the table cannot be adopted.
pub(super) async fn is_there_to_adopt(connection: &mut PgConnection) -> Result<bool, DatabaseError> {
    if !query(IS_THERE).fetch_one(&mut *connection).await?.try_get(0)? {
        return Ok(false);
    }
    obstacles(connection).await?;
    sqlx::raw_sql(LOCK_TABLE).execute(&mut *connection).await?;
    // Another session may have changed the table before the lock.
    obstacles(connection).await?;
    Ok(true)
}

async fn obstacles(connection: &mut PgConnection) -> Result<(), DatabaseError> {
    let mut obstacles: Vec<String> = query(OBSTACLES).fetch_one(&mut *connection).await?.try_get(0)?;
    obstacles.extend(differences(&columns(connection).await?));
    if obstacles.is_empty() { Ok(()) } else { Err(DatabaseError::UnrelatedTable(obstacles.join("; "))) }
}

async fn columns(connection: &mut PgConnection) -> Result<Vec<Column>, DatabaseError> {
    let rows = query(COLUMNS).fetch_all(connection).await?;
    let column = |row: &sqlx::postgres::PgRow| {
        Ok(Column { name: row.try_get(0)?, type_name: row.try_get(1)?, has_to_be_given: row.try_get(2)? })
    };
    rows.iter().map(column).collect()
}

/// Returns the differences between the columns and the documented ones.
fn differences(columns: &[Column]) -> Vec<String> {
    let documented = DOCUMENTED.iter().filter_map(|(name, presence, types)| {
        match columns.iter().find(|column| column.name == *name) {
            None => (*presence == Presence::Needed).then(|| format!("the column {name} is missing")),
            Some(column) if types.contains(&&*column.type_name) => None,
            Some(column) => {
                let needed = types.join(", ");
                Some(format!("the column {name} is {}: need one of {needed}", column.type_name))
            }
        }
    });
    let is_documented = |column: &&Column| DOCUMENTED.iter().any(|(name, ..)| column.name == *name);
    let others = columns.iter().filter(|column| !is_documented(column)).filter_map(|column| {
        let name = &column.name;
        if ADDED.contains(&&**name) {
            return Some(format!("the column {name} already exists; rename it"));
        }
        column.has_to_be_given.then(|| format!("the column {name} is NOT NULL and has no default"))
    });
    documented.chain(others).collect()
}
