//! Windows of the calendar: days, weeks and months in a time zone.

mod boundaries;
mod zones;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use jiff::tz::TimeZone;

use super::windows::Bounds;
use crate::clock::Timestamp;
use crate::error::TrypemaError;

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3_600 * SECOND_US;
const DAY_US: u64 = 24 * HOUR_US;

/// The most by which a change of clocks makes a window longer. It is far above the usual hour: the clocks of
/// some places were set back by several hours when they changed their zone.
const LONGER_US: u64 = DAY_US;

/// The most by which a change of clocks makes a window shorter. Some zones changed by three hours. Leases are
/// shorter than 1/140 of the shortest window, so that a rare shorter window only leaves more units unused.
const SHORTER_US: u64 = 4 * HOUR_US;

/// The number of windows that a calendar remembers: the present one and its neighbours, which scripts need,
/// and one more, for receipts.
const REMEMBERED: usize = 4;

/// The bits of the length in a remembered window, which are enough for 48 days in seconds.
const LENGTH_BITS: u32 = 22;

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Weekday {
    /// All days of the week.
    pub const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];

    /// Returns the name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monday => "monday",
            Self::Tuesday => "tuesday",
            Self::Wednesday => "wednesday",
            Self::Thursday => "thursday",
            Self::Friday => "friday",
            Self::Saturday => "saturday",
            Self::Sunday => "sunday",
        }
    }
}

/// The local times at which the windows of a calendar start: once a day, a week or a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CalendarStart {
    /// Every day at this time.
    Day {
        /// The hour, from 0 to 23.
        hour: u8,
        /// The minute, from 0 to 59.
        minute: u8,
    },
    /// Every week, at the midnight with which this day begins.
    Week(Weekday),
    /// Every month, at the midnight with which a day begins.
    Month {
        /// The day, from 1 to 28: every month has these.
        day: u8,
    },
}

impl CalendarStart {
    /// Every day at midnight.
    pub const MIDNIGHT: Self = Self::Day { hour: 0, minute: 0 };

    /// Refuses a time or a day that does not exist, or not in every month.
    fn check(self) -> Result<Self, TrypemaError> {
        match self {
            Self::Day { hour, minute } if hour > 23 || minute > 59 => {
                Err(TrypemaError::InvalidCalendarStart {
                    given: self.to_string(),
                    need: "a time from 00:00 to 23:59",
                })
            }
            Self::Month { day } if !(1..=28).contains(&day) => Err(TrypemaError::InvalidCalendarStart {
                given: self.to_string(),
                need: "a day from 1 to 28, which every month has",
            }),
            start => Ok(start),
        }
    }
}

/// Displays the time (`06:00`), the weekday (`monday`) or the day of the month (`1`).
impl fmt::Display for CalendarStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day { hour, minute } => write!(f, "{hour:02}:{minute:02}"),
            Self::Week(day) => f.write_str(day.name()),
            Self::Month { day } => write!(f, "{day}"),
        }
    }
}

