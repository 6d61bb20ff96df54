//! Watches a file of rules: polls it, and reads it at once when asked to.

use std::sync::Arc;

use tokio::sync::Notify;
use trypema::rules::{InvalidRules, RuleSet, RulesFile};

use crate::app::App;
use crate::rules::file::{Reason, Source};

/// Puts rules in force whenever their file changes, and reads it at once when `asked` to; ends with the task that it is spawned as.
pub(super) async fn watch(app: Arc<App>, mut source: Source, asked: Arc<Notify>) {
    loop {
        let reason = tokio::select! {
            () = asked.notified() => Reason::Asked,
            () = tokio::time::sleep(RulesFile::POLL_INTERVAL) => Reason::Poll,
        };
        let mut polled = source.clone();
        // A file system that hangs must not hang decisions.
        let reading = tokio::task::spawn_blocking(move || {
            let read = polled.read_for(reason);
            (polled, read)
        });
        match reading.await {
            Ok((polled, read)) => {
                source = polled;
                if let Some(read) = read {
                    put_in_force(&app, read);
                }
            }
            Err(_) => tracing::error!("reading the rules was interrupted; the old ones stay in force"),
        }
    }
}

fn put_in_force(app: &App, read: Result<RuleSet, InvalidRules>) {
    match read {
        Ok(rules) => {
            let count = rules.len();
            app.replace_rules(rules);
            tracing::info!(rules = count, "new rules are in force");
        }
        Err(invalid) => {
            app.rules_refused(&invalid);
            tracing::error!(error = %invalid, "the new rules are invalid; the old ones stay in force");
        }
    }
}
