//! Logs on standard error, as text or JSON.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;

use crate::settings::{LogFormat, LogLevel};

/// Starts logging. Does nothing if a subscriber is installed already, as in tests.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = fmt().with_max_level(level).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Pretty => {
            let is_colourful = std::io::stderr().is_terminal();
            lines.with_ansi(is_colourful).with_target(false).try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // An error means that a subscriber is installed already, which then stays.
    let _ = started;
}
