//! `trypema rules`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use trypema::rules::{RuleSet, Rules as Definition};

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
            Self::Schema => match std::io::stdout().write_all(Definition::schema().as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => super::failed(error),
            },
        }
    }
}

fn validate(files: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match RuleSet::read(file) {
            Ok(rules) => println!("{}: {} rules are valid", file.display(), rules.len()),
            Err(invalid) => {
                eprintln!("{invalid}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
