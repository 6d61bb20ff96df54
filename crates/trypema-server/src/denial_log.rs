//! The log of denied requests, which `log_denials` switches on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tracing::Level;
use trypema::rules::{Outcome, Request, Verdict};
use trypema::{Attempts, BlockScope};

use crate::clock::milliseconds;
use crate::mode::Mode;
use crate::settings::LogDenials;

/// The denials that `sampled` logs per [`PERIOD`]. Clients can cause denials at any rate, and must not be
/// able to fill the disk.
const SAMPLED: u32 = 10;
/// The interval after which `sampled` logs denials again.
const PERIOD: Duration = Duration::from_secs(1);

/// Logs denied requests, as `log_denials` says. At log level `debug`, every denied or throttled request is
/// logged.
#[derive(Debug)]
pub(crate) struct DenialLog {
    setting: LogDenials,
    /// The lines that may still be written in this period.
    lines_left: AtomicU32,
    /// The denials of this period that were not logged.
    left_out: AtomicU64,
}

impl DenialLog {
    pub(crate) fn new(setting: LogDenials) -> Self {
        Self { setting, lines_left: AtomicU32::new(SAMPLED), left_out: AtomicU64::new(0) }
    }

    /// Logs a verdict, unless it allows the request. `mode` is the name of a [`Mode`], or `reserve`.
    pub(crate) fn log(&self, verdict: &Verdict, request: &Request<'_>, mode: &'static str) {
        // The log is off: allowed requests must not pay for the outcome.
        if self.setting == LogDenials::Off && !tracing::enabled!(Level::DEBUG) {
            return;
        }
        match verdict.outcome() {
            Outcome::Allowed => {}
            Outcome::Denied if mode != Mode::Peek.name() && self.may_log() => {
                write_denied(verdict, request, mode)
            }
            Outcome::Denied => write(verdict, request, mode, "request denied"),
            Outcome::Throttled => write(verdict, request, mode, "request throttled: the client should wait"),
        }
    }

    /// Starts the next period, every [`PERIOD`], forever. Only needed if [`is_sampled`](Self::is_sampled).
    pub(crate) async fn run(&self) {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.start_period();
        }
    }

    /// Whether the number of lines is limited.
    pub(crate) fn is_sampled(&self) -> bool {
        self.setting == LogDenials::Sampled
    }

    /// Logs the number of denials that were left out, and permits further lines.
    pub(crate) fn start_period(&self) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            tracing::info!(
                left_out,
                "requests: {left_out} more denials not logged (log_denials=sampled logs {SAMPLED} a second; \
                 trypema_checks_total counts all)"
            );
        }
        self.lines_left.store(SAMPLED, Ordering::Relaxed);
    }

    fn may_log(&self) -> bool {
        match self.setting {
            LogDenials::Off => false,
            LogDenials::All => true,
            LogDenials::Sampled => {
                let take = |left: u32| left.checked_sub(1);
                let is_taken =
                    self.lines_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
                self.left_out.fetch_add(u64::from(!is_taken), Ordering::Relaxed);
                is_taken
            }
        }
    }
}

/// Writes one line. Keys come from clients, so they are fields, whose control characters are escaped.
macro_rules! write_line {
    ($level:expr, $verdict:ident, $request:ident, $mode:ident, $event:expr) => {{
        let rule = $verdict.decided_by();
        let wait = $verdict.retry_after();
        tracing::event!(
            $level,
            rule = rule.map(|rule| rule.rule.id.as_str()),
            name = rule.and_then(|rule| rule.rule.name.as_deref()),
            key = rule.map(|rule| rule.key),
            listed_by = $verdict.listed_by(),
            listed_entry = $verdict.listed_entry(),
            mode = $mode,
            cost = rule.map_or_else(|| $request.cost_of("requests"), |rule| rule.cost),
            unit = rule.and_then(|rule| rule.rule.unit.as_deref()),
            retry_after_ms = wait.map(milliseconds),
            scope = rule.and_then(|rule| rule.block_scope()).map(BlockScope::name),
            block_ends_after_ms = rule.and_then(|rule| rule.decision.block_ends_after()).map(milliseconds),
            short_count = rule.and_then(|rule| rule.decision.attempts()).map(Attempts::short_count),
            long_count = rule.and_then(|rule| rule.decision.attempts()).map(Attempts::long_count),
            missing_attribute = rule.and_then(|rule| rule.missing),
            missing_unit = rule.and_then(|rule| rule.missing_unit),
            substitute = rule.filter(|rule| rule.decision.is_substitute()).map(|_| true),
            "requests: {}",
            $event
        );
    }};
}

fn write_denied(verdict: &Verdict, request: &Request<'_>, mode: &'static str) {
    write_line!(Level::INFO, verdict, request, mode, "request denied");
}

fn write(verdict: &Verdict, request: &Request<'_>, mode: &'static str, event: &str) {
    write_line!(Level::DEBUG, verdict, request, mode, event);
}