/// The days, weeks or months of a time zone, as windows of a [`FixedWindowLimit`](super::FixedWindowLimit).
///
/// Each window ends where the next one starts. If a change of clocks skips the local time of a boundary, the
/// boundary is the first moment after the change. If a local time occurs twice, the boundary is its first
/// occurrence. Zones come from the IANA database that is compiled in, not from the system.
///
/// Values are small and cheap to copy. The first one of each zone and start allocates about 100 bytes, which
/// are never freed.
///
/// ```
/// use trypema::clock::Timestamp;
/// use trypema::{CalendarStart, CalendarWindow};
///
/// let days = CalendarWindow::new("Europe/Berlin", CalendarStart::MIDNIGHT)?;
/// // In the night to 31 March 2024, Berlin skipped an hour.
/// let noon = Timestamp::from_micros(1_711_879_200_000_000);
/// let (start, end) = (days.start_of(noon), days.end_of(noon));
/// assert_eq!(end.as_micros() - start.as_micros(), 23 * 3_600_000_000);
///
/// assert!(CalendarWindow::new("Europe/Berlin", CalendarStart::Month { day: 31 }).is_err());
/// let error = CalendarWindow::new("Berlin", CalendarStart::Month { day: 1 }).unwrap_err();
/// assert!(error.to_string().contains("did you mean `Europe/Berlin`?"));
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Clone, Copy)]
pub struct CalendarWindow(&'static Calendar);

struct Calendar {
    zone_name: String,
    zone: TimeZone,
    starts: CalendarStart,
    /// The windows that were used last. Finding one takes microseconds.
    remembered: [AtomicU64; REMEMBERED],
}

impl CalendarWindow {
    /// Returns the windows that start at these times in `zone`, an IANA name such as `Europe/Berlin` or
    /// `UTC`, as it is spelled there.
    pub fn new(zone: &str, starts: CalendarStart) -> Result<Self, TrypemaError> {
        // One calendar for equal arguments: all limits share the windows that it remembers, and a comparison
        // of two limits compares two addresses. There are fewer than a million zones and starts.
        static CALENDARS: Mutex<BTreeMap<(String, CalendarStart), CalendarWindow>> =
            Mutex::new(BTreeMap::new());

        let starts = starts.check()?;
        let time_zone = zones::find(zone)?;
        let mut calendars = CALENDARS.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(*calendars.entry((zone.to_owned(), starts)).or_insert_with(|| {
            let remembered = [const { AtomicU64::new(0) }; REMEMBERED];
            let zone_name = zone.to_owned();
            Self(Box::leak(Box::new(Calendar { zone_name, zone: time_zone, starts, remembered })))
        }))
    }

    /// Returns the name of the time zone.
    pub fn zone(&self) -> &'static str {
        &self.0.zone_name
    }

    /// Returns the local times at which windows start.
    pub fn starts(&self) -> CalendarStart {
        self.0.starts
    }

    /// Returns the start of the window that contains `now`; the epoch, if it started before that.
    pub fn start_of(&self, now: Timestamp) -> Timestamp {
        Timestamp::derived(self.bounds_at(now.as_micros()).starts_at)
    }

    /// Returns the end of the window that contains `now`, which is the start of the next one.
    pub fn end_of(&self, now: Timestamp) -> Timestamp {
        Timestamp::derived(self.bounds_at(now.as_micros()).ends_at)
    }

    /// Returns the window that contains `now`.
    #[inline]
    pub(super) fn bounds_at(&self, now: u64) -> Bounds {
        let remembered = self.0.remembered.iter().map(|packed| unpack(packed.load(Ordering::Relaxed)));
        let mut known = remembered.filter(|bounds| bounds.starts_at <= now && now < bounds.ends_at);
        known.next().unwrap_or_else(|| self.find(now))
    }

    /// Returns the window after the one that contains `now`.
    pub(super) fn next_bounds(&self, now: u64) -> Bounds {
        self.bounds_at(self.bounds_at(now).ends_at)
    }

    /// Returns the boundaries of the window that contains `now` and of its neighbours.
    #[cfg(feature = "_redis")]
    pub(super) fn boundaries_around(&self, now: u64) -> [u64; 4] {
        let present = self.bounds_at(now);
        let before = self.bounds_at(present.starts_at.saturating_sub(1));
        let after = self.bounds_at(present.ends_at);
        [before.starts_at, present.starts_at, present.ends_at, after.ends_at]
    }

    #[cold]
    fn find(&self, now: u64) -> Bounds {
        let Calendar { zone, starts, remembered, .. } = self.0;
        let found = boundaries::around(zone, *starts, (now / SECOND_US) as i64);
        let Some(window) = found else {
            // Only for times thousands of years after the last one that a clock can show.
            let starts_at = now - now % self.usual_us();
            return Bounds { starts_at, ends_at: starts_at + self.usual_us() };
        };
        let start = window.start.max(0) as u64;
        let length = window.end.max(0) as u64 - start;
        // Three consecutive windows have different places, because none is as long as two short ones.
        let place = (start * SECOND_US / self.shortest_us()) as usize % REMEMBERED;
        let packed = start << LENGTH_BITS | length;
        remembered[place].store(packed, Ordering::Relaxed);
        unpack(packed)
    }

    pub(super) fn usual_us(&self) -> u64 {
        match self.0.starts {
            CalendarStart::Day { .. } => DAY_US,
            CalendarStart::Week(_) => 7 * DAY_US,
            CalendarStart::Month { .. } => 31 * DAY_US,
        }
    }

    pub(super) fn longest_us(&self) -> u64 {
        self.usual_us() + LONGER_US
    }

    pub(super) fn shortest_us(&self) -> u64 {
        let usual_us = match self.0.starts {
            CalendarStart::Month { .. } => 28 * DAY_US,
            _ => self.usual_us(),
        };
        usual_us - SHORTER_US
    }
}

/// Returns a remembered window. Boundaries are whole seconds. If nothing is remembered, the window is empty.
#[inline]
fn unpack(packed: u64) -> Bounds {
    let (start, length) = (packed >> LENGTH_BITS, packed & ((1 << LENGTH_BITS) - 1));
    Bounds { starts_at: start * SECOND_US, ends_at: (start + length) * SECOND_US }
}

impl PartialEq for CalendarWindow {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for CalendarWindow {}

impl fmt::Debug for CalendarWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CalendarWindow({} {:?})", self.0.zone_name, self.0.starts)
    }
}
