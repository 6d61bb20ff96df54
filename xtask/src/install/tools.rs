//! Programs from Debian packages: the servers that store counters and rules, and the proxies and tools that
//! tests of `deploy/` use.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::For;
use super::missing::{APT, Missing};
use super::{debian, succeeds};

/// The directory of nginx and HAProxy on Debian, which is only on root's `PATH`.
const SYSTEM_PROGRAMS: &str = "/usr/sbin";
/// The directory of PostgreSQL on Debian, with a subdirectory for each version.
const POSTGRESQL_VERSIONS: &str = "/usr/lib/postgresql";

/// A program, the arguments that show whether it runs, and its package.
#[derive(Debug, Clone, Copy)]
struct Tool {
    program: &'static str,
    question: &'static [&'static str],
    package: &'static str,
}

const REDIS: Tool = Tool { program: "redis-server", question: &["--version"], package: "redis-server" };

/// Only needed while something is installed from PyPI.
const PIP: Tool = Tool { program: "python3", question: &["-m", "pip", "--version"], package: "python3-pip" };

const OTHERS: [Tool; 11] = [
    Tool { program: "postgres", question: &["--version"], package: "postgresql" },
    Tool { program: "initdb", question: &["--version"], package: "postgresql" },
    Tool { program: "psql", question: &["--version"], package: "postgresql" },
    Tool { program: "nginx", question: &["-v"], package: "nginx-light" },
    Tool { program: "caddy", question: &["version"], package: "caddy" },
    Tool { program: "haproxy", question: &["-v"], package: "haproxy" },
    Tool { program: "prometheus", question: &["--version"], package: "prometheus" },
    Tool { program: "promtool", question: &["--version"], package: "prometheus" },
    Tool { program: "systemd-analyze", question: &["--version"], package: "systemd" },
    Tool { program: "openssl", question: &["version"], package: "openssl" },
    Tool { program: "git", question: &["--version"], package: "git" },
];

/// Installs the missing programs, and returns those that are still missing.
pub(super) fn install_missing(tests: For, needs_pip: bool) -> Vec<Missing> {
    let mut needed = vec![REDIS];
    if needs_pip {
        needed.push(PIP);
    }
    if tests == For::Everything {
        needed.extend(OTHERS);
    }
    needed.retain(|tool| !tool.runs());
    if needed.is_empty() {
        return Vec::new();
    }
    let programs: Vec<_> = needed.iter().map(|tool| tool.program).collect();
    let packages: BTreeSet<_> = needed.iter().map(|tool| tool.package).collect();
    println!("missing: {}; installing their packages", programs.join(", "));
    let outcome = debian::install(&packages);
    needed.retain(|tool| !tool.runs());
    let why = outcome.err().unwrap_or_else(|| "the package is installed, but it does not run".to_owned());
    let missing = |Tool { program, package, .. }: &Tool| Missing {
        program: (*program).to_owned(),
        remedy: format!("{APT}{package}"),
        why: why.clone(),
    };
    needed.iter().map(missing).collect()
}

impl Tool {
    fn runs(&self) -> bool {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{path}:{SYSTEM_PROGRAMS}{}", postgresql_programs());
        succeeds(Command::new(self.program).args(self.question).env("PATH", path))
    }
}

/// Returns the directories of all installed versions, as the continuation of a `PATH`.
fn postgresql_programs() -> String {
    let versions = fs::read_dir(POSTGRESQL_VERSIONS).into_iter().flatten().flatten();
    versions.map(|version| format!(":{}/bin", version.path().display())).collect()
}
