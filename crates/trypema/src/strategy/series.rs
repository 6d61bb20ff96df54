//! Units counted over time, coalesced into buckets. The absolute, suppressed and abuse strategies count with
//! it.

mod condensed;
mod refund;
mod ring;

use crate::units::MAX_EXACT;
use ring::{Buckets, Ring};

/// The largest number of groups in a window. It bounds the memory of one key whatever group size is
/// configured. It delays the return of capacity by less than 0.002 % of the window.
const MAX_GROUPS: u64 = 65_536;

/// Returns the group size in force, for a configured `group_us` in a window of `window_us`.
pub(super) fn bounded_group_us(window_us: u64, group_us: u64) -> u64 {
    group_us.max(window_us.div_ceil(MAX_GROUPS))
}

/// Units admitted over time. The open (newest) bucket and the sums are stored inline. The closed buckets are
/// behind a pointer, which a call that joins the open bucket never follows.
#[derive(Debug, Clone, Default)]
pub(super) struct Series {
    /// The time of the first call in the open bucket.
    first: u64,
    /// The units in the open bucket.
    open: u64,
    /// The units in the closed buckets.
    closed: u64,
    /// The time of the newest call in the oldest closed bucket.
    oldest: u64,
    ring: Ring,
    /// The time from the first call in the open bucket to the newest, in microseconds.
    open_span_us: u32,
    /// The time from the newest call until no units of the series count, see [`Horizon`].
    horizon: Horizon,
}

/// The part of a series that counts at some moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// The units in the window.
    pub(super) used: u64,
    /// The number of closed buckets that have left the window.
    expired: u32,
    /// Whether the clock went back by more than a window, so that all history counts as happening now.
    pub(super) is_stepped_back: bool,
}

impl View {
    /// Returns a view of `used` units whose times are not known.
    #[cfg(feature = "_redis")]
    pub(super) fn of_units(used: u64) -> Self {
        Self { used, expired: 0, is_stepped_back: false }
    }

    /// Returns a view in which all history, `used` units in total, counts as happening now.
    pub(super) fn stepped_back(used: u64) -> Self {
        Self { used, expired: 0, is_stepped_back: true }
    }
}

/// The moment and the window for which a series is evaluated.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowAt {
    pub(super) now: u64,
    pub(super) window_us: u64,
}

impl Series {
    /// Returns the part that counts at `window.now`. A bucket is in the window until its newest call is a
    /// window old.
    #[inline(always)]
    pub(super) fn view(&self, window: WindowAt) -> View {
        let total = self.closed + self.open;
        let whole = View { used: total, expired: 0, is_stepped_back: false };
        let newest = self.newest();
        if window.now >= newest + window.window_us {
            return View { used: 0, ..whole };
        }
        if newest > window.now + window.window_us {
            return View { is_stepped_back: total > 0, ..whole };
        }
        if self.closed == 0 || window.now < self.oldest + window.window_us {
            return whole;
        }
        self.view_past_oldest(window)
    }

    fn view_past_oldest(&self, window: WindowAt) -> View {
        let closed = self.closed();
        let expired = closed.partition(|i| closed.stamp(i) + window.window_us <= window.now);
        let left = if expired == 0 { self.closed } else { closed.units_after(expired - 1) };
        View { used: left + self.open, expired: expired as u32, is_stepped_back: false }
    }

    /// Counts units in the open bucket, if they belong there, fit under `capacity`, and no bucket has to be
    /// forgotten first. This is the usual case on a busy key, and reads no closed bucket. Returns `None`,
    /// with nothing changed, in all other cases.
    #[inline(always)]
    pub(super) fn join(
        &mut self,
        window: WindowAt,
        new_units: NewUnits,
        capacity: u64,
    ) -> Option<JoinResult> {
        let newest = self.newest();
        let recorded = new_units.stamp.max(newest);
        let open_span_us = recorded - self.first;
        let used = self.total().checked_add(new_units.units)?;
        let is_whole = self.closed == 0
            || window.now < self.oldest + window.window_us && recorded - self.oldest <= u64::from(u32::MAX);
        let is_joining = self.open > 0
            && open_span_us < new_units.group_us
            && window.now < newest + window.window_us
            && newest <= window.now + window.window_us
            && self.horizon.micros() >= window.window_us
            && is_whole
            && used <= capacity;
        if !is_joining || new_units.units == 0 {
            return None;
        }
        self.open += new_units.units;
        self.open_span_us = open_span_us as u32;
        Some(JoinResult { recorded, view: View { used, expired: 0, is_stepped_back: false } })
    }

