//! Compares a fleet with one exact limiter that decides every call immediately.

use std::collections::BTreeMap;

use trypema::clock::Timestamp;
use trypema::strategy::{Call, Leasable};

use super::journal::{Fate, Journal, KeyJournal, Offered};

/// The measures of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measures {
    /// The number of calls.
    pub calls: u64,
    /// The number of admitted units.
    pub admitted: u64,
    /// The number of units that the exact limiter admits of the same calls.
    pub exact: u64,
    /// The number of calls that the exact limiter admits, and that were denied or not decided.
    pub wrongly_denied: u64,
    /// The number of requests that the store processed.
    pub messages: u64,
    /// Jain's fairness index of the admission rates of the instances: 1 if all are the same.
    pub fairness: f64,
    /// The maximum of the sampled held units.
    pub most_held: u64,
}

impl Measures {
    /// Measures a run under one limit.
    pub fn of<S: Leasable>(limit: &S::Limit, journal: &Journal) -> Self {
        let exact = journal.decided_exactly::<S>(limit);
        let both = || journal.offers.iter().zip(&exact.offers);
        Self {
            calls: journal.offers.len() as u64,
            admitted: journal.admitted(),
            exact: exact.admitted(),
            wrongly_denied: both().filter(|(one, exact)| exact.is_admitted() && !one.is_admitted()).count()
                as u64,
            messages: journal.messages,
            fairness: fairness(journal),
            most_held: journal.held.iter().map(|held| held.units).max().unwrap_or(0),
        }
    }

    /// Returns the admitted units as a share of those that the exact limiter admits.
    pub fn share_of_exact(&self) -> f64 {
        self.admitted as f64 / self.exact.max(1) as f64
    }

    /// Returns the number of calls per request to the store.
    pub fn calls_per_message(&self) -> f64 {
        self.calls as f64 / self.messages.max(1) as f64
    }

    /// Returns the share of calls that were denied, although the exact limiter admits them.
    pub fn wrong_share(&self) -> f64 {
        self.wrongly_denied as f64 / self.calls.max(1) as f64
    }
}

impl Journal {
    /// Returns the results of the same calls if one limiter decides each of them immediately.
    pub fn decided_exactly<S: Leasable>(&self, limit: &S::Limit) -> Self {
        let mut states: BTreeMap<u32, S::State> = BTreeMap::new();
        let decide = |offer: &Offered| {
            let state = states.entry(offer.key).or_default();
            let call = Call::new(Timestamp::from_micros(offer.at_us), offer.cost);
            let outcome = S::decide(limit, state, call);
            S::commit(limit, state, call, &outcome);
            let at_us = offer.at_us;
            let fate = if S::is_admitted(&outcome) { Fate::Admitted { at_us } } else { Fate::Denied };
            Offered { fate, ..*offer }
        };
        Self { offers: self.offers.iter().map(decide).collect(), ..Self::default() }
    }
}

impl KeyJournal {
    /// Returns the maximum number of units in any half-open interval of this length.
    pub fn worst_window(&self, window_us: u64) -> u64 {
        let (mut oldest, mut sum, mut worst) = (0, 0, 0);
        for one in &self.admissions {
            sum += one.units;
            while self.admissions[oldest].at_us + window_us <= one.at_us {
                sum -= self.admissions[oldest].units;
                oldest += 1;
            }
            worst = worst.max(sum);
        }
        worst
    }

    /// Returns the units from `first_us` (included) to `end_us` (excluded).
    pub fn between(&self, first_us: u64, end_us: u64) -> u64 {
        let within = self.admissions.iter().filter(|one| (first_us..end_us).contains(&one.at_us));
        within.map(|one| one.units).sum()
    }
}

fn fairness(journal: &Journal) -> f64 {
    let mut tallies: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for offer in &journal.offers {
        let [calls, admitted] = tallies.entry(offer.instance).or_default();
        *calls += 1;
        *admitted += u64::from(offer.is_admitted());
    }
    let shares = || tallies.values().map(|[calls, admitted]| *admitted as f64 / *calls as f64);
    let squares: f64 = shares().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { shares().sum::<f64>().powi(2) / (tallies.len() as f64 * squares) }
}
