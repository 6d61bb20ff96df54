//! Checks that need no tests: formatting, imports, clippy, features, dependencies, Lua twins, links, the Makefile,
//! docs.

use std::path::Path;
use std::process::Command;

use crate::{Step, cargo};

pub(crate) fn run() -> Step {
    cargo(["fmt", "--all", "--check"])?;
    crate::imports::check()?;
    cargo(["clippy", "--all-targets", "--all-features", "--", "-D", "warnings"])?;
    for features in [
        "",
        "unstable-testkit",
        "tracing",
        "calendar",
        "redis-tokio",
        "redis-smol",
        "rules",
        "http",
        "tower",
        "axum",
        "redis-smol,tower",
    ] {
        let alone = ["clippy", "--package", "trypema", "--no-default-features", "--features", features];
        cargo(alone.into_iter().chain(["--", "-D", "warnings"]))?;
    }
    lean_tree()?;
    twins()?;
    crate::links::check()?;
    crate::makefile::check()?;
    docs()
}

/// Builds the docs of libraries, programs and one example. With an example, cargo uses the features that
/// tests ask for, so the dependencies are those that clippy has checked. Without one, cargo would check
/// half of them again.
fn docs() -> Step {
    let mut docs = Command::new(env!("CARGO"));
    docs.args(["doc", "--no-deps", "--all-features", "--lib", "--bins", "--example", "quickstart"]);
    crate::run(docs.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Checks that the library without features has neither Redis nor an async runtime in its dependency tree.
fn lean_tree() -> Step {
    let arguments = ["tree", "--package", "trypema", "--no-default-features", "--edges", "normal"];
    let output = Command::new(env!("CARGO")).args(arguments).output();
    let output = output.map_err(|error| format!("cargo tree could not be started: {error}"))?;
    let tree = String::from_utf8_lossy(&output.stdout);
    for banned in ["tokio", "redis", "smol", "async-std"] {
        if tree.lines().any(|line| {
            line.trim_start_matches(['│', '├', '└', '─', ' ']).starts_with(&format!("{banned} v"))
        }) {
            return Err(format!("`{banned}` is in the tree of trypema without features:\n{tree}"));
        }
    }
    Ok(())
}

/// Checks that every quick script (`quick/*.lua`, `quick/refund/*.lua`, `quick/hold/*.lua`) has a twin, which its first
/// line names.
fn quick_twins(folder: &Path) -> Step {
    for quick in ["quick", "quick/refund", "quick/hold"].map(|quick| folder.join(quick)) {
        let files = quick.read_dir().map_err(|error| format!("{}: {error}", quick.display()))?;
        for path in files.filter_map(|file| file.ok().map(|file| file.path())).filter(|path| path.is_file()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let source = std::fs::read_to_string(&path).unwrap_or_default();
            let is_named = source.lines().next().is_some_and(|first| first.contains(&name));
            if !folder.join(&name).is_file() || !is_named {
                let twin = folder.join(&name);
                return Err(format!("{} should name {} and stand beside it", path.display(), twin.display()));
            }
        }
    }
    Ok(())
}

/// Checks that every file that implements a strategy has a Lua twin beside it, and that every twin names
/// its file.
fn twins() -> Step {
    let folder = Path::new("crates/trypema/src/strategy");
    let files = folder.read_dir().map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut strategies = 0;
    for path in files.filter_map(|file| file.ok().map(|file| file.path())) {
        let source = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => std::fs::read_to_string(&path).unwrap_or_default(),
            _ => continue,
        };
        if !source.lines().any(|line| line.starts_with("impl Strategy for ")) {
            continue;
        }
        strategies += 1;
        let (twin, name) =
            (path.with_extension("lua"), path.file_name().unwrap_or_default().to_string_lossy());
        let lua = std::fs::read_to_string(&twin).unwrap_or_default();
        if !lua.lines().next().is_some_and(|first| first.contains(&format!("the twin of {name}"))) {
            return Err(format!("{} has no twin: {} should say so", path.display(), twin.display()));
        }
    }
    if strategies == 0 {
        return Err(format!("no strategy was found in {}", folder.display()));
    }
    quick_twins(folder)?;
    println!("{strategies} strategies have their Lua twins");
    Ok(())
}