    /// Counts `new_units.units` at `new_units.stamp`, which is not before `window.now`. `view` is this series
    /// at `window`.
    ///
    /// Returns the time at which the units are counted.
    #[inline]
    pub(super) fn record(&mut self, window: WindowAt, view: View, new_units: NewUnits) -> u64 {
        self.forget_expired(window, view);
        if self.horizon.micros() < window.window_us {
            self.horizon = Horizon::at_least(window.window_us);
        }
        let newest = self.newest();
        let stamp = new_units.stamp.max(newest);
        let is_joining = self.open > 0 && stamp - self.first < new_units.group_us.max(1);
        if !is_joining && self.open > 0 {
            self.close();
        }
        if self.closed > 0 && stamp - self.oldest > u64::from(u32::MAX) {
            self.ring.widen(newest);
        }
        if is_joining {
            self.open += new_units.units;
            self.open_span_us = (stamp - self.first) as u32;
        } else {
            (self.first, self.open_span_us, self.open) = (stamp, 0, new_units.units);
        }
        stamp
    }

    /// Forgets the buckets that have left the window according to `view`. If the clock went back by more than
    /// a window, moves all history to now.
    #[inline]
    pub(super) fn forget_expired(&mut self, window: WindowAt, view: View) {
        if view.is_stepped_back {
            let horizon = self.horizon;
            *self = Self { first: window.now, open: view.used, horizon, ..Self::default() };
        } else if view.used == 0 {
            *self = Self::default();
        } else if view.expired > 0 {
            self.drop_oldest(view.expired as usize, view.used.saturating_sub(self.open));
        }
    }

    fn drop_oldest(&mut self, buckets: usize, left: u64) {
        self.ring.drop_front(buckets);
        self.closed = left;
        self.oldest = if self.ring.is_empty() { 0 } else { self.closed().stamp(0) };
    }

    fn close(&mut self) {
        let newest = self.newest();
        if self.ring.is_empty() {
            self.oldest = newest;
        }
        // After `refund_oldest`, the buckets may count more units than `closed`.
        if self.closed.max(self.closed().counted_after_first()) + self.open > u64::from(u32::MAX) {
            self.ring.widen(newest);
        }
        self.ring.push(newest, self.open);
        self.closed += self.open;
    }

    /// Returns the first time at which at least `units` of those in `view` have left the window.
    #[inline(always)]
    pub(super) fn leaves_at(&self, window: WindowAt, view: View, units: u64) -> u64 {
        if view.is_stepped_back {
            return window.now + window.window_us;
        }
        let staying = view.used.saturating_sub(units);
        if self.open > staying || self.ring.is_empty() {
            return self.newest() + window.window_us;
        }
        let closed = self.closed();
        let first_enough = closed.partition(|i| closed.units_after(i) + self.open > staying);
        closed.stamp(first_enough) + window.window_us
    }

    /// Returns the time of [`Series::leaves_at`], and the units that still count after waiting for it. The
    /// second value assumes a wait in whole milliseconds, rounded up.
    #[inline(always)]
    pub(super) fn after_wait(&self, window: WindowAt, view: View, units: u64) -> AfterWait {
        let staying = view.used.saturating_sub(units);
        if view.is_stepped_back || self.open > staying || self.ring.is_empty() {
            return AfterWait { at: self.leaves_at(window, view, units), staying: 0 };
        }
        let closed = self.closed();
        let mut last = closed.partition(|i| closed.units_after(i) + self.open > staying);
        let at = closed.stamp(last) + window.window_us;
        let then = window.now + at.saturating_sub(window.now).div_ceil(1_000) * 1_000;
        if self.newest() + window.window_us <= then {
            return AfterWait { at, staying: 0 };
        }
        // The few buckets that leave in the rest of the millisecond.
        while last + 1 < closed.len() && closed.stamp(last + 1) + window.window_us <= then {
            last += 1;
        }
        AfterWait { at, staying: closed.units_after(last) + self.open }
    }

