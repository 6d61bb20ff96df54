//! Programs from Debian packages: the servers that store counters and rules, and the proxies and tools that
//! tests of `deploy/` use.

use std::fs;
use std::process::Command;

use super::{debian, succeeds};
use crate::Step;

/// The directory of nginx and HAProxy on Debian, which is only on root's `PATH`.
const SYSTEM_PROGRAMS: &str = "/usr/sbin";
/// The directory of PostgreSQL on Debian, with a subdirectory for each version.
const POSTGRESQL_VERSIONS: &str = "/usr/lib/postgresql";

/// A program, the argument that shows whether it runs, and its package.
struct Tool {
    program: &'static str,
    question: &'static str,
    package: &'static str,
}

const TOOLS: [Tool; 10] = [
    Tool { program: "redis-server", question: "--version", package: "redis-server" },
    Tool { program: "postgres", question: "--version", package: "postgresql" },
    Tool { program: "initdb", question: "--version", package: "postgresql" },
    Tool { program: "psql", question: "--version", package: "postgresql" },
    Tool { program: "nginx", question: "-v", package: "nginx-light" },
    Tool { program: "caddy", question: "version", package: "caddy" },
    Tool { program: "haproxy", question: "-v", package: "haproxy" },
    Tool { program: "prometheus", question: "--version", package: "prometheus" },
    Tool { program: "promtool", question: "--version", package: "prometheus" },
    Tool { program: "systemd-analyze", question: "--version", package: "systemd" },
];

pub(super) fn install_missing() -> Step {
    TOOLS.iter().try_for_each(Tool::install_if_missing)
}

impl Tool {
    fn install_if_missing(&self) -> Step {
        let Self { program, package, .. } = self;
        if self.runs() {
            return Ok(());
        }
        println!("{program} is missing: installing {package}");
        debian::install(package).map_err(|why| format!("install {package} (for {program}): {why}"))?;
        if self.runs() { Ok(()) } else { Err(format!("{package} is installed but {program} does not run")) }
    }

    fn runs(&self) -> bool {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{path}:{SYSTEM_PROGRAMS}{}", postgresql_programs());
        succeeds(Command::new(self.program).arg(self.question).env("PATH", path))
    }
}

/// Returns the directories of all installed versions, as the continuation of a `PATH`.
fn postgresql_programs() -> String {
    let versions = fs::read_dir(POSTGRESQL_VERSIONS).into_iter().flatten().flatten();
    versions.map(|version| format!(":{}/bin", version.path().display())).collect()
}
