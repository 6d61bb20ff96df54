//! A deterministic simulator: virtual time, many instances, traffic shapes, seeds.
//!
//! A [`Simulation`] moves a [`ManualClock`] from call to call, so an hour takes milliseconds and a seed
//! always gives the same [`Record`]. Each client is an instance of a service: it offers a [`Load`] and
//! calls a limiter, its own or a shared one.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use trypema::clock::ManualClock;
//! use trypema::{RateLimit, RateLimiter, WindowSizeSeconds};
//! use trypema_testkit::simulator::{Load, Simulation, Summary};
//!
//! let clock = Arc::new(ManualClock::default());
//! let limiter = RateLimiter::builder()
//!     .clock(clock.clone())
//!     .window_size_seconds(WindowSizeSeconds::try_from(10)?)
//!     .build()?;
//! let rate = RateLimit::try_from(20.0)?;
//! let mut simulation = Simulation::new(clock, 1);
//! for _instance in 0..3 {
//!     simulation.add_client(Load::even(50.0), |key| {
//!         limiter.local().absolute().inc(key, &rate, 1).is_allowed()
//!     });
//! }
//! let all = simulation.run_for(Duration::from_secs(60)).total();
//! assert_eq!(Summary::of(&all.per_window(10)).max, 200);
//! assert_eq!(all.worst_window(10), 200);
//! # Ok::<(), trypema::TrypemaError>(())
//! ```
//!
//! Events happen to an [`Actor`] according to a [`Schedule`]. Stores, networks and faults between instances
//! are further actors with their own events.

mod chance;
mod client;
#[cfg(feature = "redis")]
pub mod fleet;
mod keys;
mod record;
mod schedule;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{Clock, ManualClock, Timestamp};

use crate::random::Random;
use client::{Client, Plan, Span};

pub use client::Load;
pub use keys::Keys;
pub use record::{Series, Summary, Tally};
pub use schedule::{Actor, ActorId, Schedule};
pub use traffic::{Arrivals, Shape, Spacing};

/// Clients that make calls in virtual time; see the [module](self).
pub struct Simulation<'a> {
    clock: Arc<ManualClock>,
    random: Random,
    plans: Vec<Plan<'a>>,
}

impl<'a> Simulation<'a> {
    /// Creates a simulation without clients that moves `clock`. All randomness comes from `seed`.
    pub fn new(clock: Arc<ManualClock>, seed: u64) -> Self {
        Self { clock, random: Random::seeded(seed), plans: Vec::new() }
    }

    /// Adds a client that offers `load`. `ask` decides whether a call for a key is admitted.
    pub fn add_client(&mut self, load: Load, ask: impl FnMut(&str) -> bool + 'a) {
        self.plans.push(Plan { load, ask: Box::new(ask), random: Random::seeded(self.random.next_u64()) });
    }

    /// Runs for `duration`, rounded up to whole seconds, and returns a record of all calls.
    pub fn run_for(self, duration: Duration) -> Record {
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        let start = self.clock.now();
        let span = Span { start, end: start + Duration::from_secs(seconds) };
        let mut schedule = Schedule::new(self.clock);
        let plans = self.plans.into_iter().enumerate();
        let mut clients: Vec<Client<'_>> =
            plans.map(|(id, plan)| Client::new(ActorId(id), plan, span)).collect();
        for client in &mut clients {
            client.schedule_next(&mut schedule);
        }
        schedule.run_until(span.end, &mut clients);
        Record {
            start,
            seconds: seconds as usize,
            clients: clients.into_iter().map(Client::into_series).collect(),
        }
    }
}

/// The calls of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    start: Timestamp,
    seconds: usize,
    /// One series per client and key.
    clients: Vec<Vec<Series>>,
}

impl Record {
    /// Returns the calls of all clients for all keys.
    pub fn total(&self) -> Series {
        self.merged(self.clients.iter().flatten())
    }

    /// Returns the calls of one client, numbered from 0 in the order of adding; empty if there is no such
    /// client.
    pub fn of_client(&self, client: usize) -> Series {
        self.merged(self.clients.iter().skip(client).take(1).flatten())
    }

    /// Returns the calls of all clients for one key, numbered from 0.
    pub fn of_key(&self, key: usize) -> Series {
        self.merged(self.clients.iter().filter_map(|keys| keys.get(key)))
    }

    fn merged<'a>(&self, parts: impl Iterator<Item = &'a Series>) -> Series {
        Series::merged(self.start, self.seconds, parts)
    }
}

#[cfg(test)]
mod tests;
