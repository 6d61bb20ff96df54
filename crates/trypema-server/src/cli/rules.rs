//! `trypema rules`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use trypema::rules::{RuleSet, Rules as Definition};

use super::{failed, print};

/// Work on files of rules
#[derive(Debug, Subcommand)]
pub(super) enum Rules {
    /// Say what is wrong with files of rules, with lines: exit code 0 if nothing is, 1 otherwise
    Validate {
        /// Files in YAML
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Write the JSON Schema of such files, for editors
    Schema,
}

impl Rules {
    pub(super) fn run(self) -> ExitCode {
        match self {
            Self::Validate { files } => validate(&files),
            Self::Schema => {
                print(&Definition::schema());
                ExitCode::SUCCESS
            }
        }
    }
}

fn validate(files: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match RuleSet::read(file) {
            Ok(rules) => print(&format!("{}: {} rules are valid\n", file.display(), rules.len())),
            Err(invalid) => {
                failed(&invalid);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
