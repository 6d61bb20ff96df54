//! The command line.

mod arguments;
mod confirm;
mod difference;
mod keys;
mod lists;
mod redis;
mod requests;
mod rules;
mod serve;
mod service;

use std::ffi::OsStr;
use std::io::Write;
use std::process::ExitCode;

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::Value;

use self::arguments::{Arguments, Given, Parsed, origins};

/// The exit code of a command that could not do its work, or whose arguments are invalid.
const FAILED: u8 = 2;

/// A rate limiting server for proxies and HTTP clients, and its command line client
#[derive(Debug, Parser)]
#[command(name = "trypema", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Try it:
  trypema serve                                  run with demonstration rules; prints commands to try
  trypema check user=ann                         check a request: exit code 0 if allowed, 1 if denied
  trypema reserve user=ann                       reserve a request; prints the text for `trypema settle`
  trypema explain user=ann endpoint=/search      show the decision of every rule
  trypema rules validate rules.yaml              validate a rules file
  trypema rules apply rules.yaml                 replace the rules in PostgreSQL; shows the changes first
  trypema rules set per-user limit=20            change one rule in PostgreSQL
  trypema lists block user=mallory               deny every request of a user
  trypema redis acl --user limiter --password-file password | redis-cli
  trypema serve --rules rules.yaml --redis-url redis://127.0.0.1 --provider hybrid
";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    #[command(flatten)]
    Requests(requests::Requests),
    /// Work with rules: validate files, and manage the rules that are stored in PostgreSQL
    #[command(subcommand)]
    Rules(rules::Rules),
    /// Work with single keys: show, reset, block, release reservations
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Work with the allow list and the block list: show, block, allow, remove
    #[command(subcommand)]
    Lists(lists::Lists),
    /// Work with Redis: print the permissions that the server's user needs
    #[command(subcommand)]
    Redis(redis::Redis),
    /// Write shell completions to standard output
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Cli {
    /// Parses the command line. An empty environment variable counts as not set, because compose files and
    /// systemd units often contain such variables.
    pub fn read() -> Self {
        let command = without_empty_variables(Self::command());
        let parsed = Arguments::new(command, std::env::args_os()).parse();
        let Parsed { matches, invalid } = parsed.unwrap_or_else(|error| error.exit());
        let mut cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        if let (Command::Serve(serve), Some(matches)) =
            (&mut cli.command, matches.subcommand_matches("serve"))
        {
            serve.given = Given { invalid, origins: origins(matches) };
        }
        cli
    }

    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Serve(serve) => return serve.run(),
            Command::Requests(requests) => return requests.run().unwrap_or_else(failed),
            Command::Redis(redis) => return redis.run().unwrap_or_else(failed),
            Command::Rules(rules) => rules.run(),
            Command::Keys(keys) => keys.run().map(|()| ExitCode::SUCCESS),
            Command::Lists(lists) => lists.run().map(|()| ExitCode::SUCCESS),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "trypema", &mut script);
                print(&String::from_utf8_lossy(&script));
                Ok(ExitCode::SUCCESS)
            }
        };
        done.unwrap_or_else(|error| {
            failed(error);
            ExitCode::FAILURE
        })
    }
}

fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let without =
        |argument: Arg| if argument.get_env().is_some_and(is_empty) { argument.env(None) } else { argument };
    command.mut_args(without).mut_subcommands(without_empty_variables)
}

/// Returns the elements of a list in a response.
fn elements(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns a text in a response.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Prints to standard output. Errors are ignored: a reader may close the pipe early.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints an error message, and returns the exit code [`FAILED`].
fn failed(message: impl std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "trypema: {message}");
    ExitCode::from(FAILED)
}
