//! `trypema rules`.

mod hints;
mod set;
mod stored;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use trypema::rules::{RuleSet, Rules as Definition};

use self::hints::hints;
use self::set::Assignment;
use super::confirm::Confirmation;
use super::service::AdminService;
use super::{failed, print};
use crate::rules::database::{Database, Migrated};
use crate::secret::{Secret, SecretSource};

/// Work with rules
#[derive(Debug, Subcommand)]
pub(super) enum Rules {
    /// Validate rules files: exit code 0 if all are valid, 1 otherwise. Problems are reported with lines;
    /// hints are not problems
    Validate {
        /// Files in YAML
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print the JSON Schema of rules files, for editors
    Schema,
    /// Create the tables for rules in PostgreSQL, or upgrade them
    Migrate(Migrate),
    /// Replace the stored rules with those of a file: shows what changes, then applies it
    Apply {
        /// File in YAML
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        confirmation: Confirmation,
        #[command(flatten)]
        service: AdminService,
    },
    /// Change fields of a stored rule: shows what changes, then applies it
    Set {
        /// The rule's id
        #[arg(value_name = "RULE")]
        id: String,
        /// Numbers of the strategy and other fields, as in `limit=20 window=1m action=log_only`; a value is
        /// JSON or text, and an empty one removes the field
        #[arg(required = true, value_name = "FIELD=VALUE")]
        assignments: Vec<Assignment>,
        #[command(flatten)]
        confirmation: Confirmation,
        #[command(flatten)]
        service: AdminService,
    },
    /// Print the stored rules as YAML
    Export {
        /// Print the rules of this revision instead of the current one
        #[arg(long, value_name = "NUMBER")]
        revision: Option<u64>,
        #[command(flatten)]
        service: AdminService,
    },
    /// Show the history of changes, latest first
    History {
        /// Only changes of this rule or unit, or of the list `allow` or `block`
        #[arg(long, value_name = "RULE")]
        about: Option<String>,
        /// Number of changes to show
        #[arg(long, default_value_t = 20, value_name = "NUMBER")]
        limit: u32,
        #[command(flatten)]
        service: AdminService,
    },
    /// Restore the stored rules of a revision: shows what changes, then applies it
    Revert {
        /// The revision, as `trypema rules history` shows it
        #[arg(value_name = "REVISION")]
        revision: u64,
        #[command(flatten)]
        confirmation: Confirmation,
        #[command(flatten)]
        service: AdminService,
    },
    /// Replace the live rule with its candidate: shows what changes, then applies it
    Promote {
        /// The candidate's id
        #[arg(value_name = "RULE")]
        candidate: String,
        #[command(flatten)]
        confirmation: Confirmation,
        #[command(flatten)]
        service: AdminService,
    },
    /// Compare the decisions of candidates with those of their live rules, as counted by this server
    Candidates {
        #[command(flatten)]
        service: AdminService,
    },
}

/// Create the tables for rules in PostgreSQL, or adopt an existing table `rate_limit_rules` with its rows
#[derive(Debug, clap::Args)]
pub(super) struct Migrate {
    /// URL of PostgreSQL: postgres://user:password@host/database
    #[arg(long, env = "TRYPEMA_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<Secret>,
    /// File that holds the URL
    #[arg(long, env = "TRYPEMA_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
}

impl Rules {
    pub(super) fn run(self) -> ExitCode {
        let done = match self {
            Self::Validate { files } => return validate(&files),
            Self::Schema => {
                print(&Definition::schema());
                Ok(())
            }
            Self::Migrate(migrate) => return migrate.run(),
            Self::Apply { file, confirmation, service } => stored::apply(&file, confirmation, &service),
            Self::Set { id, assignments, confirmation, service } => {
                set::set(&id, &assignments, confirmation, &service)
            }
            Self::Export { revision, service } => stored::export(revision, &service),
            Self::History { about, limit, service } => stored::history(about.as_deref(), limit, &service),
            Self::Revert { revision, confirmation, service } => {
                stored::revert(revision, confirmation, &service)
            }
            Self::Promote { candidate, confirmation, service } => {
                stored::promote(&candidate, confirmation, &service)
            }
            Self::Candidates { service } => stored::candidates(&service),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                failed(error);
                ExitCode::FAILURE
            }
        }
    }
}

fn validate(files: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match RuleSet::read(file) {
            Ok(rules) => {
                print(&format!("{}: {} rules are valid\n", file.display(), rules.len()));
                hints(&rules).for_each(|hint| print(&format!("{}: hint: {hint}\n", file.display())));
            }
            Err(invalid) => {
                failed(&invalid);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Prints the migrations that ran, and the rows of an adopted table that are not in force.
fn report(migrated: &Migrated) {
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
}

impl Migrate {
    fn run(self) -> ExitCode {
        let address = match SecretSource::of(self.database_url, self.database_url_file) {
            Ok(Some(address)) => address,
            Ok(None) => return failed("database_url: set --database-url or --database-url-file"),
            Err(reason) => return failed(format_args!("database_url: {reason}")),
        };
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(error),
        };
        let migrating = async { Database::new(address, Arc::default())?.migrate().await };
        match runtime.block_on(migrating) {
            Ok(migrated) => report(&migrated),
            Err(error) if error.is_final() => return failed(error),
            Err(error) => {
                failed(error);
                return ExitCode::FAILURE;
            }
        }
        ExitCode::SUCCESS
    }
}
