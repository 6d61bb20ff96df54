//! The windows of a calendar, in every zone from 2020 to 2040.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp as Moment, ToSpan};
use trypema::clock::Timestamp;
use trypema::{CalendarStart, CalendarWindow, FixedWindowLimit, Limit, TrypemaError, Weekday};

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3_600 * SECOND_US;
const DAY_US: u64 = 24 * HOUR_US;

/// 2020-01-01 and 2040-01-01 in UTC.
const FIRST_US: u64 = 1_577_836_800 * SECOND_US;
const LAST_US: u64 = 2_208_988_800 * SECOND_US;

/// Windows of which every one is checked.
const EVERY: [CalendarStart; 2] = [CalendarStart::Week(Weekday::Monday), CalendarStart::Month { day: 1 }];

/// Windows that are checked around each change of clocks.
const AROUND_CHANGES: [CalendarStart; 6] = [
    CalendarStart::MIDNIGHT,
    CalendarStart::Day { hour: 2, minute: 30 },
    CalendarStart::Day { hour: 23, minute: 59 },
    CalendarStart::Day { hour: 1, minute: 0 },
    CalendarStart::Week(Weekday::Sunday),
    CalendarStart::Month { day: 28 },
];

#[test]
fn windows_are_consecutive_and_start_at_their_local_time_in_every_zone() {
    let zones = TimeZoneDatabase::bundled();
    let names: Vec<String> = zones.available().map(|name| name.as_str().to_owned()).collect();
    assert!(names.len() > 500, "only {} zones", names.len());
    std::thread::scope(|scope| {
        for half in names.chunks(names.len().div_ceil(2)) {
            scope.spawn(move || half.iter().for_each(|name| check_zone(name)));
        }
    });
}

fn check_zone(name: &str) {
    let zone = TimeZoneDatabase::bundled().get(name).unwrap();
    for starts in EVERY {
        check_windows(&zone, CalendarWindow::new(name, starts).unwrap(), FIRST_US, LAST_US);
    }
    let first = Moment::from_second((FIRST_US / SECOND_US) as i64).unwrap();
    let changes = zone.following(first).map(|change| change.timestamp().as_second() as u64 * SECOND_US);
    let changes: Vec<u64> = changes.take_while(|change| *change < LAST_US).collect();
    for starts in AROUND_CHANGES {
        let windows = CalendarWindow::new(name, starts).unwrap();
        let around = if matches!(starts, CalendarStart::Day { .. }) { DAY_US } else { SECOND_US };
        for change in changes.iter().chain([&FIRST_US, &LAST_US]) {
            check_windows(&zone, windows, change - around, change + around);
        }
    }
}

/// Checks all windows from the one that contains `from` to the one that contains `to`.
fn check_windows(zone: &TimeZone, windows: CalendarWindow, from: u64, to: u64) {
    let (start_of, end_of) = (
        |us| windows.start_of(Timestamp::from_micros(us)).as_micros(),
        |us| windows.end_of(Timestamp::from_micros(us)).as_micros(),
    );
    let mut start = start_of(from);
    check_boundary(zone, windows, start);
    while start <= to {
        let end = end_of(start);
        assert!(start < end, "{windows:?}: {start} to {end}");
        for inside in [start, start + 1, start + (end - start) / 2, end - 1] {
            assert_eq!((start_of(inside), end_of(inside)), (start, end), "{windows:?} at {inside}");
        }
        assert_eq!(start_of(end), end, "{windows:?}: no gap after {start}");
        let (shortest, longest) = lengths(windows.starts());
        assert!((shortest..=longest).contains(&(end - start)), "{windows:?}: {start} to {end}");
        check_boundary(zone, windows, end);
        start = end;
    }
}

/// Returns the limits on the length of a window since 2020. The longer bounds of the library hold for all
/// times.
fn lengths(starts: CalendarStart) -> (u64, u64) {
    let (shortest, longest) = match starts {
        CalendarStart::Day { .. } => (1, 1),
        CalendarStart::Week(_) => (7, 7),
        CalendarStart::Month { .. } => (28, 31),
    };
    (shortest * DAY_US - 4 * HOUR_US, longest * DAY_US + 4 * HOUR_US)
}

/// A boundary is the first moment at which clocks show the wanted time, or a later one if they skip it.
fn check_boundary(zone: &TimeZone, windows: CalendarWindow, boundary: u64) {
    let second = (boundary / SECOND_US) as i64;
    assert_eq!(boundary % SECOND_US, 0);
    let shown = |second| zone.to_datetime(Moment::from_second(second).unwrap());
    let (before, now) = (shown(second - 1), shown(second));
    let dates = [now.date(), now.date().yesterday().unwrap()];
    let wanted = dates.into_iter().filter(|date| is_start(*date, windows.starts()));
    let wanted = wanted.map(|date| wanted_on(date, windows.starts()));
    // Clocks that are set back show an earlier time at the boundary than before it.
    let is_reached = |wanted: &DateTime| *wanted == now || before < *wanted && *wanted < now;
    let Some(wanted) = wanted.clone().find(is_reached) else {
        panic!("{windows:?}: clocks show {now} at {boundary}");
    };
    let earlier = zone.to_ambiguous_timestamp(wanted).earlier().unwrap().as_second();
    let is_first = earlier >= second || shown(earlier) != wanted;
    assert!(is_first, "{windows:?}: {now} is not the first");
}