    /// Returns the time at which no units of `view` count any more, if no further call is made. Returns 0 if
    /// nothing counts.
    #[inline(always)]
    pub(super) fn empty_at(&self, window: WindowAt, view: View) -> u64 {
        if view.used == 0 { 0 } else { self.leaves_at(window, view, view.used) }
    }

    /// Returns the time at which units stamped `stamp` would be counted, given `view`: never before the
    /// newest time.
    #[inline(always)]
    pub(super) fn recorded_at(&self, window: WindowAt, view: View, stamp: u64) -> u64 {
        match view {
            View { is_stepped_back: true, .. } => stamp.max(window.now),
            View { used: 0, .. } => stamp,
            _ => stamp.max(self.newest()),
        }
    }

    /// Returns the units in the buckets whose newest call is less than `window.window_us` old.
    pub(super) fn units_within(&self, window: WindowAt) -> u64 {
        if self.newest() + window.window_us <= window.now {
            return 0;
        }
        let closed = self.closed();
        let before = closed.partition(|i| closed.stamp(i) + window.window_us <= window.now);
        let left = if before == 0 { self.closed } else { closed.units_after(before - 1) };
        left + self.open
    }

    /// Keeps the newest `units` and forgets the rest.
    pub(super) fn keep_newest(&mut self, units: u64) {
        self.open = self.open.min(units);
        let closed = self.closed.min(units - self.open);
        if closed < self.closed {
            let buckets = self.closed();
            let gone = buckets.partition(|i| buckets.units_after(i) >= closed);
            self.drop_oldest(gone, closed);
        }
    }

    /// Returns the time at which the newest call is counted.
    #[inline]
    pub(super) fn newest(&self) -> u64 {
        self.first + u64::from(self.open_span_us)
    }

    /// Returns all units, inside the window or not.
    pub(super) fn total(&self) -> u64 {
        self.closed + self.open
    }

    /// Returns the time from which no units of this series count.
    pub(super) fn fresh_from(&self) -> u64 {
        if self.total() == 0 { 0 } else { self.newest() + self.horizon.micros() }
    }

    #[inline]
    fn closed(&self) -> Buckets<'_> {
        self.ring.read(self.newest(), self.closed)
    }

    #[cfg(test)]
    fn buckets(&self) -> usize {
        self.closed().len() + usize::from(self.open > 0)
    }
}

/// The time that a denied caller has to wait for, and the units that still count after the wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct AfterWait {
    pub(super) at: u64,
    pub(super) staying: u64,
}

/// The result of counting units in the open bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinResult {
    /// The time at which the units are counted.
    pub(super) recorded: u64,
    /// The view of the series that includes them.
    pub(super) view: View,
}

/// Units to count.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewUnits {
    pub(super) stamp: u64,
    pub(super) group_us: u64,
    pub(super) units: u64,
}

/// A duration in 16 bits, rounded up by at most 1/16. This is exact enough to know when a state may be
/// forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Horizon(u16);

impl Horizon {
    /// The number of mantissa bits. The exponent of a duration below 2^53 fits into the other six.
    const MANTISSA: u32 = 5;

    pub(super) fn at_least(micros: u64) -> Self {
        let micros = micros.min(MAX_EXACT);
        let exponent = (u64::BITS - micros.leading_zeros()).saturating_sub(Self::MANTISSA);
        let mantissa = (micros + (1 << exponent) - 1) >> exponent;
        if mantissa == 1 << Self::MANTISSA {
            return Self::pack(mantissa >> 1, exponent + 1);
        }
        Self::pack(mantissa, exponent)
    }

    fn pack(mantissa: u64, exponent: u32) -> Self {
        Self((mantissa as u16) | (exponent as u16) << Self::MANTISSA)
    }

    pub(super) fn micros(self) -> u64 {
        u64::from(self.0 & ((1 << Self::MANTISSA) - 1)) << (self.0 >> Self::MANTISSA)
    }
}

#[cfg(test)]
mod tests;
