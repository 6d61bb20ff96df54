//! The floor: the cheapest possible check.

use std::sync::atomic::{AtomicU64, Ordering};

use trypema::clock::{Clock, SystemClock};

use crate::contender::{Contender, Load};

/// GCRA on one atomic word, with the clock of our limiters. It has no key and no map.
pub struct AtomicGcra {
    arrival: AtomicU64,
    step: u64,
    burst: u64,
}

impl AtomicGcra {
    pub fn new(load: Load) -> Self {
        let (step, burst) = match load {
            Load::Plenty => (1_000_000, 1_000_000 * u64::from(u32::MAX)),
            Load::Scarce => (36_000_000_000, 3_600_000_000_000),
            Load::Idle => (1, 1_000_000_000),
            Load::Near => (15_625_000, 125_000_000),
            Load::Slow => (36_500_000_000, 31_609_000_000_000_000),
        };
        Self { arrival: AtomicU64::new(0), step, burst }
    }
}

impl Contender for AtomicGcra {
    #[inline]
    fn check(&self, _: &String) -> bool {
        let now = SystemClock.now().as_micros() * 1_000;
        let admit = |arrival: u64| {
            let next = arrival.max(now) + self.step;
            (next <= now + self.burst).then_some(next)
        };
        self.arrival.fetch_update(Ordering::AcqRel, Ordering::Relaxed, admit).is_ok()
    }
}
