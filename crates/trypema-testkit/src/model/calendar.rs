//! Fixed window with the days, weeks and months of a calendar, and with windows of a length, so that a limit
//! can change from one to the other.

mod library;

pub(super) use library::calendar;

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};
use trypema::{CalendarStart, Weekday};

use super::fixed_window::AlignedLimit;
use super::{Ask, MOST, Model, Origin, Refund, Taken, wait_until};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

/// Zones whose clocks change in different ways: not at all, by an hour at night or at midnight, by half an
/// hour, by two hours, in a month that moves, or by a whole day (Apia, 2011).
const ZONES: [&str; 14] = [
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Apia",
    "Pacific/Kiritimati",
];

const DAY_US: i64 = 86_400_000_000;

/// A limit on windows of any kind.
#[derive(Debug, Clone, Copy)]
pub struct CalendarLimit {
    /// The maximum number of units in a window.
    pub limit: u64,
    /// The windows.
    pub windows: ModelWindows,
}

/// Consecutive windows.
#[derive(Debug, Clone, Copy)]
pub enum ModelWindows {
    /// Windows that are aligned to the epoch.
    Aligned {
        /// The window.
        window_us: u64,
    },
    /// The windows of a calendar.
    Calendar {
        /// The time zone.
        zone: &'static str,
        /// The local times of the boundaries.
        starts: CalendarStart,
    },
}

/// The start of a window, its end, and the end of the next one.
struct Around {
    starts_at: i64,
    ends_at: i64,
    next_end: i64,
}

impl CalendarLimit {
    fn around(&self, now: i64) -> Around {
        match self.windows {
            ModelWindows::Aligned { window_us } => {
                let window = window_us as i64;
                let starts_at = now - now.rem_euclid(window);
                Around { starts_at, ends_at: starts_at + window, next_end: starts_at + 2 * window }
            }
            ModelWindows::Calendar { zone, starts } => {
                let boundaries = boundaries(zone, starts, now);
                let index = boundaries.partition_point(|boundary| *boundary <= now);
                Around {
                    starts_at: boundaries[index - 1].max(0),
                    ends_at: boundaries[index],
                    next_end: boundaries[index + 1],
                }
            }
        }
    }

    /// Returns the length after which units certainly do not count any more.
    fn longest(&self) -> i64 {
        match self.windows {
            ModelWindows::Aligned { window_us } => window_us as i64,
            ModelWindows::Calendar { starts, .. } => length_in_days(starts) * DAY_US + DAY_US,
        }
    }
}

fn length_in_days(starts: CalendarStart) -> i64 {
    match starts {
        CalendarStart::Day { .. } => 1,
        CalendarStart::Week(_) => 7,
        CalendarStart::Month { .. } => 31,
    }
}

/// Returns several boundaries before and after `now`: every date is tried, and skipped and repeated local
/// times are looked up in the zone's list of changes.
fn boundaries(zone: &str, starts: CalendarStart, now: i64) -> Vec<i64> {
    let zone = TimeZoneDatabase::bundled().get(zone).unwrap_or(TimeZone::UTC);
    let today = zone.to_datetime(Timestamp::from_microsecond(now).unwrap_or_default()).date();
    let days = 3 * length_in_days(starts) + 3;
    let dates = (-days..=days).map(|offset| today.saturating_add(offset.days()));
    let mut found: Vec<i64> = dates
        .filter(|date| match starts {
            CalendarStart::Day { .. } => true,
            CalendarStart::Week(day) => is_weekday(*date, day),
            CalendarStart::Month { day } => date.day() == day as i8,
        })
        .map(|date| boundary_on(&zone, date, starts))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn is_weekday(date: Date, day: Weekday) -> bool {
    Weekday::ALL.get(date.weekday().to_monday_zero_offset() as usize) == Some(&day)
}

fn boundary_on(zone: &TimeZone, date: Date, starts: CalendarStart) -> i64 {
    let local = match starts {
        CalendarStart::Day { hour, minute } => date.at(hour as i8, minute as i8, 0, 0),
        _ => date.at(0, 0, 0, 0),
    };
    let offsets = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => [offset, offset],
        AmbiguousOffset::Fold { before, after } | AmbiguousOffset::Gap { before, after } => [before, after],
    };
    let mut moments: Vec<Timestamp> =
        offsets.iter().filter_map(|offset| offset.to_timestamp(local).ok()).collect();
    moments.sort_unstable();
    let last = moments.last().copied().unwrap_or_default();
    let is_shown = |moment: &&Timestamp| zone.to_datetime(**moment) == local;
    // The change that skips `local` is the last one before the moment at which the old offset shows it.
    let skipping = || zone.preceding(last + 1.second()).map(|change| change.timestamp()).next();
    let moment = moments.iter().find(is_shown).copied().or_else(skipping);
    moment.unwrap_or_default().as_microsecond()
}

/// The units that one key has taken in its last window.
#[derive(Debug, Clone, Default)]
pub struct CalendarModel {
    ends_at: i64,
    counted: u64,
    /// The time at which the count began.
    began: i64,
}

