//! Logs on standard error, as text or JSON.

use std::io::IsTerminal;
use std::panic::{self, PanicHookInfo};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{LogFormat, LogLevel};

/// The targets that are logged: this crate and `trypema`. Other libraries report the same failures in their
/// own words, for instance sqlx each attempt to connect.
const OWN_TARGETS: [&str; 2] = ["trypema", "trypema_server"];

/// Starts logging. Does nothing if a subscriber is installed already, as in tests.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let own = Targets::new().with_targets(OWN_TARGETS.map(|target| (target, level)));
    let lines = fmt().with_max_level(level).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Pretty => {
            let is_colourful = std::io::stderr().is_terminal();
            lines.with_ansi(is_colourful).with_target(false).finish().with(own).try_init()
        }
        LogFormat::Json => {
            panic::set_hook(Box::new(log_panic));
            lines.json().flatten_event(true).finish().with(own).try_init()
        }
    };
    // An error means that a subscriber is installed already, which then stays.
    let _ = started;
}

/// Logs a panic as JSON, so that every line of the log can be parsed.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    tracing::error!(location, "server: thread {thread} panicked: {message}");
}
