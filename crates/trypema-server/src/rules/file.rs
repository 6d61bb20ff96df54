//! Rules from a file: read at start, and again when it changes.

use std::sync::Arc;

use tokio::sync::Notify;
use trypema::rules::{InvalidRules, RuleSet, RulesFile};

use crate::app::App;

/// The rules of a service that was given none.
const DEMONSTRATION: &str = include_str!("../demo.yaml");

/// Where rules are read: a file, or the demonstration rules, which never change.
#[derive(Debug, Clone)]
pub(crate) struct Source(pub(crate) Option<RulesFile>);

/// Why a file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Poll,
    Asked,
}

impl Source {
    /// Reads and compiles the rules.
    ///
    /// # Errors
    ///
    /// What is wrong with them, and in which line.
    pub(crate) fn read(&mut self) -> Result<RuleSet, InvalidRules> {
        match &mut self.0 {
            None => RuleSet::from_yaml(DEMONSTRATION, "the built-in rules"),
            Some(file) => file.read(),
        }
    }

    fn read_for(&mut self, reason: Reason) -> Option<Result<RuleSet, InvalidRules>> {
        match reason {
            Reason::Poll => self.0.as_mut()?.poll(),
            Reason::Asked => Some(self.read()),
        }
    }
}

/// Puts rules in force whenever their file changes, and reads it at once when `asked` to; ends with the task that it is spawned as.
pub(crate) async fn watch(app: Arc<App>, mut source: Source, asked: Arc<Notify>) {
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
