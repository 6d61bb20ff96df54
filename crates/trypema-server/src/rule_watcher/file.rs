//! Watches a rules file: polls it, and reads it immediately on request.

use std::sync::Arc;

use tokio::sync::Notify;
use trypema::rules::{InvalidRules, RuleSet, RulesFile};

use crate::app::App;
use crate::rules::file::{FileRules, ReloadTrigger};

/// Puts the rules of `source` in force whenever the file changes, and whenever `reload` is notified. Runs
/// until its task is aborted.
pub(super) async fn watch(app: Arc<App>, mut source: FileRules, reload: Arc<Notify>) {
    loop {
        let trigger = tokio::select! {
            () = reload.notified() => ReloadTrigger::Requested,
            () = tokio::time::sleep(RulesFile::POLL_INTERVAL) => ReloadTrigger::Poll,
        };
        let mut polled = source.clone();
        let for_reading = Arc::clone(&app);
        // On a blocking thread: a file system that hangs, and thousands of rules, must not delay decisions.
        let reading = tokio::task::spawn_blocking(move || {
            if let Some(read) = polled.read_for(trigger) {
                put_in_force(&for_reading, &polled, read);
            }
            polled
        });
        match reading.await {
            Ok(polled) => source = polled,
            Err(_) => {
                let count = app.rules().len();
                tracing::error!(
                    "rules: reloading {source} failed with an internal error; {count} rules are in force"
                );
            }
        }
    }
}

fn put_in_force(app: &App, source: &FileRules, read: Result<RuleSet, InvalidRules>) {
    match read {
        Ok(rules) => {
            let rules = app.with_hashed(rules);
            let (count, changes) = (rules.len(), rules.changes_since(&app.rules()));
            app.replace_rules(rules);
            tracing::info!(rules = count, "rules: reloaded {source}: {changes}");
        }
        Err(invalid) => {
            app.rules_refused(&invalid);
            let count = app.rules().len();
            // The error may have several lines, one for each problem.
            tracing::error!(error = %invalid, "rules: {source} is invalid; keeping the previous {count} rules");
        }
    }
}
