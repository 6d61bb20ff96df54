//! Unpacks Valkey 8 from bookworm-backports. Nothing is installed into the system, so this does not need
//! root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::missing::Missing;
use super::{servers, unpack, works};
use crate::Step;

const DIRECTORY: &str = "valkey-8";
const PROGRAM: &str = "usr/bin/valkey-server";
const VERSION: &str = "v=8.";
const SUITE: &str = "bookworm-backports";
/// The end of a release URL, after that of the mirror.
const RELEASE: &str = "/dists/bookworm/InRelease";
/// The packages: the server is a link to a program of the tools.
const PACKAGES: [&str; 2] = ["valkey-server", "valkey-tools"];
/// The working directory of apt: its own source list, package lists and packages.
const SCRATCH: &str = "valkey-8.apt";

pub(super) fn install_if_missing() -> Option<Missing> {
    if works(&servers().join(DIRECTORY).join(PROGRAM), VERSION) || works(Path::new("valkey-server"), VERSION)
    {
        return None;
    }
    println!("Valkey 8 is missing: unpacking it from {SUITE} below target/servers");
    let outcome = unpack(DIRECTORY, PROGRAM, VERSION, download_and_extract);
    let _ = fs::remove_dir_all(servers().join(SCRATCH));
    let why = outcome.err()?;
    let remedy = format!("put `valkey-server` of Valkey 8 on the PATH, for example that of {SUITE}");
    Some(Missing { program: "Valkey 8".to_owned(), remedy, why })
}

fn download_and_extract(directory: &Path) -> Step {
    let scratch = servers().join(SCRATCH);
    let failed = |error: std::io::Error| format!("preparing to download: {error}");
    for needed in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(scratch.join(needed)).map_err(failed)?;
    }
    let scratch = scratch.canonicalize().map_err(failed)?;
    fs::write(scratch.join("sources.list"), format!("deb {} {SUITE} main\n", mirror()?)).map_err(failed)?;
    crate::run(apt_get(&scratch).arg("update"))?;
    crate::run(apt_get(&scratch).current_dir(&scratch).arg("download").args(PACKAGES))?;
    for package in packages(&scratch)? {
        crate::run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(directory))?;
    }
    Ok(())
}

/// Returns an `apt-get` command with its own directories, so that the system's package lists stay
/// unchanged.
fn apt_get(scratch: &Path) -> Command {
    let mut apt_get = Command::new("apt-get");
    let settings = [
        ("Dir::Etc::SourceList", "sources.list"),
        ("Dir::Etc::SourceParts", "no-other-sources"),
        ("Dir::State::Lists", "lists"),
        ("Dir::Cache", "cache"),
    ];
    for (setting, place) in settings {
        apt_get.arg("--option").arg(format!("{setting}={}", scratch.join(place).display()));
    }
    // apt's sandbox user cannot access this directory.
    apt_get.args(["--quiet", "--option", "APT::Sandbox::User=root"]);
    apt_get
}

/// Returns the URL from which this machine gets Debian bookworm.
fn mirror() -> Result<String, String> {
    let output = Command::new("apt-get").args(["update", "--print-uris"]).output();
    let output = output.map_err(|error| format!("apt-get could not be started: {error}"))?;
    let addresses = String::from_utf8_lossy(&output.stdout);
    let mut mirrors = addresses.lines().filter_map(|line| line.split_once(RELEASE).map(|(mirror, _)| mirror));
    let mirror = mirrors.next().ok_or("this machine does not get its packages from Debian bookworm")?;
    Ok(mirror.trim_start_matches('\'').to_owned())
}

fn packages(scratch: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(scratch).map_err(|error| format!("looking for the packages: {error}"))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    Ok(paths.filter(|path| path.extension().is_some_and(|extension| extension == "deb")).collect())
}
