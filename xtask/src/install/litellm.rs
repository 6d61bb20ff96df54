//! LiteLLM's proxy: from PyPI, into a directory below `target/servers`, which is used with `PYTHONPATH`.
//!
//! Not a virtual environment: Debian's `python3` cannot create one without another package, and it cannot
//! be renamed when it is complete.

use std::path::Path;
use std::process::Command;

use super::{install_pip_if_missing, servers, succeeds, unpack_if};
use crate::Step;

/// `tests/proxies/litellm/proxy.rs` names the same directory.
const DIRECTORY: &str = "litellm-1.100.0";
const PACKAGE: &str = "litellm[proxy]==1.100.0";
/// Fails if a package is missing, or was compiled for another version of Python.
const TRIAL: &str = "import importlib.metadata as m, orjson, pydantic_core, tokenizers, uvloop; assert m.version('litellm') == '1.100.0'";

pub(super) fn install_if_missing() -> Step {
    if works(&servers().join(DIRECTORY)) {
        return Ok(());
    }
    println!("LiteLLM is missing: installing {PACKAGE} below target/servers (half a minute, 530 MB)");
    unpack_if(DIRECTORY, pip_install, works).map_err(|why| {
        format!(
            "install LiteLLM (it needs Python 3.10 or later): \
             `python3 -m pip install --target target/servers/{DIRECTORY} '{PACKAGE}'`: {why}"
        )
    })
}

fn pip_install(directory: &Path) -> Step {
    install_pip_if_missing()?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--no-warn-conflicts"]);
    pip.args(["--root-user-action", "ignore", "--target"]).arg(directory).arg(PACKAGE);
    crate::run(&mut pip)
}

fn works(directory: &Path) -> bool {
    succeeds(Command::new("python3").args(["-c", TRIAL]).env("PYTHONPATH", directory))
}
