//! A record of a fleet's run.

use super::message::What;

/// Everything that happened.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// The calls, in order.
    pub offers: Vec<Offered>,
    /// The grants of the store, in order.
    pub grants: Vec<Granted>,
    /// The losses of the store, in order.
    pub forgotten: Vec<Forgotten>,
    /// The number of requests that the store processed.
    pub messages: u64,
    /// The requests for each key of the store, by its number.
    pub per_key: Vec<Requests>,
    /// The requests in each second from the start.
    pub per_second: Vec<Requests>,
    /// The number of calls that instances admitted locally.
    pub admitted_here: u64,
    /// Samples of the held units.
    pub held: Vec<Held>,
}

/// Numbers of requests to the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests for one call each.
    pub takes: u64,
    /// Requests that take or return leases.
    pub leases: u64,
}

impl Requests {
    /// Returns the number of all requests.
    pub fn total(&self) -> u64 {
        self.takes + self.leases
    }

    fn count(list: &mut Vec<Self>, place: usize, other: Self) {
        if list.len() <= place {
            list.resize(place + 1, Self::default());
        }
        list[place].takes += other.takes;
        list[place].leases += other.leases;
    }
}

/// A call and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered {
    /// The time of the call, by the store's clock.
    pub at_us: u64,
    /// The instance that received the call.
    pub instance: u32,
    /// The key.
    pub key: u32,
    /// The number of units.
    pub cost: u64,
    /// The result.
    pub fate: Fate,
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Not decided in time.
    Unanswered,
    /// Admitted.
    Admitted {
        /// The time of the decision, by the store's clock.
        at_us: u64,
    },
    /// Denied.
    Denied,
}

/// Units that the store recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The time of the grant.
    pub at_us: u64,
    /// The key.
    pub key: u32,
    /// The position of the limit in the fleet.
    pub limit: usize,
    /// The number of units; 0 if leases were only returned.
    pub units: u64,
    /// The time until which the units may be spent.
    pub until_us: u64,
}

/// Units that counted, and that the store lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// The time of the loss.
    pub at_us: u64,
    /// The key.
    pub key: u32,
    /// The number of units.
    pub units: u64,
}

/// The units that all instances together hold at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The time.
    pub at_us: u64,
    /// The number of units.
    pub units: u64,
}

/// Admitted units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Admission {
    /// The time.
    pub at_us: u64,
    /// The number of units.
    pub units: u64,
}

/// A record of one key.
#[derive(Debug, Clone, Default)]
pub struct KeyJournal {
    /// Admissions, in order.
    pub admissions: Vec<Admission>,
    /// Grants, in order.
    pub grants: Vec<Granted>,
    /// Losses, in order.
    pub forgotten: Vec<Forgotten>,
}

impl Journal {
    /// Returns the number of admitted units.
    pub fn admitted(&self) -> u64 {
        self.offers.iter().filter(|offer| offer.is_admitted()).map(|offer| offer.cost).sum()
    }

    /// Returns the number of requested units.
    pub fn offered(&self) -> u64 {
        self.offers.iter().map(|offer| offer.cost).sum()
    }

    /// Returns the record of one key.
    pub fn of_key(&self, key: u32) -> KeyJournal {
        let admission = |offer: &Offered| match offer.fate {
            Fate::Admitted { at_us } if offer.key == key => Some(Admission { at_us, units: offer.cost }),
            _ => None,
        };
        let mut admissions: Vec<Admission> = self.offers.iter().filter_map(admission).collect();
        admissions.sort_unstable();
        KeyJournal {
            admissions,
            grants: self.grants.iter().filter(|grant| grant.key == key).copied().collect(),
            forgotten: self
                .forgotten
                .iter()
                .filter(|lost| lost.key == key && lost.units > 0)
                .copied()
                .collect(),
        }
    }

    /// Counts a request for a key in a second.
    pub(super) fn count(&mut self, key: u32, second: u64, what: &What) {
        let is_take = matches!(what, What::Take(_));
        let one = Requests { takes: u64::from(is_take), leases: u64::from(!is_take) };
        self.messages += 1;
        Requests::count(&mut self.per_key, key as usize, one);
        Requests::count(&mut self.per_second, second as usize, one);
    }

    /// Records that an instance admitted a call out of a lease.
    pub(super) fn admit_here(&mut self, call: usize, at_us: u64) {
        self.admitted_here += 1;
        self.admit(call, at_us);
    }

    /// Records that a call was admitted at some time.
    pub(super) fn admit(&mut self, call: usize, at_us: u64) {
        self.offers[call].fate = Fate::Admitted { at_us };
    }

    /// Records that a call was denied.
    pub(super) fn deny(&mut self, call: usize) {
        self.offers[call].fate = Fate::Denied;
    }
}

impl Offered {
    /// Whether the call was admitted.
    pub fn is_admitted(&self) -> bool {
        matches!(self.fate, Fate::Admitted { .. })
    }
}
