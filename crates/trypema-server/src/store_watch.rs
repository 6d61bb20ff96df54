//! Logs when Redis becomes unreachable and when it recovers, and calls that fail while Redis is reachable.

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::clock::Started;

/// The interval at which the task checks for failures.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of intervals between two lines about calls that failed while Redis was reachable. Clients can
/// cause failed calls at any rate, and must not be able to fill the disk.
const INTERVALS_BETWEEN_LINES: u32 = 10;

/// Logs failures of Redis, forever. `policy` is the value of `on_store_failure`.
pub(crate) async fn watch(app: Arc<App>, policy: &'static str) {
    let mut watch = StoreWatch { policy, ..StoreWatch::default() };
    loop {
        tokio::time::sleep(INTERVAL).await;
        let seen = Seen {
            is_unreachable: app.is_store_unreachable(),
            totals: Totals {
                failed_calls: app.metrics.store.failures(),
                errors: app.metrics.store.undecided.get(),
                substitutes: app.metrics.rules.substitutes(),
            },
        };
        match watch.poll(seen, || app.metrics.store.take_error()) {
            Some(LogLine::Bad(line)) => tracing::warn!("{line}"),
            Some(LogLine::Good(line)) => tracing::info!("{line}"),
            None => {}
        }
    }
}

/// The state of Redis at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Whether a circuit breaker is open.
    is_unreachable: bool,
    totals: Totals,
}

/// Counts since the start of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    /// Calls to Redis that failed.
    failed_calls: u64,
    /// Requests that ended with an error because of failed calls.
    errors: u64,
    /// Decisions that were made without Redis.
    substitutes: u64,
}

impl Totals {
    fn since(self, before: Self) -> Self {
        Self {
            failed_calls: self.failed_calls.saturating_sub(before.failed_calls),
            errors: self.errors.saturating_sub(before.errors),
            substitutes: self.substitutes.saturating_sub(before.substitutes),
        }
    }
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
enum LogLine {
    Bad(String),
    Good(String),
}

/// Decides which line to log, if any.
#[derive(Debug, Default)]
struct StoreWatch {
    policy: &'static str,
    /// The totals that earlier lines have reported.
    reported: Totals,
    unreachable_since: Option<Started>,
    /// The intervals until failures are logged again.
    rest: u32,
}

impl StoreWatch {
    fn poll(&mut self, seen: Seen, error: impl FnOnce() -> Option<String>) -> Option<LogLine> {
        let policy = self.policy;
        self.rest = self.rest.saturating_sub(1);
        let new = seen.totals.since(self.reported);
        match (self.unreachable_since, seen.is_unreachable) {
            (None, true) => {
                self.unreachable_since = Some(Started::now());
                let error = reason(error());
                Some(LogLine::Bad(format!(
                    "store: Redis is unreachable{error}; applying on_store_failure={policy}, or the rule's own, \
                     until it recovers"
                )))
            }
            (Some(since), false) => {
                self.unreachable_since = None;
                self.reported = seen.totals;
                error();
                let seconds = since.ago().as_secs_f64();
                Some(LogLine::Good(format!(
                    "store: Redis is reachable again after {seconds:.1} s; {}",
                    effects(new)
                )))
            }
            (None, false) if new.failed_calls > 0 && self.rest == 0 => {
                (self.reported, self.rest) = (seen.totals, INTERVALS_BETWEEN_LINES);
                let (calls, error) = (new.failed_calls, reason(error()));
                let calls = if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
                Some(LogLine::Bad(format!(
                    "store: {calls} to Redis failed{error}; applied on_store_failure={policy}, or the rule's own: {}",
                    effects(new)
                )))
            }
            _ => None,
        }
    }
}

fn reason(error: Option<String>) -> String {
    error.map(|error| format!(" ({error})")).unwrap_or_default()
}

fn effects(new: Totals) -> String {
    let Totals { errors, substitutes, .. } = new;
    format!("requests with an error: {errors}, decisions without Redis: {substitutes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(is_unreachable: bool, failed_calls: u64) -> Seen {
        Seen { is_unreachable, totals: Totals { failed_calls, errors: failed_calls, substitutes: 0 } }
    }

    fn text(line: Option<LogLine>) -> String {
        match line {
            Some(LogLine::Bad(line) | LogLine::Good(line)) => line,
            None => String::new(),
        }
    }

    #[test]
    fn every_failure_is_reported_once_and_no_more_than_six_times_a_minute() {
        let mut watch = StoreWatch { policy: "error", ..StoreWatch::default() };
        let mut poll = |seen| text(watch.poll(seen, || Some("no reply".to_owned())));
        assert_eq!(poll(seen(false, 0)), "");
        assert_eq!(
            poll(seen(false, 1)),
            "store: 1 call to Redis failed (no reply); applied on_store_failure=error, or the rule's own: \
             requests with an error: 1, decisions without Redis: 0"
        );
        let lines: Vec<String> =
            (2..=INTERVALS_BETWEEN_LINES + 1).map(|calls| poll(seen(false, calls.into()))).collect();
        assert!(lines[..lines.len() - 1].iter().all(String::is_empty), "{lines:?}");
        let last = lines.last().unwrap();
        assert!(
            last.contains("10 calls to Redis failed") && last.contains("requests with an error: 10"),
            "{last}"
        );
        assert!((0..100).all(|_| poll(seen(false, 11)).is_empty()), "everything has been reported");
    }

    #[test]
    fn an_outage_is_one_line_and_its_end_another() {
        let mut watch = StoreWatch { policy: "deny", ..StoreWatch::default() };
        let mut poll = |seen| text(watch.poll(seen, || Some("refused".to_owned())));
        let begun = poll(seen(true, 5));
        assert!(begun.contains("Redis is unreachable (refused); applying on_store_failure=deny"), "{begun}");
        assert_eq!(poll(seen(true, 50)), "");
        let ended = poll(seen(false, 60));
        assert!(ended.contains("reachable again after 0.0 s; requests with an error: 60"), "{ended}");
        assert_eq!(poll(seen(false, 60)), "");
    }
}
