//! Suppressed: sheds a growing share of calls between a soft and a hard limit.

mod library;

use super::absolute::WindowLimit;
use super::buckets::{Buckets, Window};
use super::{Ask, Model, Origin, Refund, Taken, wait_until};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

const SECOND_US: i64 = 1_000_000;
const GOLDEN_RATIO: u32 = 0x9E37_79B9;

/// The limits between which calls are shed.
#[derive(Debug, Clone, Copy)]
pub struct SheddingLimit {
    /// The soft limit.
    pub soft: WindowLimit,
    /// The ratio of the hard limit to the soft one.
    pub hard_limit_factor: f64,
}

impl SheddingLimit {
    /// Returns the hard limit, which is never exceeded.
    pub fn hard(&self) -> u64 {
        let soft = self.soft.capacity();
        let hard = (soft as f64 * self.hard_limit_factor * (1.0 + 1e-12)).floor() as u64;
        hard.clamp(soft, (1 << 53) - 1)
    }
}

/// The units that one key has requested and been granted.
#[derive(Debug, Clone, Default)]
pub struct SuppressedModel {
    observed: Buckets,
    accepted: Buckets,
    drawn: u32,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Allowed,
    Drawn { factor: f64, is_allowed: bool },
    Rejected,
}

impl SuppressedModel {
    /// Restarts the sequence of draws once no observed unit counts: the key then equals a new one.
    fn start_anew_if_stale(&mut self, now: i64, window: Window) {
        let observed = self.observed.used(now, window.window_us);
        let accepted = self.accepted.used(now, window.window_us);
        if observed == 0 && accepted == 0 {
            self.drawn = 0;
        }
    }

    /// Returns the share of calls to admit, with the units that this call needs included in the observed load.
    fn share(&self, limit: &SheddingLimit, ask: Ask) -> f64 {
        let observed = |window_us| self.observed.used(ask.now, window_us) + u128::from(ask.needed);
        let in_window = observed(limit.soft.window().window_us) as f64;
        let last_second = observed(SECOND_US) as f64;
        let perceived = in_window.max(last_second * limit.soft.window_s as f64);
        (limit.soft.capacity() as f64 / perceived).min(1.0)
    }

    fn verdict(&mut self, limit: &SheddingLimit, ask: Ask) -> Verdict {
        let used = self.accepted.used(ask.now, limit.soft.window().window_us);
        let wanted = used + u128::from(ask.needed);
        if ask.needed == 0 || wanted <= u128::from(limit.soft.capacity()) {
            return Verdict::Allowed;
        }
        if wanted > u128::from(limit.hard()) {
            return Verdict::Rejected;
        }
        let share = self.share(limit, ask);
        self.drawn = self.drawn.wrapping_add(GOLDEN_RATIO);
        Verdict::Drawn {
            factor: 1.0 - share,
            is_allowed: u64::from(self.drawn) < (share * 4_294_967_296.0).floor() as u64,
        }
    }

    /// Returns the wait until the needed units fit under the soft limit. A need above the soft limit depends on a
    /// draw: its wait lasts until it fits under the hard limit, and at least for one group.
    fn wait(&self, limit: &SheddingLimit, ask: Ask) -> Wait {
        let window = limit.soft.window();
        let fits_under =
            |most: u64| self.accepted.fits_from(ask.now, window.window_us, (most - ask.needed).into());
        if ask.needed <= limit.soft.capacity() {
            wait_until(ask.now, Some(fits_under(limit.soft.capacity())))
        } else if ask.needed <= limit.hard() {
            wait_until(ask.now, Some(fits_under(limit.hard()).max(ask.now + window.group_us)))
        } else {
            Wait::Never
        }
    }
}

impl Model for SuppressedModel {
    const NAME: &'static str = "suppressed";
    type Limit = SheddingLimit;

    fn take(&mut self, limit: &SheddingLimit, ask: Ask) -> Taken {
        let window = limit.soft.window();
        self.observed.repair(ask.now, window.window_us);
        self.accepted.repair(ask.now, window.window_us);
        if ask.cost > 0 {
            self.start_anew_if_stale(ask.now, window);
        }
        let drawn = self.drawn;
        let verdict = self.verdict(limit, ask);
        if ask.cost > 0 {
            self.observed.record(window, ask);
        } else {
            // A call that costs nothing records nothing, not even its draw.
            self.drawn = drawn;
        }
        let (is_allowed, factor) = match verdict {
            Verdict::Allowed => (true, None),
            Verdict::Drawn { factor, is_allowed } => (is_allowed, Some(factor)),
            Verdict::Rejected => (false, None),
        };
        let is_recorded = is_allowed && ask.cost > 0;
        let units = self.accepted.countable(window, ask);
        let recorded = if is_recorded { self.accepted.record(window, ask) } else { ask.now };
        let wait = if is_allowed { Wait::Micros(0) } else { self.wait(limit, ask) };
        let used = self.accepted.used(ask.now, window.window_us);
        let empty_from = match is_recorded {
            true => recorded + window.window_us,
            false => self.accepted.empty_from(ask.now, window.window_us),
        };
        let answer = Answer {
            is_allowed,
            limit: limit.soft.capacity(),
            remaining: u128::from(limit.soft.capacity()).saturating_sub(used) as u64,
            wait,
            reset_us: ((empty_from - ask.now) as u64).max(wait.micros().unwrap_or(0)),
            detail: Detail::Suppressed { factor },
        };
        Taken { answer, recorded, units, origin: Origin::default() }
    }

    fn fits(&self, limit: &SheddingLimit, ask: Ask) -> u64 {
        let nothing = self.peek(limit, ask.costing(0));
        nothing.remaining.min(ask.cost)
    }

    fn refund(&mut self, limit: &SheddingLimit, refund: Refund) -> u64 {
        let window = limit.soft.window();
        self.observed.repair(refund.now, window.window_us);
        self.accepted.repair(refund.now, window.window_us);
        self.accepted.refund(window, refund)
    }

    fn memory_us(limit: &SheddingLimit) -> i64 {
        limit.soft.window().window_us
    }

    fn random_limit(random: &mut Random) -> SheddingLimit {
        SheddingLimit {
            soft: WindowLimit::random(random),
            hard_limit_factor: random.pick(&[1.0, 1.5, 2.0, 2.0, 3.3, 1_000_000.0]),
        }
    }

    fn spans_us(limit: &SheddingLimit) -> Vec<u64> {
        let window = limit.soft.window();
        vec![window.group_us as u64, SECOND_US as u64, window.window_us as u64]
    }

    fn capacity(limit: &SheddingLimit) -> u64 {
        limit.soft.capacity()
    }
}
