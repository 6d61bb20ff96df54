//! A fleet: instances that lease from one store over a network, with whatever can go wrong in between.
//!
//! What an instance holds and what the store grants are the library's own ([`Holding`](trypema::hybrid::Holding) and
//! [`Leasable::lease`]); everything around them is virtual: clocks that differ, messages that are late, overtake each
//! other or get lost, stores that freeze or forget, instances that die. A [`Journal`] says what happened, and a
//! [`Law`] whether that was too much.
//!
//! ```
//! use std::time::Duration;
//! use trypema::strategy::{Absolute, AbsoluteLimit};
//! use trypema_testkit::simulator::fleet::{Fleet, Legal, Network, Offer};
//!
//! let limit = AbsoluteLimit::per_window(100, Duration::from_secs(10))?;
//! let fleet = Fleet::<Absolute>::new(limit).instances(3).network(Network::of_millis(0, 2));
//! let offers = (0..3_000).map(|n| Offer { after_us: n * 10_000, instance: (n % 3) as u32, key: 0, cost: 1 });
//! let journal = fleet.run(offers);
//!
//! assert_eq!(Absolute::law(&limit).broken_by(&journal.of_key(0)), None);
//! assert!(journal.admitted() > 280);
//! # Ok::<(), trypema::TrypemaError>(())
//! ```

pub mod chaos;
mod fault;
mod instance;
mod journal;
mod law;
mod local_clock;
mod measures;
mod message;
mod network;
mod store;
mod traffic;
mod world;

pub use fault::{Fault, Mishap};
pub use journal::{Admission, Fate, Forgotten, Granted, Held, Journal, KeyJournal, Offered, Requests};
pub use law::{Broken, Law, Legal};
pub use local_clock::LocalClock;
pub use measures::Measures;
pub use network::Network;
pub use traffic::{Favourite, Traffic};

use std::sync::Arc;

use trypema::clock::{ManualClock, Timestamp};
use trypema::strategy::Leasable;

use super::schedule::{ActorId, Schedule};
use world::{Event, World};

/// An instance is taken to be alive for this long after it last asked for a key.
pub const LIVE_FOR_US: u64 = 3_000_000;

/// One call that somebody makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// When, from the start.
    pub after_us: u64,
    /// To which instance.
    pub instance: u32,
    /// For which key.
    pub key: u32,
    /// For how many units.
    pub cost: u64,
}

/// Instances, their store, and what happens to them.
#[derive(Debug, Clone)]
pub struct Fleet<S: Leasable> {
    /// The limits that instances go by: the first, until a fault lets one change to another.
    pub limits: Vec<S::Limit>,
    /// Instances ask no more often than this, each for each key.
    pub sync_us: u64,
    /// How long an instance waits for an answer.
    pub deadline_us: u64,
    /// When it starts, by the store's clock.
    pub start_us: u64,
    /// The clock of each instance.
    pub clocks: Vec<LocalClock>,
    /// What is between instances and store.
    pub network: Network,
    /// Into how many each key is split; 1 for none. The limits are then those of a part.
    pub parts: u32,
    /// What goes wrong.
    pub mishaps: Vec<Mishap>,
    /// How often it is written down what is held; 0 for never.
    pub sample_us: u64,
    /// All chance of the network comes from this.
    pub seed: u64,
}

impl<S: Leasable> Fleet<S> {
    /// When fleets start unless told otherwise: at the beginning of a window of 1, 5, 10 or 100 seconds.
    pub const START_US: u64 = 1_600_000_000_000_000;

    /// One instance with a perfect clock beside its store.
    pub fn new(limit: S::Limit) -> Self {
        Self {
            limits: vec![limit],
            sync_us: 1_000_000,
            deadline_us: 1_000_000,
            start_us: Self::START_US,
            clocks: vec![LocalClock::PERFECT],
            network: Network::of_millis(0, 0),
            parts: 1,
            mishaps: Vec::new(),
            sample_us: 0,
            seed: 0,
        }
    }

    /// The same with `count` instances, whose clocks are perfect.
    #[must_use]
    pub fn instances(self, count: usize) -> Self {
        Self { clocks: vec![LocalClock::PERFECT; count], ..self }
    }

    /// The same with another network.
    #[must_use]
    pub fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// Lets all of `offers`, which are in the order of their time, and everything that follows from them happen.
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

/// The only actor: instances and store know nothing of the schedule.
const WORLD: ActorId = ActorId(0);
