//! Shows changes of rules, and asks before they are made.

use std::io::{BufRead, IsTerminal, Write};

use http::Method;
use serde_json::Value;

use super::difference::difference;
use super::service::{AdminService, Call};
use super::{elements, print};

/// Whether a change is made, whether the command asks before, and the server that makes it.
#[derive(Debug, clap::Args)]
pub(super) struct ChangeArgs {
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Change without asking; required without a terminal
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(super) service: AdminService,
}

impl ChangeArgs {
    /// Shows the changes of a dry run, then applies them to exactly the revision that they were shown for.
    pub(super) fn make(&self, method: &Method, path: &str, body: &Value) -> Result<(), String> {
        let dry_run_path = format!("{path}?dry_run=true");
        let call = |path, revision| Call { body: Some(body), revision, ..Call::new(method.clone(), path) };
        let shown = self.service.call(&call(&dry_run_path, None))?;
        let revision = shown["revision"].as_u64().ok_or("the response has no revision")?;
        let changes: Vec<Value> = elements(&shown["changes"]).cloned().collect();
        if changes.is_empty() {
            print_unchanged(Some(revision));
        } else if self.ask(&changes, Some(revision))? {
            print_done(changes.len(), &self.service.call(&call(path, Some(revision)))?);
        }
        Ok(())
    }

    /// Shows changes, and returns whether to make them. With `--dry-run`, it returns `false`. `base` is the
    /// revision that the changes are for, if the command knows it.
    ///
    /// # Errors
    ///
    /// The user declined, or cannot be asked.
    pub(super) fn ask(&self, changes: &[Value], base: Option<u64>) -> Result<bool, String> {
        changes.iter().for_each(|change| print(&difference(change)));
        let count = counted(changes.len());
        if self.dry_run {
            let base = base.map(|revision| format!(" to revision {revision}")).unwrap_or_default();
            print(&format!("{count}{base}; nothing was changed\n"));
            return Ok(false);
        }
        if self.yes {
            return Ok(true);
        }
        if !std::io::stdin().is_terminal() {
            return Err(
                "nothing was changed: standard input is not a terminal; confirm with --yes".to_owned()
            );
        }
        print(&format!("make {count}? [y/N] "));
        let _ = std::io::stdout().flush();
        let mut answer = String::new();
        let _ = std::io::stdin().lock().read_line(&mut answer);
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            Ok(true)
        } else {
            Err("nothing was changed".to_owned())
        }
    }
}

/// Prints that a change was made, with the revision that the server returned.
pub(super) fn print_done(changes: usize, response: &Value) {
    print(&format!("{}, revision {}\n", counted(changes), response["revision"]));
}

/// Prints that the stored rules already match, so that nothing was changed.
pub(super) fn print_unchanged(revision: Option<u64>) {
    let revision =
        revision.map(|revision| format!(": revision {revision} already matches")).unwrap_or_default();
    print(&format!("no changes{revision}\n"));
}

fn counted(changes: usize) -> String {
    if changes == 1 { "1 change".to_owned() } else { format!("{changes} changes") }
}
