//! LiteLLM's proxy: from PyPI, into a directory below `target/servers`, which is used with `PYTHONPATH`.
//!
//! Not a virtual environment: Debian's `python3` cannot create one without another package, and it cannot
//! be renamed when it is complete.

use std::path::Path;
use std::process::Command;

use super::missing::Missing;
use super::{servers, succeeds, unpack_if};
use crate::Step;

/// `tests/proxies/litellm/proxy.rs` names the same directory.
const DIRECTORY: &str = "litellm-1.100.0";
const PACKAGE: &str = "litellm[proxy]==1.100.0";
/// Fails if a package is missing, or was compiled for another version of Python.
const TRIAL: &str = "import importlib.metadata as m, orjson, pydantic_core, tokenizers, uvloop; assert m.version('litellm') == '1.100.0'";

pub(super) fn is_installed() -> bool {
    works(&servers().join(DIRECTORY))
}

pub(super) fn install_if_missing() -> Option<Missing> {
    if is_installed() {
        return None;
    }
    println!("LiteLLM is missing: installing {PACKAGE} below target/servers (half a minute, 530 MB)");
    let why = unpack_if(DIRECTORY, pip_install, works).err()?;
    let target = servers().join(DIRECTORY);
    let remedy = format!("python3 -m pip install --target {} '{PACKAGE}'", target.display());
    Some(Missing { program: "LiteLLM, with Python 3.10 or later".to_owned(), remedy, why })
}

fn pip_install(directory: &Path) -> Step {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--no-warn-conflicts"]);
    pip.args(["--root-user-action", "ignore", "--target"]).arg(directory).arg(PACKAGE);
    crate::run(&mut pip)
}

fn works(directory: &Path) -> bool {
    succeeds(Command::new("python3").args(["-c", TRIAL]).env("PYTHONPATH", directory))
}
