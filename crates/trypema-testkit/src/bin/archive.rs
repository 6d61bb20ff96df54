//! `cargo xtask archive VERSION`: stores the current Lua scripts, for tests of upgrades from this version.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(version) = std::env::args().nth(1) else {
        eprintln!("the name of the version is missing");
        return ExitCode::from(2);
    };
    match trypema_testkit::redis_scripts::archive(&version) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the scripts could not be written: {error}");
            ExitCode::FAILURE
        }
    }
}
