//! Finds the boundaries of windows in a time zone.

use std::ops::Range;

use jiff::civil::{Date, DateTime, Weekday as CivilWeekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
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
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let is_skipped = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
    let mut before = ambiguous.earlier().ok()?.as_second();
    if !is_skipped {
        return Some(before);
    }
    // One of the two lies before the change, the other at or after it.
    let mut after = ambiguous.later().ok()?.as_second();
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if zone.to_datetime(Timestamp::from_second(middle).ok()?) < local {
            before = middle;
        } else {
            after = middle;
        }
    }
    Some(after)
}
