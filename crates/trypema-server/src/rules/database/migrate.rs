//! The tables, and how they came to be.

use sqlx::ConnectOptions;
use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

use super::{Database, DatabaseError, within};

/// Every migration, in order. Once released, one is never changed: another follows it.
const MIGRATIONS: [(i64, &str, &str); 3] = [
    (1, "rules", include_str!("../../../migrations/0001_rules.sql")),
    (2, "refill_rate", include_str!("../../../migrations/0002_refill_rate.sql")),
    (3, "if_missing", include_str!("../../../migrations/0003_if_missing.sql")),
];

impl Database {
    /// Brings the tables up to date; returns the names of what was missing. Several at once wait for each other.
    ///
    /// # Errors
    ///
    /// That the database cannot be reached, or refuses.
    pub(crate) async fn migrate(&self) -> Result<Vec<&'static str>, DatabaseError> {
        // Without a bound on how long it takes: tables may be large.
        let mut connection = within(async { Ok(self.address.options()?.connect().await?) }).await?;
        let known: Vec<i64> =
            match sqlx::query_scalar("SELECT version FROM _trypema_migrations WHERE success")
                .fetch_all(&mut connection)
                .await
            {
                Ok(known) => known,
                // There is no such table yet.
                Err(sqlx::Error::Database(_)) => Vec::new(),
                Err(error) => return Err(error.into()),
            };
        migrator().run(&mut connection).await?;
        let missing = MIGRATIONS.iter().filter(|(version, ..)| !known.contains(version));
        Ok(missing.map(|(_, name, _)| *name).collect())
    }
}

fn migrator() -> Migrator {
    let migrations = MIGRATIONS.map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.into());
    migrator.dangerous_set_table_name("_trypema_migrations");
    // A later version of this program may have been here: its tables are still ours.
    migrator.set_ignore_missing(true);
    migrator
}
