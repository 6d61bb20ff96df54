//! A fleet: instances that lease from one store over a network, with faults.
//!
//! The state of an instance and the grants of the store are the library's own code
//! ([`Holding`](trypema::hybrid::Holding) and [`Leasable::lease`]). Everything around them is virtual:
//! clocks that differ, messages that are late, overtake each other or get lost, stores that freeze or lose
//! data, instances that crash. A [`Journal`] records what happened, and a [`Invariant`] checks that the limit was
//! not exceeded.
//!
//! ```
//! use std::time::Duration;
//! use trypema::strategy::{Absolute, AbsoluteLimit};
//! use trypema_testkit::simulator::fleet::{Fleet, HasInvariant, Network, Offer};
//!
//! let limit = AbsoluteLimit::per_window(100, Duration::from_secs(10))?;
//! let fleet = Fleet::<Absolute>::new(limit).instances(3).network(Network::of_millis(0, 2));
//! let offers = (0..3_000).map(|n| Offer { after_us: n * 10_000, instance: (n % 3) as u32, key: 0, cost: 1 });
//! let journal = fleet.run(offers);
//!
//! assert_eq!(Absolute::invariant(&limit).violation_in(&journal.of_key(0)), None);
//! assert!(journal.admitted() > 280);
//! # Ok::<(), trypema::TrypemaError>(())
//! ```

pub mod chaos;
mod fault;
mod instance;
mod invariant;
mod journal;
mod local_clock;
mod measures;
mod message;
mod network;
mod store;
mod traffic;
mod world;

pub use fault::{Fault, ScheduledFault};
pub use invariant::{Broken, HasInvariant, Invariant, Refill};
pub use journal::{Admission, Fate, Forgotten, Granted, Held, Journal, KeyJournal, Offered, Requests};
pub use local_clock::LocalClock;
pub use measures::Measures;
pub use network::Network;
pub use traffic::{Favourite, Traffic};

use std::sync::Arc;

use trypema::clock::{ManualClock, Timestamp};
use trypema::strategy::Leasable;

use super::schedule::{ActorId, Schedule};
use world::{Event, World};

/// The time after its last request for a key during which an instance counts as live.
pub const LIVE_FOR_US: u64 = 3_000_000;

/// One call to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The time of the call, from the start.
    pub after_us: u64,
    /// The instance that receives the call.
    pub instance: u32,
    /// The key.
    pub key: u32,
    /// The number of units.
    pub cost: u64,
}

/// Instances, their store, and the faults that happen to them.
#[derive(Debug, Clone)]
pub struct Fleet<S: Leasable> {
    /// The limits of the fleet. Instances use the first, until a fault changes the limit of one.
    pub limits: Vec<S::Limit>,
    /// The minimum interval between two lease requests of an instance for a key.
    pub sync_us: u64,
    /// The time that an instance waits for a reply.
    pub deadline_us: u64,
    /// The start, by the store's clock.
    pub start_us: u64,
    /// The clock of each instance.
    pub clocks: Vec<LocalClock>,
    /// The network between instances and store.
    pub network: Network,
    /// The number of parts that each key is split into; 1 for no split. The limits are those of a part.
    pub parts: u32,
    /// The faults.
    pub faults: Vec<ScheduledFault>,
    /// The interval at which held units are sampled; 0 for never.
    pub sample_us: u64,
    /// The seed of all randomness of the network.
    pub seed: u64,
}

impl<S: Leasable> Fleet<S> {
    /// The default start: the beginning of a window of 1, 5, 10 or 100 seconds.
    pub const START_US: u64 = 1_600_000_000_000_000;

    /// Creates a fleet of one instance with a perfect clock and no network delay.
    pub fn new(limit: S::Limit) -> Self {
        Self {
            limits: vec![limit],
            sync_us: 1_000_000,
            deadline_us: 1_000_000,
            start_us: Self::START_US,
            clocks: vec![LocalClock::PERFECT],
            network: Network::of_millis(0, 0),
            parts: 1,
            faults: Vec::new(),
            sample_us: 0,
            seed: 0,
        }
    }

    /// Sets the number of instances, all with perfect clocks.
    #[must_use]
    pub fn instances(self, count: usize) -> Self {
        Self { clocks: vec![LocalClock::PERFECT; count], ..self }
    }

    /// Sets the network.
    #[must_use]
    pub fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// Plays all `offers`, which have to be in order of time, and everything that follows from them.
    pub fn run(self, offers: impl Iterator<Item = Offer>) -> Journal {
        let start = Timestamp::from_micros(self.start_us);
        let mut schedule: Schedule<Event<S>> = Schedule::new(Arc::new(ManualClock::starting_at(start)));
        let mut actors = [World::new(self, offers)];
        actors[WORLD.0].begin(&mut schedule);
        schedule.run_until(Timestamp::MAX, &mut actors);
        let [world] = actors;
        world.into_journal()
    }
}

/// The only actor: instances and store do not know the schedule.
const WORLD: ActorId = ActorId(0);
