//! The coalesced buckets of a sliding window, as a plain list.

use super::{Ask, MOST, Refund};

/// The maximum number of groups in a window, approximately.
const MOST_GROUPS: u64 = 65_536;

/// Calls that are counted together.
#[derive(Debug, Clone)]
struct Bucket {
    first: i64,
    newest: i64,
    units: u128,
}

/// All buckets, the oldest first. A bucket that refunds have emptied keeps its place and its times.
#[derive(Debug, Clone, Default)]
pub(super) struct Buckets(Vec<Bucket>);

/// The length of the window, and of the groups in which calls are counted together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) window_us: i64,
    pub(super) group_us: i64,
}

impl Window {
    pub(super) fn new(window_us: u64, group_us: u64) -> Self {
        Self { window_us: window_us as i64, group_us: group_us.max(window_us.div_ceil(MOST_GROUPS)) as i64 }
    }
}

impl Buckets {
    /// Repairs the buckets after the clock was set back: units more than a window in the future move to
    /// `now`.
    pub(super) fn repair(&mut self, now: i64, window_us: i64) {
        let units = self.total();
        if units > 0 && self.newest() > now + window_us {
            self.0 = vec![Bucket { first: now, newest: now, units }];
        }
    }

    /// Returns the units whose bucket is younger than `window_us` at `now`.
    pub(super) fn used(&self, now: i64, window_us: i64) -> u128 {
        let live = self.0.iter().filter(|bucket| bucket.newest + window_us > now);
        live.map(|bucket| bucket.units).sum()
    }

    /// Returns the first time, not before `now`, at which at most `room` units are used.
    pub(super) fn fits_from(&self, now: i64, window_us: i64, room: u128) -> i64 {
        let leavings = self.0.iter().map(|bucket| bucket.newest + window_us);
        let mut moments: Vec<i64> = leavings.filter(|leaving| *leaving > now).collect();
        moments.push(now);
        moments.sort_unstable();
        let fitting = moments.into_iter().find(|moment| self.used(*moment, window_us) <= room);
        fitting.unwrap_or(now)
    }

    /// Returns the time at which the last unit stops counting; `now` if none counts.
    pub(super) fn empty_from(&self, now: i64, window_us: i64) -> i64 {
        self.fits_from(now, window_us, 0)
    }

    /// Returns the part of the cost that can be counted: the total is at most [`MOST`].
    pub(super) fn countable(&self, window: Window, ask: Ask) -> u64 {
        let room = u128::from(MOST) - self.used(ask.now, window.window_us);
        u128::from(ask.cost).min(room) as u64
    }

    /// Counts a call, which joins the newest bucket if that is young enough. The total is at most [`MOST`].
    /// Returns the time at which the call counts.
    pub(super) fn record(&mut self, window: Window, ask: Ask) -> i64 {
        self.drop_expired(ask.now, window.window_us);
        // A stamp more than a window ahead would look like a clock that went back.
        let latest = ask.now + window.window_us;
        let stamp = ask.stamp.min(latest).max(self.newest());
        let units = u128::from(self.countable(window, ask));
        let bucket = Bucket { first: stamp, newest: stamp, units };
        match self.0.last_mut() {
            Some(newest) if newest.units == 0 => *newest = bucket,
            Some(newest) if stamp - newest.first < window.group_us => {
                newest.newest = stamp;
                newest.units += bucket.units;
            }
            _ => self.0.push(bucket),
        }
        stamp
    }

    /// Takes units out of the bucket of a take, or out of the oldest buckets that count.
    pub(super) fn refund(&mut self, window: Window, refund: Refund) -> u64 {
        self.drop_expired(refund.now, window.window_us);
        let meant = match refund.recorded {
            None => 0..self.0.len(),
            Some(moment) => self.bucket_of(window, moment).map_or(0..0, |place| place..place + 1),
        };
        let mut left = u128::from(refund.units);
        for bucket in &mut self.0[meant] {
            let given_back = bucket.units.min(left);
            bucket.units -= given_back;
            left -= given_back;
        }
        refund.units - left as u64
    }

    /// Returns the position of the bucket that counted a take at `moment`. Of closed buckets only the time
    /// of the last call is known; the first call was less than a group before.
    fn bucket_of(&self, window: Window, moment: i64) -> Option<usize> {
        let newest = self.0.last()?;
        if moment >= newest.first {
            return (moment <= newest.newest).then_some(self.0.len() - 1);
        }
        let closed = &self.0[..self.0.len() - 1];
        let place = closed.iter().position(|bucket| bucket.newest >= moment)?;
        (closed[place].newest - moment < window.group_us).then_some(place)
    }

    /// Removes expired buckets. Emptied buckets stay as long as only the newest one counts, so that
    /// receipts of their takes still find them.
    fn drop_expired(&mut self, now: i64, window_us: i64) {
        if self.used(now, window_us) == 0 {
            self.0.clear();
        }
        let older = self.0.len().saturating_sub(1);
        if self.0[..older].iter().any(|bucket| bucket.units > 0) {
            self.0.retain(|bucket| bucket.newest + window_us > now);
        }
    }

    fn total(&self) -> u128 {
        self.0.iter().map(|bucket| bucket.units).sum()
    }

    fn newest(&self) -> i64 {
        self.0.last().map_or(0, |bucket| bucket.newest)
    }
}
