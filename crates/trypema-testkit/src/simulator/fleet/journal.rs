//! What happened to a fleet.

use super::message::What;

/// Everything that happened.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// The calls, in the order they were made.
    pub offers: Vec<Offered>,
    /// What the store granted, in order.
    pub grants: Vec<Granted>,
    /// What the store forgot, in order.
    pub forgotten: Vec<Forgotten>,
    /// Requests that the store carried out.
    pub messages: u64,
    /// The same for each key of the store, by its number.
    pub per_key: Vec<Requests>,
    /// The same for each second from the start.
    pub per_second: Vec<Requests>,
    /// Calls that instances let pass by themselves.
    pub admitted_here: u64,
    /// What was held, sampled.
    pub held: Vec<Held>,
}

/// Requests to the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// For one call each.
    pub takes: u64,
    /// For leases, and to give them back.
    pub leases: u64,
}

impl Requests {
    /// All of them.
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

/// A call, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered {
    /// When it was made, by the store's clock.
    pub at_us: u64,
    /// To which instance.
    pub instance: u32,
    /// For which key.
    pub key: u32,
    /// For how many units.
    pub cost: u64,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nobody decided it in time.
    Unanswered,
    /// It was let pass.
    Admitted {
        /// When that was decided, by the store's clock.
        at_us: u64,
    },
    /// It was not.
    Denied,
}

/// Units that the store recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// When.
    pub at_us: u64,
    /// Of which key.
    pub key: u32,
    /// Under which of the fleet's limits.
    pub limit: usize,
    /// How many; none where it only took something back.
    pub units: u64,
    /// Until when they may be spent.
    pub until_us: u64,
}

/// Units that counted, and that the store forgot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// When.
    pub at_us: u64,
    /// Of which key.
    pub key: u32,
    /// How many.
    pub units: u64,
}

/// What all instances together held at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// When.
    pub at_us: u64,
    /// How much.
    pub units: u64,
}

/// Units that were let pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Admission {
    /// When.
    pub at_us: u64,
    /// How many.
    pub units: u64,
}

/// What happened to one key.
#[derive(Debug, Clone, Default)]
pub struct KeyJournal {
    /// In order.
    pub admissions: Vec<Admission>,
    /// In order.
    pub grants: Vec<Granted>,
    /// In order.
    pub forgotten: Vec<Forgotten>,
}

impl Journal {
    /// Units let pass.
    pub fn admitted(&self) -> u64 {
        self.offers.iter().filter(|offer| offer.is_admitted()).map(|offer| offer.cost).sum()
    }

    /// Units asked for.
    pub fn offered(&self) -> u64 {
        self.offers.iter().map(|offer| offer.cost).sum()
    }

    /// What happened to one key.
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

    /// Lets a call pass out of a lease.
    pub(super) fn admit_here(&mut self, call: usize, at_us: u64) {
        self.admitted_here += 1;
        self.admit(call, at_us);
    }

    /// Lets a call pass at a moment.
    pub(super) fn admit(&mut self, call: usize, at_us: u64) {
        self.offers[call].fate = Fate::Admitted { at_us };
    }

    /// Does not let a call pass.
    pub(super) fn deny(&mut self, call: usize) {
        self.offers[call].fate = Fate::Denied;
    }
}

impl Offered {
    /// Whether it was let pass.
    pub fn is_admitted(&self) -> bool {
        matches!(self.fate, Fate::Admitted { .. })
    }
}
