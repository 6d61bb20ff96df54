//! Creates the tables.

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row, SqlSafeStr};

use super::adopt::{self, Adopted, UnusableRule};
use super::{Database, DatabaseError, options, query, with_timeout};

/// Every migration, in order. A released migration is never changed, not even its comments, because its
/// checksum is stored in the database. A change is a new migration.
const MIGRATIONS: [(i64, &str, &str); 1] = [(1, "rules", include_str!("../../../migrations/0001_rules.sql"))];

/// The number of the last migration. The function `trypema_rules` returns that of the tables.
pub(super) const SCHEMA: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// The table of the migrations that have run.
const TABLE: &str = "_trypema_migrations";

/// The advisory lock that serialises migrations of several programs. The number is arbitrary: `trypema` in
/// ASCII.
const LOCK: i64 = 0x0074_7279_7065_6d61;

/// Limits how long a statement waits for a lock, unless the address or the role sets `lock_timeout`. A change
/// by a server takes less time than this.
const LOCK_TIMEOUT: &str =
    "SELECT set_config('lock_timeout', '1min', true) WHERE current_setting('lock_timeout') = '0'";

/// The result of a migration.
#[derive(Debug)]
pub(crate) struct Migrated {
    /// The names of the migrations that ran.
    pub(crate) made: Vec<&'static str>,
    /// The table that was adopted, if there was one.
    pub(crate) adopted: Option<Adopted>,
    /// Rows of an adopted table that are not in force, from this run or an earlier one.
    pub(crate) unusable: Vec<UnusableRule>,
}

impl Database {
    /// Creates the tables in one transaction: everything is done, or nothing. Concurrent migrations wait
    /// for each other, and changes in progress of a table that is adopted are finished first.
    ///
    /// # Errors
    ///
    /// The database is unreachable, rejects a statement, or has an unrelated table of the same name. Another
    /// session holds a lock on a table for longer than `lock_timeout`.
    pub(crate) async fn migrate(&self) -> Result<Migrated, DatabaseError> {
        // Only connecting has a timeout: migrating large tables may take long.
        let mut connection = with_timeout(async { Ok(options(&self.address)?.connect().await?) }).await?;
        let mut transaction = connection.begin().await?;
        let migrated = migrate(&mut transaction).await?;
        transaction.commit().await?;
        Ok(migrated)
    }
}

async fn migrate(connection: &mut PgConnection) -> Result<Migrated, DatabaseError> {
    query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *connection).await?;
    query(LOCK_TIMEOUT).execute(&mut *connection).await?;
    let known = known_versions(connection).await?;
    let (first, _, first_sql) = MIGRATIONS[0];
    let adopting =
        if known.contains(&first) { None } else { adopt::migration(connection, first_sql).await? };
    let has_to_adopt = adopting.is_some();
    migrator(adopting).run(&mut *connection).await?;
    let adopted = if has_to_adopt { Some(adopt::bring_rows(connection).await?) } else { None };
    let missing = MIGRATIONS.iter().filter(|(version, ..)| !known.contains(version));
    let made = missing.map(|(_, name, _)| *name).collect();
    Ok(Migrated { made, adopted, unusable: adopt::unusable(connection).await? })
}

async fn known_versions(connection: &mut PgConnection) -> Result<Vec<i64>, DatabaseError> {
    let is_there = query("SELECT to_regclass($1) IS NOT NULL").bind(TABLE);
    if !is_there.fetch_one(&mut *connection).await?.try_get(0)? {
        return Ok(Vec::new());
    }
    let known = format!("SELECT version FROM {TABLE} WHERE success");
    let rows = query(AssertSqlSafe(known)).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Creates the migrator. `first` replaces the SQL of the first migration, but is recorded with the original
/// checksum.
fn migrator(first: Option<String>) -> Migrator {
    let migrations = MIGRATIONS.map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrations = Vec::from(migrations);
    if let (Some(sql), Some(migration)) = (first, migrations.first_mut()) {
        migration.sql = AssertSqlSafe(sql).into_sql_str();
    }
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.dangerous_set_table_name(TABLE);
    // A later version of this program may have added migrations. Its tables still work for this version.
    migrator.set_ignore_missing(true);
    // The transaction holds the advisory lock already; sqlx would release its own lock before the commit.
    migrator.set_locking(false);
    migrator
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a server could not tell these tables from older ones.
    #[test]
    fn the_tables_say_which_migration_was_the_last() {
        let of_function =
            MIGRATIONS.iter().rev().find(|(_, _, sql)| sql.contains("FUNCTION trypema_rules()"));
        let (version, _, sql) = of_function.unwrap();
        assert!(*version == SCHEMA && sql.contains(&format!("'schema', {SCHEMA},")));
    }
}