fn is_start(date: Date, starts: CalendarStart) -> bool {
    match starts {
        CalendarStart::Day { .. } => true,
        CalendarStart::Week(day) => date.weekday().to_monday_zero_offset() == day as i8,
        CalendarStart::Month { day } => date.day() == day as i8,
    }
}

fn wanted_on(date: Date, starts: CalendarStart) -> DateTime {
    match starts {
        CalendarStart::Day { hour, minute } => date.at(hour as i8, minute as i8, 0, 0),
        _ => date.at(0, 0, 0, 0),
    }
}

/// Apia skipped 30 December 2011: its midnight and that of the next day are one boundary.
#[test]
fn a_day_that_a_zone_skipped_has_no_window() {
    let days = CalendarWindow::new("Pacific/Apia", CalendarStart::MIDNIGHT).unwrap();
    let zone = TimeZoneDatabase::bundled().get("Pacific/Apia").unwrap();
    let eve = zone.to_timestamp("2011-12-29T12:00".parse().unwrap()).unwrap();
    let end = days.end_of(Timestamp::from_micros(eve.as_microsecond() as u64));
    let after = zone.to_timestamp("2011-12-31T00:00".parse().unwrap()).unwrap();
    assert_eq!(end.as_micros(), after.as_microsecond() as u64);
    assert_eq!(days.start_of(end), end);
    assert_eq!(after, eve + 12.hours());
}

/// At the epoch, and at the last time that a clock can show.
#[test]
fn windows_at_the_ends_of_time() {
    for zone in ["UTC", "Pacific/Kiritimati", "America/Los_Angeles", "Europe/Berlin"] {
        for starts in
            [CalendarStart::MIDNIGHT, CalendarStart::Week(Weekday::Friday), CalendarStart::Month { day: 28 }]
        {
            let windows = CalendarWindow::new(zone, starts).unwrap();
            let limit = Limit::from(FixedWindowLimit::calendar(7, windows).unwrap());
            assert_eq!(limit.quota(), 7);
            let epoch = Timestamp::default();
            assert_eq!(windows.start_of(epoch), epoch);
            assert!(windows.end_of(epoch) > epoch);
            let last = Timestamp::MAX;
            assert!(windows.start_of(last) <= last && last < windows.end_of(last));
        }
    }
}

#[test]
fn equal_calendars_are_equal() {
    let windows = |zone, day| CalendarWindow::new(zone, CalendarStart::Month { day }).unwrap();
    let limit = |limit, windows| FixedWindowLimit::calendar(limit, windows).unwrap();
    assert_eq!(limit(1, windows("UTC", 1)), limit(1, windows("UTC", 1)));
    assert_ne!(limit(1, windows("UTC", 1)), limit(1, windows("UTC", 2)));
    assert_ne!(limit(1, windows("UTC", 1)), limit(1, windows("Asia/Tokyo", 1)));
    assert_ne!(limit(1, windows("UTC", 1)), limit(2, windows("UTC", 1)));
    assert_ne!(limit(1, windows("UTC", 1)), FixedWindowLimit::new(1, Duration::from_secs(60)).unwrap());
    assert_eq!(limit(1, windows("UTC", 1)).window(), Duration::from_secs(31 * 86_400));
}

#[test]
fn an_unknown_zone_is_refused_with_a_suggestion() {
    for (given, similar) in [
        ("Europe/Berln", Some("Europe/Berlin")),
        ("europe/berlin", Some("Europe/Berlin")),
        ("Berlin", Some("Europe/Berlin")),
        ("America/New York", Some("America/New_York")),
        ("utc", Some("UTC")),
        ("Middle-earth/Mordor", None),
        ("Etc/Unknown", None),
        ("+02:00", None),
        ("../../etc/passwd", None),
        ("Zürich/Zürich", None),
        ("", None),
    ] {
        let error = CalendarWindow::new(given, CalendarStart::MIDNIGHT).unwrap_err();
        let expected =
            TrypemaError::UnknownZone { given: given.to_owned(), similar: similar.map(str::to_owned) };
        assert_eq!(error, expected);
    }
    let long = "x".repeat(10_000);
    let error = CalendarWindow::new(&long, CalendarStart::MIDNIGHT).unwrap_err();
    assert!(error.to_string().len() < 200, "{error}");
}
