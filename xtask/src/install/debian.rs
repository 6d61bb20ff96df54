//! Installs Debian packages.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::Step;

/// The script that is run before a package starts its service. Exit code 101 forbids it.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";
const START_NOTHING: &str = "#!/bin/sh\nexit 101\n";

/// Installs the packages without starting their services, so that nothing listens afterwards. If one of them
/// cannot be installed, the others are.
pub(super) fn install(packages: &BTreeSet<&str>) -> Step {
    if !super::succeeds(Command::new("apt-get").arg("--version")) {
        return Err("there is no apt-get".to_owned());
    }
    if !is_root() {
        return Err("only root may".to_owned());
    }
    let _policy = ServicePolicy::start_nothing()?;
    let install = |packages: &[&str]| apt_get(&[&["install"], packages].concat());
    let all: Vec<&str> = packages.iter().copied().collect();
    // The package lists may be missing, as in a fresh container, or outdated.
    if install(&all).is_ok() || apt_get(&["update"]).and_then(|()| install(&all)).is_ok() {
        return Ok(());
    }
    let failures: Vec<String> = all.iter().filter_map(|package| install(&[package]).err()).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

fn apt_get(arguments: &[&str]) -> Step {
    let mut apt_get = Command::new("apt-get");
    apt_get.args(["--yes", "--quiet", "--option", "APT::Install-Recommends=false"]).args(arguments);
    crate::run(apt_get.env("DEBIAN_FRONTEND", "noninteractive"))
}

fn is_root() -> bool {
    let output = Command::new("id").arg("--user").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Prevents packages from starting services, until it is dropped.
struct ServicePolicy {
    /// Whether this process wrote the policy. An existing policy of the machine stays.
    is_ours: bool,
}

impl ServicePolicy {
    fn start_nothing() -> Result<Self, String> {
        if Path::new(SERVICE_POLICY).exists() {
            return Ok(Self { is_ours: false });
        }
        let failed = |error: std::io::Error| format!("writing {SERVICE_POLICY}: {error}");
        fs::write(SERVICE_POLICY, START_NOTHING).map_err(failed)?;
        fs::set_permissions(SERVICE_POLICY, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        Ok(Self { is_ours: true })
    }
}

impl Drop for ServicePolicy {
    fn drop(&mut self) {
        if self.is_ours && fs::remove_file(SERVICE_POLICY).is_err() {
            eprintln!("{SERVICE_POLICY} could not be removed; it keeps services from starting");
        }
    }
}
