//! Calendar windows of servers whose clocks differ: Redis chooses the window by its own time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use trypema::clock::Timestamp;
use trypema::redis::script_sources;
use trypema::strategy::{FixedWindow, Wire};
use trypema::{CalendarStart, CalendarWindow, FixedWindowLimit};
use trypema_testkit::redis::{Control, Server};

const MINUTE_US: u64 = 60_000_000;
const DAY_US: u64 = 1_440 * MINUTE_US;
const LIMIT: u64 = 20;

/// Noon of 27 March 2024 in UTC.
const NOON_US: u64 = 1_711_540_800_000_000;

/// One key in Redis, and the time of Redis.
struct Key {
    control: Control,
    _server: Server,
    script: String,
    limit: FixedWindowLimit,
    now_us: u64,
}

/// The result of a take.
#[derive(Debug, PartialEq)]
struct Taken {
    is_admitted: bool,
    used_before: u64,
    ends_at: u64,
}

impl Key {
    fn new(zone: &str) -> Self {
        let server = Server::start().unwrap();
        let control = server.control().unwrap();
        let script =
            script_sources().into_iter().find(|script| script.name == "fixed_window").unwrap().source;
        let days = CalendarWindow::new(zone, CalendarStart::MIDNIGHT).unwrap();
        let limit = FixedWindowLimit::calendar(LIMIT, days).unwrap();
        Self { control, _server: server, script, limit, now_us: NOON_US }
    }

    /// Takes `cost` for a server whose clock shows `clock_us`, at the time of Redis. With `times` above 1 the
    /// script leaves the usual case.
    fn take(&mut self, clock_us: u64, cost: u64, times: u32) -> Taken {
        let mut argument = (self.now_us as f64).to_le_bytes().to_vec();
        argument.extend(times.to_le_bytes());
        argument.extend((cost as f64).to_le_bytes());
        FixedWindow::write_limit(&self.limit, Timestamp::from_micros(clock_us), &mut argument);
        let words: [&[u8]; 5] = [b"EVAL", self.script.as_bytes(), b"1", b"ann", &argument];
        let reply = self.control.command(&words).unwrap().bytes().to_vec();
        let number = |at: usize| f64::from_le_bytes(reply[at..at + 8].try_into().unwrap()) as u64;
        assert_eq!(number(0), self.now_us);
        Taken { is_admitted: reply[12] == 1, used_before: number(13), ends_at: number(21) }
    }

    fn midnight(&self) -> u64 {
        self.limit.calendar_window().unwrap().end_of(Timestamp::from_micros(self.now_us)).as_micros()
    }
}

/// Two servers, whose clocks are minutes fast and slow, count in the same windows around midnight, in the
/// usual case and in the twin.
#[test]
fn servers_whose_clocks_differ_by_minutes_use_the_window_of_redis() {
    for times in [1, 2] {
        for skew_us in [MINUTE_US, 20 * MINUTE_US, DAY_US - MINUTE_US] {
            let mut key = Key::new("Europe/Berlin");
            let midnight = key.midnight();
            let mut used = 0;
            for before_us in [10 * MINUTE_US, 1] {
                key.now_us = midnight - before_us;
                for clock_us in [key.now_us - skew_us, key.now_us, key.now_us + skew_us] {
                    let taken = key.take(clock_us, 1, times);
                    assert_eq!(taken, Taken { is_admitted: true, used_before: used, ends_at: midnight });
                    used += u64::from(times);
                }
            }
            key.now_us = midnight;
            let next = key.midnight();
            let mut used = 0;
            for clock_us in [midnight - skew_us, midnight, midnight + skew_us] {
                let taken = key.take(clock_us, 1, times);
                assert_eq!(taken, Taken { is_admitted: true, used_before: used, ends_at: next });
                used += u64::from(times);
            }
        }
    }
}

/// A server whose clock is wrong by more than a window neither resets the count nor gets a count of its own.
#[test]
fn a_clock_that_is_wrong_by_days_admits_no_more() {
    let wrong_clocks =
        [NOON_US - 5 * DAY_US, NOON_US + 5 * DAY_US, NOON_US - 4_000 * DAY_US, NOON_US + 4_000 * DAY_US, 0];
    for wrong in wrong_clocks {
        // The count of the other servers goes on.
        let mut key = Key::new("UTC");
        let midnight = key.midnight();
        assert!(key.take(NOON_US, LIMIT - 1, 1).is_admitted);
        let taken = key.take(wrong, 1, 1);
        assert_eq!(taken, Taken { is_admitted: true, used_before: LIMIT - 1, ends_at: midnight });
        assert!(!key.take(wrong, 1, 1).is_admitted && !key.take(NOON_US, 1, 1).is_admitted);
        key.now_us = midnight;
        assert!(key.take(midnight, LIMIT, 1).is_admitted);

        // Its own count is that of a window from now on, which the others carry into theirs.
        let mut key = Key::new("UTC");
        let taken = key.take(wrong, LIMIT, 1);
        assert_eq!(taken, Taken { is_admitted: true, used_before: 0, ends_at: NOON_US + 2 * DAY_US });
        assert!(!key.take(wrong, 1, 1).is_admitted);
        let denied = key.take(NOON_US, 1, 1);
        assert_eq!(denied, Taken { is_admitted: false, used_before: LIMIT, ends_at: midnight });
        key.now_us = midnight;
        assert!(key.take(midnight, LIMIT, 1).is_admitted);
    }
}
