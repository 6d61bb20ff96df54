//! Absolute: no interval of the window's length admits more than the capacity.

mod library;

pub(super) use library::windowed;

use super::buckets::{Buckets, Window};
use super::{Ask, Model, Origin, Refund, Taken, wait_until};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

/// The limit of a sliding window.
#[derive(Debug, Clone, Copy)]
pub struct WindowLimit {
    /// Units per second.
    pub rate: f64,
    /// The window.
    pub window_s: u64,
    /// The time within which calls share a bucket.
    pub group_ms: u64,
}

impl WindowLimit {
    /// Returns the maximum number of units in a window.
    pub fn capacity(&self) -> u64 {
        (self.window_s as f64 * self.rate * (1.0 + 1e-12)).floor() as u64
    }

    pub(super) fn window(&self) -> Window {
        Window::new(self.window_s * 1_000_000, self.group_ms * 1_000)
    }

    pub(super) fn random(random: &mut Random) -> Self {
        let window_s = random.pick(&[1, 1, 2, 3, 10, 60, 3_600, 366 * 86_400]);
        let whole = random.between(1, 12) as f64;
        let per_window = random.pick(&[0.5, 1.0, whole, whole, whole, 29.0, 100.0]);
        Self {
            rate: random.pick(&[per_window / window_s as f64, 0.29, 5.5]),
            window_s,
            group_ms: random.pick(&[1, 10, 10, 100, 700, 5_000, 3_600_000]),
        }
    }
}

/// The units that one key has taken.
#[derive(Debug, Clone, Default)]
pub struct AbsoluteModel {
    admitted: Buckets,
}

impl Model for AbsoluteModel {
    const NAME: &'static str = "absolute";
    type Limit = WindowLimit;

    fn take(&mut self, limit: &WindowLimit, ask: Ask) -> Taken {
        let window = limit.window();
        let capacity = u128::from(limit.capacity());
        self.admitted.repair(ask.now, window.window_us);
        let used = self.admitted.used(ask.now, window.window_us);
        let needed = u128::from(ask.needed);
        let units = self.admitted.countable(window, ask);
        let is_allowed = ask.needed == 0 || used + needed <= capacity;
        let is_recorded = is_allowed && ask.cost > 0;
        let recorded = if is_recorded { self.admitted.record(window, ask) } else { ask.now };
        let wait = if is_allowed {
            Wait::Micros(0)
        } else if needed > capacity {
            Wait::Never
        } else {
            let room = capacity - needed;
            let fits_from = self.admitted.fits_from(ask.now, window.window_us, room);
            wait_until(ask.now, Some(fits_from))
        };
        let used_now = self.admitted.used(ask.now, window.window_us);
        let empty_from = match is_recorded {
            true => recorded + window.window_us,
            false => self.admitted.empty_from(ask.now, window.window_us),
        };
        let answer = Answer {
            is_allowed,
            limit: limit.capacity(),
            remaining: capacity.saturating_sub(used_now) as u64,
            wait,
            reset_us: (empty_from - ask.now) as u64,
            detail: Detail::Plain,
        };
        Taken { answer, recorded, units, origin: Origin::default() }
    }

    fn fits(&self, limit: &WindowLimit, ask: Ask) -> u64 {
        let nothing = self.peek(limit, ask.costing(0));
        nothing.remaining.min(ask.cost)
    }

    fn refund(&mut self, limit: &WindowLimit, refund: Refund) -> u64 {
        self.admitted.repair(refund.now, limit.window().window_us);
        self.admitted.refund(limit.window(), refund)
    }

    fn memory_us(limit: &WindowLimit) -> i64 {
        limit.window().window_us
    }

    fn random_limit(random: &mut Random) -> WindowLimit {
        WindowLimit::random(random)
    }

    fn spans_us(limit: &WindowLimit) -> Vec<u64> {
        let window = limit.window();
        vec![window.group_us as u64, window.window_us as u64]
    }

    fn capacity(limit: &WindowLimit) -> u64 {
        limit.capacity()
    }
}
