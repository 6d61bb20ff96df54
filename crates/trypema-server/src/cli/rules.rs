//! `trypema rules`.

mod difference;
mod hints;
mod stored;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use trypema::rules::{RuleSet, Rules as Definition};

use self::hints::hints;
use super::service::AdminService;
use super::{failed, print};
use crate::rules::Address;
use crate::rules::database::{Database, Migrated};
use crate::secret::Secret;

/// Work on rules
#[derive(Debug, Subcommand)]
pub(super) enum Rules {
    /// Say what is wrong with files of rules, with lines: exit code 0 if nothing is, 1 otherwise. Hints are no errors
    Validate {
        /// Files in YAML
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Write the JSON Schema of such files, for editors
    Schema,
    /// Create the tables in PostgreSQL that rules live in, or bring them up to date
    Migrate(Migrate),
    /// Make the rules that are stored exactly those of a file: shows what changes, then changes it
    Apply {
        /// File in YAML
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        doing: Doing,
        #[command(flatten)]
        service: AdminService,
    },
    /// Write the rules that are stored, in YAML
    Export {
        /// Those of this revision, in place of the last
        #[arg(long, value_name = "NUMBER")]
        revision: Option<u64>,
        #[command(flatten)]
        service: AdminService,
    },
    /// Say who changed what, the latest first
    History {
        /// Only what is about this rule, or about the list `allow` or `block`
        #[arg(long, value_name = "RULE")]
        about: Option<String>,
        /// How many changes
        #[arg(long, default_value_t = 20, value_name = "NUMBER")]
        limit: u32,
        #[command(flatten)]
        service: AdminService,
    },
    /// Make the rules that are stored what they were after a revision: shows what changes, then changes it
    Revert {
        /// The revision, as `trypema rules history` tells it
        #[arg(value_name = "REVISION")]
        revision: u64,
        #[command(flatten)]
        doing: Doing,
        #[command(flatten)]
        service: AdminService,
    },
    /// Make a candidate the live rule: shows what changes, then changes it
    Promote {
        /// The candidate's id
        #[arg(value_name = "RULE")]
        candidate: String,
        #[command(flatten)]
        doing: Doing,
        #[command(flatten)]
        service: AdminService,
    },
    /// Say what candidates would have decided, as far as this server has seen
    Candidates {
        #[command(flatten)]
        service: AdminService,
    },
}

/// Create the tables in PostgreSQL that rules live in, or adopt the documented table `rate_limit_rules` with its rows
#[derive(Debug, clap::Args)]
pub(super) struct Migrate {
    /// PostgreSQL: postgres://user:password@host/database
    #[arg(long, env = "TRYPEMA_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<Secret>,
    /// The same, in a file
    #[arg(long, env = "TRYPEMA_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
}

/// Whether a change is made.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Doing {
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before changing it; who is no terminal is never asked
    #[arg(long)]
    yes: bool,
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
            Self::Apply { file, doing, service } => stored::apply(&file, doing, &service),
            Self::Export { revision, service } => stored::export(revision, &service),
            Self::History { about, limit, service } => stored::history(about.as_deref(), limit, &service),
            Self::Revert { revision, doing, service } => stored::revert(revision, doing, &service),
            Self::Promote { candidate, doing, service } => stored::promote(&candidate, doing, &service),
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

/// Says what was migrated, and which rows of an adopted table are not in force.
fn report(migrated: &Migrated) {
    if let Some(adopted) = &migrated.adopted {
        print(&format!("adopted the table rate_limit_rules (rules: {})\n", adopted.rules));
        for (id, column) in &adopted.filled {
            print(&format!("rule {id}: {column} was NULL and has its default now\n"));
        }
    }
    match &*migrated.made {
        [] => print("the tables are up to date\n"),
        made => print(&format!("the tables are up to date now: {}\n", made.join(", "))),
    }
    if !migrated.unusable.is_empty() {
        let count = migrated.unusable.len();
        print(&format!("rows that cannot be used (see rate_limit_unusable_rules), not in force: {count}\n"));
        migrated.unusable.iter().for_each(|rule| print(&format!("  {rule}\n")));
    }
}

impl Migrate {
    fn run(self) -> ExitCode {
        let address = match (self.database_url, self.database_url_file) {
            (Some(url), None) => Address::Given(url),
            (None, Some(file)) => Address::InFile(file),
            (Some(_), Some(_)) => return failed("database_url: is given twice: itself and as a file"),
            (None, None) => {
                return failed("database_url: is missing: which PostgreSQL is to have the rules?");
            }
        };
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(error),
        };
        let migrating = async { Database::new(address)?.migrate().await };
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