impl CalendarModel {
    fn origin(&self) -> Origin {
        Origin { window_end: self.ends_at, count: self.began }
    }

    /// Whether all history counts as happening now: the clock went back by more than a window, or the window
    /// is none of this calendar's.
    fn is_moved_to_now(&self, limit: &CalendarLimit, now: i64) -> bool {
        let around = limit.around(now);
        self.counted > 0
            && match limit.windows {
                ModelWindows::Aligned { window_us } => self.ends_at > now + 2 * window_us as i64,
                ModelWindows::Calendar { .. } => {
                    self.ends_at > around.ends_at && self.ends_at != around.next_end
                }
            }
    }

    /// Enters the window that contains `now`, or stays in a later one that is known.
    fn roll(&mut self, limit: &CalendarLimit, now: i64) {
        let around = limit.around(now);
        let is_moved_to_now = self.is_moved_to_now(limit, now);
        if self.ends_at <= around.starts_at {
            self.counted = 0;
        }
        if self.counted == 0 || is_moved_to_now || self.ends_at <= around.ends_at {
            self.ends_at = around.ends_at;
        } else if let ModelWindows::Aligned { window_us } = limit.windows {
            self.ends_at = AlignedLimit { limit: limit.limit, window_us }.end_of(self.ends_at);
        }
    }

    /// Returns the start of the window that the count is in.
    fn starts_at(&self, limit: &CalendarLimit) -> i64 {
        limit.around(self.ends_at - 1).starts_at
    }
}

impl Model for CalendarModel {
    const NAME: &'static str = "calendar_window";
    type Limit = CalendarLimit;

    fn take(&mut self, limit: &CalendarLimit, ask: Ask) -> Taken {
        let before = self.clone();
        let is_moved_to_now = self.is_moved_to_now(limit, ask.now);
        self.roll(limit, ask.now);
        let rolled = self.clone();
        let units = ask.cost.min(MOST - self.counted);
        let room = limit.limit.saturating_sub(self.counted);
        let is_allowed = ask.needed <= room;
        if is_allowed {
            if self.counted == 0 {
                self.began = ask.now;
            }
            self.counted += units;
        }
        let wait = if is_allowed {
            Wait::Micros(0)
        } else if ask.needed > limit.limit {
            Wait::Never
        } else {
            wait_until(ask.now, Some(self.ends_at))
        };
        let answer = Answer {
            is_allowed,
            limit: limit.limit,
            remaining: limit.limit.saturating_sub(self.counted),
            wait,
            reset_us: (self.ends_at - ask.now) as u64,
            detail: Detail::Plain,
        };
        let recorded = ask.stamp.clamp(self.starts_at(limit), self.ends_at - 1);
        let origin = self.origin();
        if !is_allowed || ask.cost == 0 {
            // A call that records nothing writes only that all history counts now.
            *self = if is_moved_to_now { rolled } else { before };
        }
        Taken { answer, recorded, units, origin }
    }

    fn fits(&self, limit: &CalendarLimit, ask: Ask) -> u64 {
        let nothing = self.peek(limit, ask.costing(0));
        nothing.remaining.min(ask.cost)
    }

    fn refund(&mut self, _: &CalendarLimit, refund: Refund) -> u64 {
        let is_meant = refund.recorded.is_none() || refund.origin == self.origin();
        if refund.now >= self.ends_at || !is_meant {
            return 0;
        }
        let given_back = refund.units.min(self.counted);
        self.counted -= given_back;
        given_back
    }

    fn memory_us(limit: &CalendarLimit) -> i64 {
        limit.longest()
    }

    /// Returns the limit of a calendar, or now and then one of aligned windows.
    fn random_limit(random: &mut Random) -> CalendarLimit {
        let aligned = AlignedLimit::random(random);
        let hours = random.pick(&[0, 0, 1, 2, 3, 12, 23]);
        let minutes = random.pick(&[0, 0, 30, 59]);
        let windows = match random.below(7) {
            0 => ModelWindows::Aligned { window_us: random.pick(&[aligned.window_us, DAY_US as u64]) },
            kind => ModelWindows::Calendar {
                zone: random.pick(&ZONES),
                starts: match kind {
                    1..4 => CalendarStart::Day { hour: hours, minute: minutes },
                    4 | 5 => CalendarStart::Week(random.pick(&Weekday::ALL)),
                    _ => CalendarStart::Month { day: random.between(1, 28) as u8 },
                },
            },
        };
        CalendarLimit { limit: aligned.limit, windows }
    }

    fn spans_us(limit: &CalendarLimit) -> Vec<u64> {
        match limit.windows {
            ModelWindows::Aligned { window_us } => vec![window_us],
            ModelWindows::Calendar { starts, .. } => {
                let usual = length_in_days(starts) as u64 * DAY_US as u64;
                vec![3_600_000_000, usual]
            }
        }
    }

    fn capacity(limit: &CalendarLimit) -> u64 {
        limit.limit
    }
}
