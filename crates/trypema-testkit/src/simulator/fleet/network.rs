//! What is between instances and store.

use crate::random::Random;

/// How long messages are under way, and how many never arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The shortest way, either way.
    pub fastest_us: u64,
    /// The longest.
    pub slowest_us: u64,
    /// Of a thousand requests, so many are lost.
    pub lost_requests: u64,
    /// Of a thousand replies, so many are lost.
    pub lost_replies: u64,
    /// Of a thousand requests, so many cannot be sent, and the instance knows it.
    pub unsent: u64,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It arrives so much later.
    Takes(u64),
    /// It never arrives.
    Lost,
    /// It was never sent.
    Unsent,
}

impl Network {
    /// Nothing is lost; each way takes from `fastest` to `slowest` milliseconds.
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
