//! Random fleets: a seed determines a limit, instances, clocks, a network, traffic and faults.
//!
//! A seed always gives the same run. Seeds alternate between the strategies, so any range of seeds covers
//! all of them.

mod faults;
mod traffic;

use std::time::Duration;

use trypema::clock::{Clock, ManualClock};
use trypema::strategy::for_each_strategy;

use super::{Fleet, HasInvariant, Invariant, Journal, LocalClock, Network, Offer};
use crate::random::Random;

/// The result of a seed.
#[derive(Debug, Clone)]
pub struct Played {
    /// The strategy.
    pub strategy: &'static str,
    /// The number of calls.
    pub calls: usize,
    /// The number of admitted calls.
    pub admitted: usize,
    /// The number of calls that instances admitted locally.
    pub admitted_here: u64,
    /// The number of requests that the store processed.
    pub messages: u64,
    /// Whether the store lost data.
    pub is_forgetting: bool,
    /// The violation of the limit, if there was one.
    pub wrong: Option<String>,
}

/// The basic numbers of a random fleet.
#[derive(Debug, Clone, Copy)]
struct Frame {
    start_us: u64,
    window_us: u64,
    sync_us: u64,
    length_us: u64,
    instances: u32,
    keys: u32,
}

impl Frame {
    fn drawn(random: &mut Random) -> Self {
        let window_us = random.pick(&[500_000, 2_000_000, 10_000_000, 60_000_000, 600_000_000]);
        let sync_us = random.pick(&[5_000, 100_000, 1_000_000, 5_000_000]);
        let length_us = window_us / 4 * random.between(2, 16);
        let instances = random.pick(&[1, 2, 3, 5, 8]);
        let keys = random.pick(&[1, 1, 1, 2, 5]);
        let start_us = ManualClock::default().now().as_micros() + random.below(window_us);
        Self { start_us, window_us, sync_us, length_us, instances, keys }
    }

    /// Returns the approximate duration of leases.
    fn interval_us(&self) -> u64 {
        self.sync_us.min(self.window_us / 128)
    }
}

macro_rules! plays {
    ($($number:literal $type:ident $name:ident $limit:ident;)+) => {
        /// The function that plays a run, of each strategy.
        const PLAYS: &[fn(u64) -> Played] = &[$(played::<trypema::strategy::$type>),+];
    };
}
for_each_strategy! { [plays] }

/// Plays the run of `seed`.
pub fn play(seed: u64) -> Played {
    PLAYS[(seed % PLAYS.len() as u64) as usize](seed)
}

fn played<S: HasInvariant>(seed: u64) -> Played {
    let mut random = Random::seeded(seed);
    let frame = Frame::drawn(&mut random);
    let calls = random.pick(&[100, 300, 1_000, 2_000]);
    let offers = traffic::drawn(frame, calls, &mut random);
    let fleet = fleet::<S>(seed, frame, &offers, &mut random);
    let invariants: Vec<Invariant> = fleet.limits.iter().map(S::invariant).collect();
    let described = format!("{frame:?} {invariants:?} {:?} {:?}", fleet.network, fleet.faults);
    let journal = fleet.run(offers.into_iter());
    judged::<S>(&invariants, frame, &journal, &described)
}

fn judged<S: HasInvariant>(
    invariants: &[Invariant],
    frame: Frame,
    journal: &Journal,
    described: &str,
) -> Played {
    let broken = (0..frame.keys).find_map(|key| {
        let broken = Invariant::any_violation_in(invariants, &journal.of_key(key))?;
        Some(format!("{} {broken:?} of key {key}: {described}", S::NAME))
    });
    Played {
        strategy: S::NAME,
        calls: journal.offers.len(),
        admitted: journal.offers.iter().filter(|offer| offer.is_admitted()).count(),
        admitted_here: journal.admitted_here,
        messages: journal.messages,
        is_forgetting: journal.forgotten.iter().any(|lost| lost.units > 0),
        wrong: broken,
    }
}

fn fleet<S: HasInvariant>(seed: u64, frame: Frame, offers: &[Offer], random: &mut Random) -> Fleet<S> {
    let offered: u64 = offers.iter().map(|offer| offer.cost).sum();
    // The load per window is between half of the limit and eight times the limit.
    let per_window = offered * frame.window_us / frame.length_us.max(frame.window_us) / u64::from(frame.keys);
    let capacity = (per_window * 2 / random.between(1, 16)).max(1);
    let other = random.pick(&[capacity / 2 + 1, capacity / 10 + 1, capacity * 3]);
    let clocks = (0..frame.instances).map(|_| clock(random)).collect();
    let limits = limits::<S>([capacity, other], frame.window_us, random);
    Fleet {
        limits,
        sync_us: frame.sync_us,
        deadline_us: random.pick(&[50_000, 50_000, 500_000, 5_000_000]),
        start_us: frame.start_us,
        clocks,
        network: network(random),
        parts: 1,
        faults: faults::drawn(frame, random),
        sample_us: 0,
        seed: random.next_u64() ^ seed,
    }
}

/// Returns a limit for each of `capacities` per `window_us`. They differ only in their capacity.
fn limits<S: HasInvariant>(capacities: [u64; 2], window_us: u64, random: &mut Random) -> Vec<S::Limit> {
    let (seed, window) = (random.next_u64(), Duration::from_micros(window_us));
    let limit = |capacity| S::random(capacity, window, &mut Random::seeded(seed));
    // An invalid limit is left out: then no fault can change the limit.
    capacities.into_iter().filter_map(|capacity| limit(capacity).ok()).collect()
}

/// Returns a clock with an offset of up to an hour and a drift of up to one in a thousand.
fn clock(random: &mut Random) -> LocalClock {
    const HOUR_US: u64 = 3_600_000_000;
    const WORST_PPM: u64 = 1_000;
    LocalClock {
        ahead_us: random.below(2 * HOUR_US) as i64 - HOUR_US as i64,
        gains_ppm: random.pick(&[
            0,
            WORST_PPM as i64,
            -(WORST_PPM as i64),
            random.clone().below(2 * WORST_PPM) as i64 - WORST_PPM as i64,
        ]),
    }
}

fn network(random: &mut Random) -> Network {
    let slowest_us = random.pick(&[0, 300, 2_000, 20_000, 200_000]);
    let fastest_us = random.pick(&[0, slowest_us / 2, slowest_us]);
    let lost = |random: &mut Random| random.pick(&[0, 0, 10, 200]);
    let (lost_requests, lost_replies, unsent) = (lost(random), lost(random), lost(random));
    Network { fastest_us, slowest_us, lost_requests, lost_replies, unsent }
}
