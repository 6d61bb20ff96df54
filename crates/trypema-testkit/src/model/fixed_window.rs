//! Fixed window: a count that restarts at every multiple of the window.

mod library;

use super::{Ask, MOST, Model, Origin, Refund, Taken, wait_until};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

/// The limit of windows that are aligned to the epoch.
#[derive(Debug, Clone, Copy)]
pub struct AlignedLimit {
    /// The maximum number of units in a window.
    pub limit: u64,
    /// The window.
    pub window_us: u64,
}

impl AlignedLimit {
    /// Returns the start of the window that contains `now`.
    pub(super) fn start_of(&self, now: i64) -> i64 {
        now - now % self.window()
    }

    /// Returns the end of the window that `known` ends in. This is `known` itself, unless it was counted in
    /// windows of another length.
    pub(super) fn end_of(&self, known: i64) -> i64 {
        self.start_of(known + self.window() - 1)
    }

    pub(super) fn window(&self) -> i64 {
        self.window_us as i64
    }

    pub(super) fn random(random: &mut Random) -> Self {
        let odd = random.between(1, 5_000_000);
        Self {
            limit: random.pick(&[1, 2, 3, 7, 10, 100, 4_294_967_295]),
            window_us: random.pick(&[1, 7, 999_983, 1_000_000, 1_000_000, 60_000_000, odd]),
        }
    }
}

/// The units that one key has taken in its last window.
#[derive(Debug, Clone, Default)]
pub struct FixedWindowModel {
    ends_at: i64,
    counted: u64,
    /// The time at which the count began.
    began: i64,
}

impl FixedWindowModel {
    fn origin(&self) -> Origin {
        Origin { window_end: self.ends_at, count: self.began }
    }

    /// Whether the clock went back by more than a window.
    fn is_far_future(&self, limit: &AlignedLimit, now: i64) -> bool {
        self.counted > 0 && self.ends_at > now + 2 * limit.window()
    }

    /// Enters the window that contains `now`, or stays in a later one that is known.
    fn roll(&mut self, limit: &AlignedLimit, now: i64) {
        let starts_at = limit.start_of(now);
        let ends_at = starts_at + limit.window();
        if self.ends_at <= starts_at {
            self.counted = 0;
        }
        if self.counted == 0 {
            // A state without units equals that of a new key.
            self.ends_at = ends_at;
        }
        self.ends_at =
            if self.is_far_future(limit, now) { ends_at } else { limit.end_of(self.ends_at).max(ends_at) };
    }
}

impl Model for FixedWindowModel {
    const NAME: &'static str = "fixed_window";
    type Limit = AlignedLimit;

    fn take(&mut self, limit: &AlignedLimit, ask: Ask) -> Taken {
        let before = self.clone();
        let is_far_future = self.is_far_future(limit, ask.now);
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
        let recorded = ask.stamp.clamp(self.ends_at - limit.window(), self.ends_at - 1);
        let origin = self.origin();
        if !is_allowed || ask.cost == 0 {
            // A call that records nothing writes only the repair after a step back of the clock.
            *self = if is_far_future { rolled } else { before };
        }
        Taken { answer, recorded, units, origin }
    }

    fn fits(&self, limit: &AlignedLimit, ask: Ask) -> u64 {
        let nothing = self.peek(limit, ask.costing(0));
        nothing.remaining.min(ask.cost)
    }

    fn refund(&mut self, _: &AlignedLimit, refund: Refund) -> u64 {
        let is_meant = refund.recorded.is_none() || refund.origin == self.origin();
        if refund.now >= self.ends_at || !is_meant {
            return 0;
        }
        let given_back = refund.units.min(self.counted);
        self.counted -= given_back;
        given_back
    }

    fn memory_us(limit: &AlignedLimit) -> i64 {
        limit.window()
    }

    fn random_limit(random: &mut Random) -> AlignedLimit {
        AlignedLimit::random(random)
    }

    fn spans_us(limit: &AlignedLimit) -> Vec<u64> {
        vec![limit.window_us]
    }

    fn capacity(limit: &AlignedLimit) -> u64 {
        limit.limit
    }
}
