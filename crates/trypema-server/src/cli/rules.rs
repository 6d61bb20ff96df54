//! `trypema rules`.

mod database;
mod hints;
mod set;
mod stored;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use http::Method;
use serde_json::json;
use trypema::rules::{RuleSet, Rules as Definition};

use self::database::{DatabaseArguments, StoredCheckArgs};
use self::hints::hints;
use self::set::Assignment;
use super::confirm::ChangeArgs;
use super::service::{AdminService, percent_encode};
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
    Check(StoredCheckArgs),
    /// Replace the stored rules with those of a file: shows what changes, then applies it
    Apply {
        /// File in YAML
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        change: ChangeArgs,
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
        change: ChangeArgs,
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
        change: ChangeArgs,
    },
    /// Replace the live rule with its candidate: shows what changes, then applies it
    Promote {
        /// The candidate's id
        #[arg(value_name = "RULE")]
        candidate: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Compare the decisions of candidates with those of their live rules, as counted by this server
    Candidates {
        #[command(flatten)]
        service: AdminService,
    },
}

impl Rules {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        match self {
            Self::Validate { files } => return Ok(validate(&files)),
            Self::Schema => print(&Definition::schema()),
            Self::Migrate(database) => return database::migrate(database),
            Self::Check(check) => return check.run(),
            Self::Apply { file, change } => stored::apply(&file, &change)?,
            Self::Set { id, assignments, change } => set::set(&id, &assignments, &change)?,
            Self::Export { revision, service } => stored::export(revision, &service)?,
            Self::History { about, limit, service } => stored::history(about.as_deref(), limit, &service)?,
            Self::Revert { revision, change } => {
                change.make(&Method::POST, "/v1/ruleset/revert", &json!({"to": revision}))?;
            }
            Self::Promote { candidate, change } => {
                let path = format!("/v1/rules/{}/promote", percent_encode(&candidate));
                change.make(&Method::POST, &path, &json!({}))?;
            }
            Self::Candidates { service } => stored::candidates(&service)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn validate(files: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match RuleSet::read(file) {
            Ok(rules) => {
                print(&format!("{}: {} rules are valid\n", file.display(), rules.len()));
                hints(&rules).iter().for_each(|hint| print(&format!("{}: hint: {hint}\n", file.display())));
            }
            Err(invalid) => {
                failed(&invalid);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
