//! Reservations, rule by rule: those that this server made, settled, released and renewed, and those that are
//! outstanding.
//!
//! Any server can settle a reservation, and nobody is told when one expires in Redis. So each server keeps the
//! times at which reservations expire: one more for each that it made, one less for each that it settled.
//! Both leave at the time of expiry. The sum over all servers is the number of outstanding reservations.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::observer::{Event, Observer, ReservationChange, ReservationEvent};
use trypema::rules::RuleSet;

use super::{Counter, Exposition, Families, Metric, MetricType, metrics};

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The reservations of every rule.
#[derive(Debug)]
pub(crate) struct ReservationMetrics {
    clock: Option<Arc<dyn Clock>>,
    rules: Mutex<HashMap<Box<str>, RuleReservations>>,
}

metrics! {
    /// The reservations of one rule.
    RuleReservations {
        "trypema_reservations_total",
        "Reservations by rule and event. not_outstanding: to be settled, released or renewed, but expired, ended before or never made.",
        by "event" { made: Counter, settled: Counter, released: Counter, renewed: Counter, not_outstanding: Counter }
        "trypema_reservations_outstanding",
        "Reservations that this server made and that have not expired, less those that it ended before. Only the sum over all servers is the number of outstanding reservations: one server can end those of another." {
            expiring: Expiring
        }
        "trypema_reservations_expired",
        "Reservations that this server made and whose time is over, less those that it ended before. Only the sum over all servers is the number of reservations that expired without being settled or released." {
            /// The sum of the entries of `expiring` that are past.
            expired: i64
        }
    }
}

/// By the second in which they expire, the reservations that this server made, less those that it ended.
/// No reservation lasts longer than an hour, so there are at most 3,601 entries.
#[derive(Debug, Default)]
pub(crate) struct Expiring(BTreeMap<u64, i64>);

impl Metric for Expiring {
    const TYPE: MetricType = MetricType::Gauge;

    fn write(&self, text: &mut Exposition, labels: &[(&str, &str)]) {
        text.sample(labels, self.0.values().sum::<i64>());
    }
}

