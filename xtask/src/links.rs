//! Checks that links between pages have existing targets.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Step;

/// Checks every Markdown page of the repository.
pub(crate) fn check() -> Step {
    let listed = Command::new("git").args(["ls-files", "*.md"]).output();
    let listed = listed.map_err(|error| format!("git ls-files could not be started: {error}"))?;
    let pages = String::from_utf8_lossy(&listed.stdout);
    let mut broken = Vec::new();
    for page in pages.lines() {
        let text = fs::read_to_string(page).map_err(|error| format!("{page}: {error}"))?;
        let folder = Path::new(page).parent().unwrap_or(Path::new(""));
        let leads_nowhere = |target: &&str| !folder.join(target).exists();
        broken.extend(targets(&text).filter(leads_nowhere).map(|target| format!("{page}: {target}")));
    }
    if pages.is_empty() || !broken.is_empty() {
        return Err(format!(
            "links that lead nowhere, of {} pages:\n{}",
            pages.lines().count(),
            broken.join("\n")
        ));
    }
    println!("all links between {} pages lead somewhere", pages.lines().count());
    Ok(())
}

/// Returns the files that `[…](target)` links name, without fragments.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.contains([' ', '<', '`']))
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
}
