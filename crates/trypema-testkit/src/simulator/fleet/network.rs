//! The network between instances and store.

use crate::random::Random;

/// The latency of messages, and the rates at which they get lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The shortest latency in one direction.
    pub fastest_us: u64,
    /// The longest latency in one direction.
    pub slowest_us: u64,
    /// The number of requests in a thousand that get lost.
    pub lost_requests: u64,
    /// The number of replies in a thousand that get lost.
    pub lost_replies: u64,
    /// The number of requests in a thousand that cannot be sent, which the instance notices.
    pub unsent: u64,
}

/// The outcome of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It arrives after this latency.
    Takes(u64),
    /// It gets lost.
    Lost,
    /// It is never sent.
    Unsent,
}

impl Network {
    /// Creates a network without losses, with a latency from `fastest` to `slowest` milliseconds in each
    /// direction.
    pub fn of_millis(fastest: u64, slowest: u64) -> Self {
        let (fastest_us, slowest_us) = (fastest * 1_000, slowest * 1_000);
        Self { fastest_us, slowest_us, lost_requests: 0, lost_replies: 0, unsent: 0 }
    }

    pub(super) fn request(&self, random: &mut Random) -> Way {
        if self.unsent > 0 && random.below(1_000) < self.unsent {
            return Way::Unsent;
        }
        self.way(self.lost_requests, random)
    }

    pub(super) fn reply(&self, random: &mut Random) -> Way {
        self.way(self.lost_replies, random)
    }

    fn way(&self, lost: u64, random: &mut Random) -> Way {
        if lost > 0 && random.below(1_000) < lost {
            return Way::Lost;
        }
        Way::Takes(random.between(self.fastest_us, self.slowest_us.max(self.fastest_us)))
    }
}
