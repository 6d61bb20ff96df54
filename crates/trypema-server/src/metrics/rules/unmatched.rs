//! Warns about rules that no request has matched since they were loaded. Probably such a rule has a
//! mistake, or requests lack an attribute.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Started;

/// The age from which an unmatched rule is reported.
const MATCHED_WITHIN: Duration = Duration::from_secs(600);
/// The number of requests, since the rule was loaded, from which it is reported: without traffic no rule
/// matches.
const MATCHED_AMONG: u64 = 1_000;
/// The number of requests between two readings of the clock.
const LOOK_EVERY: u64 = 256;
/// The minimum interval between two scans of all rules, of which there may be thousands.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The number of rules that one warning names: nobody reads more.
const MAX_NAMED: usize = 10;

/// The match history of one rule since it was loaded or changed.
#[derive(Debug)]
pub(super) struct Life {
    loaded: Moment,
    is_matched: AtomicBool,
    is_warned: AtomicBool,
}

/// A point in time, and the number of requests until then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    at: Started,
    requests: u64,
}

impl Moment {
    /// Whether a rule that was loaded at this moment should have matched a request by now.
    fn is_long_ago(&self, age: Duration, requests: u64) -> bool {
        age >= MATCHED_WITHIN && requests.saturating_sub(self.requests) >= MATCHED_AMONG
    }
}

impl Life {
    pub(super) fn new(loaded: Moment) -> Self {
        Self { loaded, is_matched: AtomicBool::new(false), is_warned: AtomicBool::new(false) }
    }

    /// Records that the rule applied to a request.
    pub(super) fn matched(&self) {
        // Usually the flag is set already, and a load avoids invalidating the cache line in other threads.
        if !self.is_matched.load(Ordering::Relaxed) {
            self.is_matched.store(true, Ordering::Relaxed);
        }
    }

    /// Whether to report the rule now. Returns `true` at most once, and only if the rule never matched.
    fn is_due(&self, requests: u64, age_of: impl Fn(&Moment) -> Duration) -> bool {
        !self.is_matched.load(Ordering::Relaxed)
            && self.loaded.is_long_ago(age_of(&self.loaded), requests)
            && !self.is_warned.swap(true, Ordering::Relaxed)
    }
}

/// Counts requests, and schedules the scans for rules that never matched.
#[derive(Debug)]
pub(super) struct Patience {
    started: Started,
    requests: AtomicU64,
    /// The time of the next scan, in seconds after `started`.
    next_look_s: AtomicU64,
}

impl Patience {
    pub(super) fn new() -> Self {
        let next_look_s = AtomicU64::new(MATCHED_WITHIN.as_secs());
        Self { started: Started::now(), requests: AtomicU64::new(0), next_look_s }
    }

    /// Returns the current moment, for rules that are loaded now.
    pub(super) fn moment(&self) -> Moment {
        Moment { at: Started::now(), requests: self.requests.load(Ordering::Relaxed) }
    }

    /// Counts a request. Returns the number of requests so far if all rules should be scanned now.
    pub(super) fn request(&self) -> Option<u64> {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if !requests.is_multiple_of(LOOK_EVERY) {
            return None;
        }
        let now_s = self.started.ago().as_secs();
        let next_s = self.next_look_s.load(Ordering::Relaxed);
        let then_s = now_s + LOOK_AGAIN_AFTER.as_secs();
        let is_first = now_s >= next_s
            && self
                .next_look_s
                .compare_exchange(next_s, then_s, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        is_first.then_some(requests)
    }
}

/// A rule to examine: it may not have matched any request.
pub(super) struct Suspect<'a> {
    pub(super) id: &'a str,
    pub(super) life: &'a Life,
    /// The number of requests that the rule skipped because they lack an attribute of its key.
    pub(super) skipped: u64,
}

/// Logs one warning that names all rules which should have matched by now and did not. `requests` is the
/// number of requests so far.
pub(super) fn warn<'a>(suspects: impl Iterator<Item = Suspect<'a>>, requests: u64) {
    if let Some(rules) = named(suspects, requests, |loaded| loaded.at.ago()) {
        tracing::warn!(
            rules,
            "rules: some have matched no request since they were loaded (at least {} minutes and {MATCHED_AMONG} \
             requests ago); check their endpoints, plans and attributes with `trypema explain`",
            MATCHED_WITHIN.as_secs() / 60,
        );
    }
}

fn named<'a>(
    suspects: impl Iterator<Item = Suspect<'a>>,
    requests: u64,
    age_of: impl Fn(&Moment) -> Duration,
) -> Option<String> {
    let mut due: Vec<Suspect<'_>> =
        suspects.filter(|suspect| suspect.life.is_due(requests, &age_of)).collect();
    if due.is_empty() {
        return None;
    }
    due.sort_unstable_by_key(|suspect| suspect.id);
    let mut names: Vec<String> = due
        .iter()
        .take(MAX_NAMED)
        .map(|suspect| match suspect.skipped {
            0 => suspect.id.to_owned(),
            skipped => {
                format!("{} (skipped {skipped} requests that lack an attribute of its key)", suspect.id)
            }
        })
        .collect();
    if due.len() > MAX_NAMED {
        names.push(format!("and {} more", due.len() - MAX_NAMED));
    }
    Some(names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = MATCHED_WITHIN;

    fn suspects<'a>(lives: &'a [Life], ids: &'a [String]) -> impl Iterator<Item = Suspect<'a>> {
        let skipped = |index: usize| if index == 1 { 50 } else { 0 };
        let rules = lives.iter().zip(ids).enumerate();
        rules.map(move |(index, (life, id))| Suspect { id, life, skipped: skipped(index) })
    }

    fn lives(count: usize, patience: &Patience) -> (Vec<Life>, Vec<String>) {
        let lives = (0..count).map(|_| Life::new(patience.moment())).collect();
        (lives, (0..count).map(|number| format!("r{number:02}")).collect())
    }

    #[test]
    fn each_rule_is_warned_of_once_after_time_and_requests() {
        let (lives, ids) = lives(3, &Patience::new());
        lives[2].matched();
        let told = |requests, age| named(suspects(&lives, &ids), requests, |_| age);
        assert_eq!(told(MATCHED_AMONG, LONG - Duration::from_secs(1)), None, "too early");
        assert_eq!(told(MATCHED_AMONG - 1, LONG), None, "too few requests");
        let expected = "r00, r01 (skipped 50 requests that lack an attribute of its key)";
        assert_eq!(told(MATCHED_AMONG, LONG).as_deref(), Some(expected));
        assert_eq!(told(MATCHED_AMONG, LONG), None, "once");
    }

    #[test]
    fn a_warning_names_a_few_rules() {
        let (lives, ids) = lives(25, &Patience::new());
        let told = named(suspects(&lives, &ids), MATCHED_AMONG, |_| LONG).expect("none has matched");
        assert!(told.contains("r09, and 15 more") && !told.contains("r10"), "{told}");
    }

    #[test]
    fn rules_are_looked_at_by_one_request_at_a_time() {
        let patience = Patience::new();
        let mut looks = (0..10 * LOOK_EVERY).filter_map(|_| patience.request());
        assert_eq!(looks.next(), None, "ten minutes have not passed");
        patience.next_look_s.store(0, Ordering::Relaxed);
        let looks: Vec<u64> = (0..10 * LOOK_EVERY).filter_map(|_| patience.request()).collect();
        assert_eq!(looks, [11 * LOOK_EVERY], "then not for a minute");
        assert_eq!(patience.moment().requests, 20 * LOOK_EVERY);
    }
}
