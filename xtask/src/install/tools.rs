//! Programs that Debian has: the servers that counters and rules live in, and the proxies and tools that `deploy/` is
//! tried with.

use std::fs;
use std::process::Command;

use super::{debian, succeeds};
use crate::Step;

/// Where Debian keeps nginx and HAProxy, and only root looks.
const SYSTEM_PROGRAMS: &str = "/usr/sbin";
/// Where Debian keeps PostgreSQL, each version in a directory of its own.
const POSTGRESQL_VERSIONS: &str = "/usr/lib/postgresql";

/// A program, what it is asked to see whether it runs, and the package that has it.
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

/// The directories of all versions that are installed, as they continue a `PATH`.
fn postgresql_programs() -> String {
    let versions = fs::read_dir(POSTGRESQL_VERSIONS).into_iter().flatten().flatten();
    versions.map(|version| format!(":{}/bin", version.path().display())).collect()
}
