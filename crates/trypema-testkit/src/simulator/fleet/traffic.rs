//! Steady traffic on a fleet.

use super::Offer;
use crate::random::Random;
use crate::simulator::chance::share;
use crate::simulator::keys::{KeyPicker, Keys};

/// Calls at a steady rate, as from many independent callers (a Poisson process).
#[derive(Debug, Clone)]
pub struct Traffic {
    /// The rate of all instances together, in calls per second.
    pub per_second: f64,
    /// The duration.
    pub length_us: u64,
    /// The number of instances.
    pub instances: u32,
    /// The instances that receive nine of ten calls, each from a given time on, in order.
    pub favourites: Vec<Favourite>,
    /// The distribution of calls over keys.
    pub keys: Keys,
    /// The seed of all randomness.
    pub seed: u64,
}

/// An instance that receives most calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Favourite {
    /// The time from which it does.
    pub from_us: u64,
    /// The instance.
    pub instance: u32,
}

impl Traffic {
    /// Creates traffic for one key, spread evenly over `instances`, for `seconds`.
    pub fn steady(per_second: f64, instances: u32, seconds: u64) -> Self {
        let length_us = seconds * 1_000_000;
        Self { per_second, length_us, instances, favourites: Vec::new(), keys: Keys::One, seed: 1 }
    }

    /// Returns the calls, in order.
    pub fn offers(&self) -> impl Iterator<Item = Offer> + '_ {
        let mut random = Random::seeded(self.seed);
        let keys = KeyPicker::new(self.keys);
        let mut after_us = 0.0;
        std::iter::from_fn(move || {
            after_us += -(1.0 - share(&mut random)).ln() * 1e6 / self.per_second;
            let now_us = after_us as u64;
            let instance = self.instance(now_us, &mut random);
            let key = keys.pick(&mut random) as u32;
            (now_us < self.length_us).then_some(Offer { after_us: now_us, instance, key, cost: 1 })
        })
    }

    fn instance(&self, now_us: u64, random: &mut Random) -> u32 {
        let favourite = self.favourites.iter().rfind(|favourite| favourite.from_us <= now_us);
        match favourite {
            Some(favourite) if random.below(10) < 9 => favourite.instance,
            _ => random.below(u64::from(self.instances)) as u32,
        }
    }
}
