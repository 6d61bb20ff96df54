//! Programs that Debian has: the server that counters live in, and the proxies and tools that `deploy/` is tried with.

use std::process::Command;

use super::{debian, succeeds};
use crate::Step;

/// Where Debian keeps nginx, and only root looks.
const SYSTEM_PROGRAMS: &str = "/usr/sbin";

/// A program, what it is asked to see whether it runs, and the package that has it.
struct Tool {
    program: &'static str,
    question: &'static str,
    package: &'static str,
}

const TOOLS: [Tool; 6] = [
    Tool { program: "redis-server", question: "--version", package: "redis-server" },
    Tool { program: "nginx", question: "-v", package: "nginx-light" },
    Tool { program: "caddy", question: "version", package: "caddy" },
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
        let mut command = Command::new(self.program);
        succeeds(command.arg(self.question).env("PATH", format!("{path}:{SYSTEM_PROGRAMS}")))
    }
}
