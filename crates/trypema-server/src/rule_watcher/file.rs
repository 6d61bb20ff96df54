//! Watches a rules file: polls it, and reads it immediately on request.

use std::sync::Arc;

use tokio::sync::Notify;
use trypema::rules::{InvalidRules, RuleSet, RulesFile};

use crate::app::App;
use crate::rules::file::{Reason, Source};

/// Puts the rules of `source` in force whenever the file changes, and whenever `asked` is notified. Runs
/// until its task is aborted.
pub(super) async fn watch(app: Arc<App>, mut source: Source, asked: Arc<Notify>) {
    loop {
        let reason = tokio::select! {
            () = asked.notified() => Reason::Asked,
            () = tokio::time::sleep(RulesFile::POLL_INTERVAL) => Reason::Poll,
        };
        let mut polled = source.clone();
        // Reads on a blocking thread: a file system that hangs must not delay decisions.
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
