//! The toy: a count that restarts at every multiple of the window.

mod library;

use super::{AlignedLimit, Ask, MOST, Model, Origin, Refund, Taken, wait_until};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

/// The units that one key has taken in its last window.
#[derive(Debug, Clone, Default)]
pub struct ToyWindowModel {
    ends_at: i64,
    counted: u64,
    /// The time at which the count began.
    began: i64,
}

impl ToyWindowModel {
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

impl Model for ToyWindowModel {
    const NAME: &'static str = "toy_window";
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
