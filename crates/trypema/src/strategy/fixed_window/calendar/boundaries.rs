//! Finds the boundaries of windows in a time zone.

use std::ops::Range;

use jiff::civil::{Date, DateTime, Weekday as CivilWeekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::{CalendarStart, Weekday};

/// Returns the window that contains `now`, in seconds since the epoch. Returns `None` if a date is outside of
/// the years that jiff supports.
pub(super) fn around(zone: &TimeZone, starts: CalendarStart, now: i64) -> Option<Range<i64>> {
    let boundary = |date| first_moment(zone, starts.on(date));
    let today = zone.to_datetime(Timestamp::from_second(now).ok()?).date();
    let mut date = starts.last_date(today)?;
    let mut start = boundary(date)?;
    while start > now {
        date = starts.previous_date(date)?;
        start = boundary(date)?;
    }
    loop {
        date = starts.next_date(date)?;
        // Not after `start` if a change of clocks skipped the whole day.
        let end = boundary(date)?;
        if end > now {
            return Some(start..end);
        }
        start = end;
    }
}

impl CalendarStart {
    /// Returns the local time of the boundary on `date`.
    fn on(self, date: Date) -> DateTime {
        match self {
            Self::Day { hour, minute } => date.at(hour as i8, minute as i8, 0, 0),
            Self::Week(_) | Self::Month { .. } => date.at(0, 0, 0, 0),
        }
    }

    /// Returns the last date with a boundary that is not after `date`.
    fn last_date(self, date: Date) -> Option<Date> {
        match self {
            Self::Day { .. } => Some(date),
            Self::Week(day) => {
                let days = i64::from(date.weekday().since(day.civil()));
                date.checked_sub(Span::new().days(days)).ok()
            }
            Self::Month { day } => {
                let this_month = Date::new(date.year(), date.month(), day as i8).ok()?;
                if this_month <= date { Some(this_month) } else { self.previous_date(this_month) }
            }
        }
    }

    fn next_date(self, date: Date) -> Option<Date> {
        date.checked_add(self.step()).ok()
    }

    fn previous_date(self, date: Date) -> Option<Date> {
        date.checked_sub(self.step()).ok()
    }

    fn step(self) -> Span {
        match self {
            Self::Day { .. } => Span::new().days(1),
            Self::Week(_) => Span::new().days(7),
            Self::Month { .. } => Span::new().months(1),
        }
    }
}

impl Weekday {
    fn civil(self) -> CivilWeekday {
        match self {
            Self::Monday => CivilWeekday::Monday,
            Self::Tuesday => CivilWeekday::Tuesday,
            Self::Wednesday => CivilWeekday::Wednesday,
            Self::Thursday => CivilWeekday::Thursday,
            Self::Friday => CivilWeekday::Friday,
            Self::Saturday => CivilWeekday::Saturday,
            Self::Sunday => CivilWeekday::Sunday,
        }
    }
}

/// Returns the first second at which clocks show `local`, or a later time if a change of clocks skips it.
fn first_moment(zone: &TimeZone, local: DateTime) -> Option<i64> {
    let shown = |second| Some(zone.to_datetime(Timestamp::from_second(second).ok()?));
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let (mut before, mut after) =
        (ambiguous.earlier().ok()?.as_second(), ambiguous.later().ok()?.as_second());
    // Compare instead of asking whether the time is skipped or repeated: jiff 0.2.39 takes 28 October 2023, 23:59,
    // in Nuuk for repeated, because the rule for later years would have been that.
    for moment in [before, after] {
        if shown(moment)? == local {
            return Some(moment);
        }
    }
    // Clocks skip `local`, and one of the two moments lies before that, the other at or after it.
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if shown(middle)? < local {
            before = middle;
        } else {
            after = middle;
        }
    }
    Some(after)
}
