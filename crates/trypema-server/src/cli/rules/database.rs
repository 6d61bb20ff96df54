//! Commands that connect to PostgreSQL themselves.

use std::io::read_to_string;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::cli::{failed, print};
use crate::rules::database::{CheckedRules, Database, DatabaseError, Migrated, check};
use crate::secret::{Secret, SecretSource};

/// The address of the database.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DatabaseArguments {
    /// URL of PostgreSQL: postgres://user:password@host/database
    #[arg(long, env = "TRYPEMA_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<Secret>,
    /// File that holds the URL
    #[arg(long, env = "TRYPEMA_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct StoredCheckArgs {
    /// Rules of a database; for files there is `trypema rules validate`
    #[arg(long, required = true)]
    database: bool,
    /// Result of `SELECT trypema_rules()`, from a file or, with `-`, from standard input: the rules as an open
    /// transaction sees them. Without it, the command reads the committed rules itself
    #[arg(value_name = "FILE")]
    input: Option<PathBuf>,
    #[command(flatten)]
    address: DatabaseArguments,
}

impl StoredCheckArgs {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let text = match &self.input {
            None => match self.address.call(async |database| database.stored_text().await) {
                Ok(text) => text,
                Err(code) => return Ok(code),
            },
            Some(file) if file.as_os_str() == "-" => {
                read_to_string(std::io::stdin()).map_err(|error| format!("standard input: {error}"))?
            }
            // Not repeated, because it contains a password.
            Some(file) if file.to_string_lossy().contains("://") => {
                return Err(
                    "the argument is a file, or - for standard input; give the address with --database-url"
                        .to_owned(),
                );
            }
            Some(file) => {
                std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?
            }
        };
        let CheckedRules { rules, revision } = check(&text).map_err(|error| error.to_string())?;
        print(&format!("revision {revision}: {rules} rules are valid\n"));
        Ok(ExitCode::SUCCESS)
    }
}

/// Creates the tables, or adopts one.
pub(super) fn migrate(arguments: DatabaseArguments) -> Result<ExitCode, String> {
    let migrated = arguments.call(async |database| database.migrate().await);
    Ok(migrated.map_or_else(|code| code, |migrated| report(&migrated)))
}

/// Prints the migrations that ran, and the rows of an adopted table that are not in force.
fn report(migrated: &Migrated) -> ExitCode {
    if let Some(adopted) = &migrated.adopted {
        print(&format!("adopted the table rate_limit_rules (rules: {})\n", adopted.rules));
        for (id, column) in &adopted.filled {
            print(&format!("rule {id}: {column} was NULL and has its default now\n"));
        }
    }
    match &*migrated.made {
        [] => print("the tables are up to date\n"),
        made => print(&format!("migrations applied: {}\n", made.join(", "))),
    }
    if !migrated.unusable.is_empty() {
        let count = migrated.unusable.len();
        print(&format!("invalid rows, not in force (see rate_limit_unusable_rules): {count}\n"));
        migrated.unusable.iter().for_each(|rule| print(&format!("  {rule}\n")));
    }
    ExitCode::SUCCESS
}

impl DatabaseArguments {
    /// Runs a call, or reports why it failed.
    fn call<T>(self, call: impl AsyncFnOnce(&Database) -> Result<T, DatabaseError>) -> Result<T, ExitCode> {
        let address = match SecretSource::of(self.database_url, self.database_url_file) {
            Ok(Some(address)) => address,
            Ok(None) => return Err(failed("database_url: set --database-url or --database-url-file")),
            Err(reason) => return Err(failed(format_args!("database_url: {reason}"))),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let called = async { call(&Database::new(address, Arc::default())?).await };
        runtime.block_on(called).map_err(|error| {
            let code = failed(&error);
            if error.is_final() { code } else { ExitCode::FAILURE }
        })
    }
}
