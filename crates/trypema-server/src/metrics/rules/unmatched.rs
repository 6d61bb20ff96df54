//! Warns about rules that no request has matched since they were loaded. Such a rule probably has a mistake,
//! or requests lack an attribute.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Started;

/// The minimum age of an unmatched rule that is reported.
const MATCHED_WITHIN: Duration = Duration::from_secs(600);
/// An unmatched rule is reported only after this many requests, because without traffic no rule matches.
const MATCHED_AMONG: u64 = 1_000;
/// The number of requests between two readings of the clock.
const CHECK_EVERY: u64 = 256;
/// The minimum interval between two scans of all rules, of which there may be thousands.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
/// The number of rules that one warning names: nobody reads more.
const MAX_NAMED: usize = 10;

/// The match history of one rule since it was loaded or changed.
#[derive(Debug)]
pub(super) struct MatchHistory {
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
    fn is_overdue(&self, age: Duration, requests: u64) -> bool {
        age >= MATCHED_WITHIN && requests.saturating_sub(self.requests) >= MATCHED_AMONG
    }
}

impl MatchHistory {
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
            && self.loaded.is_overdue(age_of(&self.loaded), requests)
            && !self.is_warned.swap(true, Ordering::Relaxed)
    }
}

/// Counts requests, and schedules the scans for rules that never matched.
#[derive(Debug)]
pub(super) struct UnmatchedScan {
    started: Started,
    requests: AtomicU64,
    /// The time of the next scan, in seconds after `started`.
    next_scan_s: AtomicU64,
}

impl UnmatchedScan {
    pub(super) fn new() -> Self {
        let next_scan_s = AtomicU64::new(MATCHED_WITHIN.as_secs());
        Self { started: Started::now(), requests: AtomicU64::new(0), next_scan_s }
    }

    /// Returns the current moment, for rules that are loaded now.
    pub(super) fn moment(&self) -> Moment {
        Moment { at: Started::now(), requests: self.requests.load(Ordering::Relaxed) }
    }

    /// Counts a request. Returns the number of requests so far if all rules should be scanned now.
    pub(super) fn request(&self) -> Option<u64> {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if !requests.is_multiple_of(CHECK_EVERY) {
            return None;
        }
        let now_s = self.started.ago().as_secs();
        let next_s = self.next_scan_s.load(Ordering::Relaxed);
        let then_s = now_s + SCAN_INTERVAL.as_secs();
        let is_first = now_s >= next_s
            && self
                .next_scan_s
                .compare_exchange(next_s, then_s, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        is_first.then_some(requests)
    }
}

/// A rule to examine: it may not have matched any request.
pub(super) struct UnmatchedRule<'a> {
    pub(super) id: &'a str,
    pub(super) history: &'a MatchHistory,
    /// The number of requests that the rule skipped because they lack an attribute of its key.
    pub(super) skipped: u64,
}

/// Logs one warning that names all rules which should have matched by now and did not. `requests` is the
/// number of requests so far.
pub(super) fn warn<'a>(unmatched_rules: impl Iterator<Item = UnmatchedRule<'a>>, requests: u64) {
    if let Some(rules) = named(unmatched_rules, requests, |loaded| loaded.at.ago()) {
        tracing::warn!(
            rules,
            "rules: some rules have matched no request since they were loaded (at least {} minutes and {MATCHED_AMONG} \
             requests ago); check their endpoints, plans and attributes with `trypema explain`",
            MATCHED_WITHIN.as_secs() / 60,
        );
    }
}

fn named<'a>(
    unmatched_rules: impl Iterator<Item = UnmatchedRule<'a>>,
    requests: u64,
    age_of: impl Fn(&Moment) -> Duration,
) -> Option<String> {
    let mut due: Vec<UnmatchedRule<'_>> =
        unmatched_rules.filter(|rule| rule.history.is_due(requests, &age_of)).collect();
    if due.is_empty() {
        return None;
    }
    due.sort_unstable_by_key(|rule| rule.id);
    let mut names: Vec<String> = due
        .iter()
        .take(MAX_NAMED)
        .map(|rule| match rule.skipped {
            0 => rule.id.to_owned(),
            skipped => {
                format!("{} (skipped {skipped} requests that lack an attribute of its key)", rule.id)
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

    fn unmatched_rules<'a>(
        lives: &'a [MatchHistory],
        ids: &'a [String],
    ) -> impl Iterator<Item = UnmatchedRule<'a>> {
        let skipped = |index: usize| if index == 1 { 50 } else { 0 };
        let rules = lives.iter().zip(ids).enumerate();
        rules.map(move |(index, (history, id))| UnmatchedRule { id, history, skipped: skipped(index) })
    }

    fn lives(count: usize, unmatched_scan: &UnmatchedScan) -> (Vec<MatchHistory>, Vec<String>) {
        let lives = (0..count).map(|_| MatchHistory::new(unmatched_scan.moment())).collect();
        (lives, (0..count).map(|number| format!("r{number:02}")).collect())
    }

    #[test]
    fn each_rule_is_warned_of_once_after_time_and_requests() {
        let (lives, ids) = lives(3, &UnmatchedScan::new());
        lives[2].matched();
        let warning = |requests, age| named(unmatched_rules(&lives, &ids), requests, |_| age);
        assert_eq!(warning(MATCHED_AMONG, LONG - Duration::from_secs(1)), None, "too early");
        assert_eq!(warning(MATCHED_AMONG - 1, LONG), None, "too few requests");
        let expected = "r00, r01 (skipped 50 requests that lack an attribute of its key)";
        assert_eq!(warning(MATCHED_AMONG, LONG).as_deref(), Some(expected));
        assert_eq!(warning(MATCHED_AMONG, LONG), None, "once");
    }

    #[test]
    fn a_warning_names_a_few_rules() {
        let (lives, ids) = lives(25, &UnmatchedScan::new());
        let warning =
            named(unmatched_rules(&lives, &ids), MATCHED_AMONG, |_| LONG).expect("none has matched");
        assert!(warning.contains("r09, and 15 more") && !warning.contains("r10"), "{warning}");
    }

    #[test]
    fn rules_are_looked_at_by_one_request_at_a_time() {
        let unmatched_scan = UnmatchedScan::new();
        let mut scans = (0..10 * CHECK_EVERY).filter_map(|_| unmatched_scan.request());
        assert_eq!(scans.next(), None, "ten minutes have not passed");
        unmatched_scan.next_scan_s.store(0, Ordering::Relaxed);
        let scans: Vec<u64> = (0..10 * CHECK_EVERY).filter_map(|_| unmatched_scan.request()).collect();
        assert_eq!(scans, [11 * CHECK_EVERY], "then not for a minute");
        assert_eq!(unmatched_scan.moment().requests, 20 * CHECK_EVERY);
    }
}