impl Observer for ReservationMetrics {
    /// Does nothing: decisions are counted from the verdicts of rules.
    fn decided(&self, _: &Event<'_>) {}

    fn reservation_changed(&self, event: &ReservationEvent<'_>) {
        let now_us = self.now_us();
        let mut rules = self.rules();
        let rule = match rules.get_mut(event.rule) {
            Some(rule) => rule,
            None => rules.entry(event.rule.into()).or_default(),
        };
        rule.advance(now_us);
        let (count, was_left, expires_in) = match event.change {
            ReservationChange::Reserved { expires_in } => (&rule.made, None, Some(expires_in)),
            ReservationChange::Renewed { was_left, expires_in } => {
                (&rule.renewed, Some(was_left), Some(expires_in))
            }
            ReservationChange::Settled { was_left } => (&rule.settled, Some(was_left), None),
            ReservationChange::Released { was_left } => (&rule.released, Some(was_left), None),
            ReservationChange::NotOutstanding => (&rule.not_outstanding, None, None),
            _ => return,
        };
        count.add_one();
        was_left.into_iter().for_each(|left| rule.add(now_us, left, -1));
        expires_in.into_iter().for_each(|left| rule.add(now_us, left, 1));
    }
}

impl ReservationMetrics {
    /// Counts nothing yet. Follows `clock`, or the clock of the system.
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, rules: Mutex::default() }
    }

    /// Writes the reservations of the rules in force, and forgets rules that are not and have none left.
    pub(crate) fn write(&self, text: &mut Exposition, in_force: &RuleSet) {
        let now_us = self.now_us();
        let mut rules = self.rules();
        rules.values_mut().for_each(|rule| rule.advance(now_us));
        rules.retain(|id, rule| in_force.rule(id).is_some() || !rule.expiring.0.is_empty());
        let mut sorted: Vec<_> = rules
            .iter()
            .filter(|(id, _)| in_force.rule(id).is_some())
            .map(|(id, rule)| ([("rule", &**id)], rule))
            .collect();
        sorted.sort_unstable_by_key(|(label, _)| *label);
        RuleReservations::write_all(text, sorted.iter().map(|(label, rule)| (&label[..], *rule)));
    }

    fn now_us(&self) -> u64 {
        self.clock.as_ref().map_or_else(|| SystemClock.now(), |clock| clock.now()).as_micros()
    }

    fn rules(&self) -> MutexGuard<'_, HashMap<Box<str>, RuleReservations>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RuleReservations {
    /// Adds to the reservations that expire after `left`.
    fn add(&mut self, now_us: u64, left: Duration, count: i64) {
        let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        let second = now_us.saturating_add(left_us).div_ceil(MICROS_PER_SECOND);
        let entry = self.expiring.0.entry(second).or_default();
        *entry += count;
        if *entry == 0 {
            self.expiring.0.remove(&second);
        }
    }

    /// Moves the reservations whose time is over to the expired ones.
    fn advance(&mut self, now_us: u64) {
        while let Some(entry) = self.expiring.0.first_entry()
            && *entry.key() * MICROS_PER_SECOND <= now_us
        {
            self.expired += entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use trypema::RateLimiter;
    use trypema::clock::ManualClock;
    use trypema::rules::{Engine, OnDrop, Request, ReserveOptions};
    use trypema_testkit::blocking::wait_for;

    use super::*;

    const RULES: &str = "
rules:
  - {id: slots, scope: user, strategy: {concurrency: {limit: 9, hold: 5m}}}
  - {id: shadow, scope: user, action: log_only, strategy: {fixed_window: {limit: 2, window: 1h}}}
";

    /// Servers that share their counters.
    struct Fleet {
        clock: Arc<ManualClock>,
        limiter: Arc<RateLimiter>,
    }

    struct Server {
        engine: Arc<Engine>,
        metrics: Arc<ReservationMetrics>,
    }

    impl Fleet {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::default());
            let limiter = Arc::new(RateLimiter::builder().clock(clock.clone()).build().unwrap());
            Self { clock, limiter }
        }

        fn server(&self) -> Server {
            let metrics = Arc::new(ReservationMetrics::new(Some(self.clock.clone())));
            let rules = RuleSet::from_yaml(RULES, "rules.yaml").unwrap();
            let engine = Engine::local(Arc::clone(&self.limiter), rules).observed_by(metrics.clone());
            Server { engine: Arc::new(engine), metrics }
        }

        fn pass(&self, seconds: u64) {
            self.clock.advance(Duration::from_secs(seconds));
        }
    }

    impl Server {
        fn reserve(&self, seconds: u64, id: Option<&str>) -> Option<String> {
            let options = ReserveOptions::new(Duration::from_secs(seconds)).unwrap().on_drop(OnDrop::Keep);
            let options = match id {
                Some(id) => options.with_id(id).unwrap(),
                None => options,
            };
            wait_for(self.engine.reserve(&Request::new(&[("user", "ann")]), &options)).unwrap().into_text()
        }

        fn sample(&self, name: &str, labels: &str) -> i64 {
            let mut text = Exposition::default();
            self.metrics.write(&mut text, &self.engine.rules());
            let text = text.into_text();
            let start = format!("trypema_reservations_{name}{{{labels}}} ");
            text.lines().find_map(|line| line.strip_prefix(&start)).map_or(0, |value| value.parse().unwrap())
        }

        fn count(&self, event: &str) -> i64 {
            self.sample("total", &format!("rule=\"slots\",event=\"{event}\""))
        }

        /// Returns the gauges of a rule: outstanding, expired.
        fn gauges(&self, rule: &str) -> [i64; 2] {
            ["outstanding", "expired"].map(|name| self.sample(name, &format!("rule=\"{rule}\"")))
        }
    }

    #[test]
    fn each_event_is_counted_once() {
        let fleet = Fleet::new();
        let server = fleet.server();
        let [first, second] = [(); 2].map(|()| server.reserve(60, None).unwrap());
        let named = server.reserve(60, Some("id")).unwrap();
        assert_eq!(server.reserve(60, Some("id")), Some(named), "repeated, and not counted again");
        assert_eq!((server.count("made"), server.gauges("slots")), (3, [3, 0]));
        assert_eq!(server.gauges("shadow"), [2, 0], "a log-only rule reserves what fits");
        wait_for(server.engine.settle(&first, &[])).unwrap();
        wait_for(server.engine.release(&second)).unwrap();
        wait_for(server.engine.release(&second)).unwrap();
        let counts = ["made", "settled", "released", "not_outstanding"].map(|event| server.count(event));
        assert_eq!((counts, server.gauges("slots")), ([3, 1, 1, 1], [1, 0]));
        fleet.pass(61);
        assert_eq!((server.gauges("slots"), server.gauges("shadow")), ([0, 1], [0, 0]));
    }

    #[test]
    fn a_denied_request_leaves_nothing() {
        let fleet = Fleet::new();
        let server = fleet.server();
        (0..9).for_each(|_| drop(server.reserve(60, None).unwrap()));
        assert_eq!(server.reserve(60, None), None);
        assert_eq!((server.count("made"), server.count("released")), (9, 0));
        assert_eq!(server.gauges("slots"), [9, 0]);
    }

    #[test]
    fn the_sum_over_servers_is_exact() {
        let fleet = Fleet::new();
        let (first, second) = (fleet.server(), fleet.server());
        let sum = || {
            let (first, second) = (first.gauges("slots"), second.gauges("slots"));
            [first[0] + second[0], first[1] + second[1]]
        };
        let [settled, renewed, lost] = [60, 60, 10].map(|seconds| first.reserve(seconds, None).unwrap());
        wait_for(second.engine.settle(&settled, &[])).unwrap();
        assert_eq!((first.gauges("slots")[0], second.gauges("slots")[0], sum()), (3, -1, [2, 0]));
        fleet.pass(30);
        assert_eq!(sum(), [1, 1]);
        wait_for(second.engine.settle(&lost, &[])).unwrap();
        assert_eq!((sum(), second.count("not_outstanding")), ([1, 1], 1));
        wait_for(second.engine.renew(&renewed, Duration::from_secs(300))).unwrap();
        fleet.pass(31);
        assert_eq!((sum(), second.gauges("slots")), ([1, 1], [1, -2]), "the first time is over");
        wait_for(first.engine.release(&renewed)).unwrap();
        assert_eq!(sum(), [0, 1]);
        fleet.pass(3_600);
        assert_eq!(sum(), [0, 1]);
    }

    #[test]
    fn rules_without_reservations_are_forgotten() {
        let fleet = Fleet::new();
        let server = fleet.server();
        server.reserve(60, None).unwrap();
        let other = "rules: [{id: other, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}]";
        server.engine.replace(RuleSet::from_yaml(other, "rules.yaml").unwrap());
        assert_eq!(server.gauges("slots"), [0, 0], "not in force");
        assert_eq!(server.metrics.rules().len(), 2);
        fleet.pass(61);
        server.gauges("slots");
        assert_eq!(server.metrics.rules().len(), 0);
    }
}
