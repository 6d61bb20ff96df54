//! `trypema rules`.

mod database;
mod hints;
mod set;
mod stored;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use trypema::rules::{RuleSet, Rules as Definition};

use self::database::{Check, DatabaseArguments};
use self::hints::hints;
use self::set::Assignment;
use super::confirm::Confirmation;
use super::service::AdminService;
use super::{failed, print};

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
    /// Create the tables for rules in PostgreSQL, or adopt an existing table `rate_limit_rules` with its rows
    Migrate(DatabaseArguments),
    /// Validate the rules in PostgreSQL: exit code 0 if servers can put them in force, 1 if not. Problems are reported
    /// with rule and column
    Check(Check),
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

impl Rules {
    pub(super) fn run(self) -> ExitCode {
        let done = match self {
            Self::Validate { files } => return validate(&files),
            Self::Schema => {
                print(&Definition::schema());
                Ok(())
            }
            Self::Migrate(database) => return database::migrate(database),
            Self::Check(check) => return check.run(),
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
