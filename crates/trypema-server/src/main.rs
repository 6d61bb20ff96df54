//! `trypema`: a rate limiting server, and the command line that operates it.

use std::process::ExitCode;

use trypema_server::cli::Cli;

fn main() -> ExitCode {
    Cli::read().run()
}
