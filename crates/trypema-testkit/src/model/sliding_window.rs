//! Sliding-window counter: the count of the previous window fades while the current window counts.

mod library;

use super::fixed_window::AlignedLimit;
use super::{Ask, Model, Origin, Refund, Taken, first_moment, wait_until};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

/// The number of steps in which the previous window fades.
const STEPS: i128 = 1 << 20;

/// The maximum limit, and the maximum count.
const MOST_COUNTED: u64 = u32::MAX as u64;

/// The units that one key has taken in its last two windows.
#[derive(Debug, Clone, Default)]
pub struct SlidingWindowModel {
    ends_at: i64,
    previous: u64,
    current: u64,
    /// The length of the windows, and the number of those that followed each other without a gap.
    window: i64,
    count: i64,
}

impl SlidingWindowModel {
    /// Whether the clock went back by more than a window.
    fn is_far_future(&self, limit: &AlignedLimit, now: i64) -> bool {
        self.previous + self.current > 0 && self.ends_at > now + 2 * limit.window()
    }

    /// Enters the window that contains `now`, or stays in a later one that is known.
    fn roll(&mut self, limit: &AlignedLimit, now: i64) {
        let starts_at = limit.start_of(now);
        let ends_at = starts_at + limit.window();
        if self.is_far_future(limit, now) {
            // All units move to the current window.
            self.current = (self.current + self.previous).min(MOST_COUNTED);
            self.previous = 0;
            self.ends_at = ends_at;
            return;
        }
        if self.ends_at <= starts_at - limit.window() {
            self.current = 0;
        }
        if self.ends_at <= starts_at {
            self.previous = std::mem::take(&mut self.current);
        }
        if self.previous + self.current == 0 {
            // A state without units equals that of a new key.
            self.ends_at = ends_at;
        }
        self.ends_at = limit.end_of(self.ends_at).max(ends_at);
    }

    /// Lets the next units join the windows before, or begin others.
    fn join(&mut self, limit: &AlignedLimit, now: i64, is_moved_to_now: bool) {
        if self.previous + self.current == 0 {
            self.count = now;
        } else if self.window != limit.window() || is_moved_to_now {
            self.count += 1;
        }
        self.window = limit.window();
    }

    /// Returns the estimated count at `now` if no call comes before. The part of the previous window is
    /// rounded up, towards denial.
    fn estimate(&self, limit: &AlignedLimit, now: i64) -> i128 {
        let mut then = self.clone();
        then.roll(limit, now);
        let elapsed = i128::from(now - (then.ends_at - limit.window())).max(0);
        let passed = elapsed * STEPS / i128::from(limit.window());
        let faded = i128::from(then.previous) * (STEPS - passed);
        (faded + STEPS - 1) / STEPS + i128::from(then.current)
    }

    fn wait(&self, limit: &AlignedLimit, ask: Ask) -> Wait {
        if ask.needed > limit.limit {
            return Wait::Never;
        }
        let room = i128::from(limit.limit - ask.needed);
        let all_gone_at = self.ends_at + limit.window();
        let fits_from = first_moment(ask.now, all_gone_at, |moment| self.estimate(limit, moment) <= room);
        wait_until(ask.now, Some(fits_from))
    }
}

impl Model for SlidingWindowModel {
    const NAME: &'static str = "sliding_window";
    type Limit = AlignedLimit;

    fn take(&mut self, limit: &AlignedLimit, ask: Ask) -> Taken {
        let before = self.clone();
        let is_far_future = self.is_far_future(limit, ask.now);
        self.roll(limit, ask.now);
        self.join(limit, ask.now, is_far_future);
        let rolled = self.clone();
        let origin = Origin { window_end: self.ends_at, count: self.count };
        let units = ask.cost.min(MOST_COUNTED - self.current);
        let room = (i128::from(limit.limit) - self.estimate(limit, ask.now)).max(0);
        let is_allowed = ask.needed == 0 || i128::from(ask.needed) <= room;
        if is_allowed {
            self.current += units;
        }
        let wait = if is_allowed { Wait::Micros(0) } else { self.wait(limit, ask) };
        let left = i128::from(limit.limit) - self.estimate(limit, ask.now);
        let answer = Answer {
            is_allowed,
            limit: limit.limit,
            remaining: left.max(0) as u64,
            wait,
            reset_us: ((self.ends_at - ask.now) as u64).max(wait.micros().unwrap_or(0)),
            detail: Detail::Plain,
        };
        let recorded = ask.stamp.clamp(self.ends_at - limit.window(), self.ends_at - 1);
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

    fn refund(&mut self, limit: &AlignedLimit, refund: Refund) -> u64 {
        let starts_at = limit.start_of(refund.now);
        let is_in = |window_end: i64| {
            refund.recorded.is_none() || refund.origin == Origin { window_end, count: self.count }
        };
        // What still counts is left to the windows of now.
        let has_previous = self.ends_at > starts_at && is_in(self.ends_at - self.window);
        let has_current = self.ends_at + limit.window() > starts_at && is_in(self.ends_at);
        let mut left = refund.units;
        if has_previous {
            let given_back = left.min(self.previous);
            self.previous -= given_back;
            left -= given_back;
        }
        if has_current {
            let given_back = left.min(self.current);
            self.current -= given_back;
            left -= given_back;
        }
        refund.units - left
    }

    fn memory_us(limit: &AlignedLimit) -> i64 {
        2 * limit.window()
    }

    fn random_limit(random: &mut Random) -> AlignedLimit {
        AlignedLimit::random(random)
    }

    fn spans_us(limit: &AlignedLimit) -> Vec<u64> {
        vec![limit.window_us.div_ceil(1 << 20), limit.window_us]
    }

    fn capacity(limit: &AlignedLimit) -> u64 {
        limit.limit
    }
}
