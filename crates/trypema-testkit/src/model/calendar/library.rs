//! Fixed windows of a calendar, as tests use those of the library.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::FixedWindow;
use trypema::{CalendarStart, CalendarWindow, FixedWindowLimit, Weekday};

use super::{CalendarLimit, CalendarModel, ModelWindows};
use crate::subject::LocalStrategy;
use crate::trace::{NoLimit, count, unknown_option};

impl LocalStrategy for CalendarModel {
    type Strategy = FixedWindow;

    fn limit(limit: &CalendarLimit) -> FixedWindowLimit {
        match limit.windows {
            ModelWindows::Aligned { window_us } => {
                FixedWindowLimit::new(limit.limit, Duration::from_micros(window_us)).unwrap()
            }
            ModelWindows::Calendar { zone, starts } => {
                FixedWindowLimit::calendar(limit.limit, CalendarWindow::new(zone, starts).unwrap()).unwrap()
            }
        }
    }
}

/// Parses a limit per day, week or month, such as `10/month zone=Europe/Berlin starts=1`.
pub(in crate::model) fn calendar(word: &str, options: &[&str]) -> Result<FixedWindowLimit, NoLimit> {
    let unreadable = |text: &str| NoLimit::Unreadable(format!("`{text}` is no limit of a calendar"));
    let (limit, per) = word.split_once('/').ok_or_else(|| unreadable(word))?;
    let limit = count(limit).ok_or_else(|| unreadable(word))?;
    let (mut zone, mut starts) = ("UTC", None);
    for option in options {
        match option.split_once('=') {
            Some(("zone", name)) => zone = name,
            Some(("starts", start)) => starts = Some(start),
            _ => return Err(unknown_option(option)),
        }
    }
    let number = |text: &str| text.parse::<u8>().map_err(|_| unreadable(text));
    let start = match (per, starts) {
        ("day", None) => CalendarStart::MIDNIGHT,
        ("day", Some(text)) => {
            let (hour, minute) = text.split_once(':').ok_or_else(|| unreadable(text))?;
            CalendarStart::Day { hour: number(hour)?, minute: number(minute)? }
        }
        ("week", None) => CalendarStart::Week(Weekday::Monday),
        ("week", Some(text)) => {
            let day = Weekday::ALL.into_iter().find(|day| day.name() == text);
            CalendarStart::Week(day.ok_or_else(|| unreadable(text))?)
        }
        (_, None) => CalendarStart::Month { day: 1 },
        (_, Some(text)) => CalendarStart::Month { day: number(text)? },
    };
    Ok(FixedWindowLimit::calendar(limit, CalendarWindow::new(zone, start)?)?)
}
