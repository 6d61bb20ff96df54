//! `trypema`: limits in front of services that you did not write.

use std::process::ExitCode;

use trypema_server::cli::Cli;

fn main() -> ExitCode {
    Cli::read().run()
}
