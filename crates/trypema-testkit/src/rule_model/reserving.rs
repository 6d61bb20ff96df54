//! Reservations: units of several counters under one id.

use std::collections::BTreeMap;
use std::time::Duration;

use trypema::clock::Timestamp;

use super::applying::{Asked, AskedPart};
use super::counting::{CountedUnits, CounterDecision, Decided, Refund, answer, decide, is_refused, refused};
use super::limit::ModelLimit;
use crate::rule_trace::{
    CounterAnswer, RenewedAnswer, ReserveAnswer, ReserveBody, ReservedAnswer, RuleAnswer, SetBody, Settled,
    SettledAnswer,
};

/// "`Retry-After` is 1 s", unless everything that is held expires sooner.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The reservations of all counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Reservations {
    /// By the name of the counter.
    tables: BTreeMap<String, Vec<Entry>>,
    /// By their names in the trace.
    named: BTreeMap<String, Outstanding>,
    made: u64,
}

/// "Each counter keeps a bounded table of its reservations: id → units, when recorded, expiry."
#[derive(Debug, Clone)]
struct Entry {
    id: String,
    is_chosen: bool,
    /// The attributes and costs of the request that made it.
    request: String,
    units: u64,
    recorded: Timestamp,
    expires_at: Timestamp,
    is_settled: bool,
}

/// "The reservation text is a random 128-bit id plus the names of its counters."
#[derive(Debug, Clone, Default)]
struct Outstanding {
    id: String,
    counters: Vec<Counter>,
}

#[derive(Debug, Clone)]
struct Counter {
    key: String,
    unit: String,
    limit: ModelLimit,
    /// "Log-only rules and candidates" are settled and renewed along with the others, and are not listed.
    is_shadow: bool,
}

/// The costs at which a reservation ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Settling<'a> {
    /// "A unit not named in `settle` keeps its estimate."
    At(&'a BTreeMap<String, u64>),
    Released,
}

/// The part of a request in one counter.
struct Part<'m> {
    asked: &'m Asked<'m>,
    counter: Counter,
    cost: u64,
    /// If an earlier request made it: when it expires, and whether it was settled.
    known: Option<(Timestamp, bool)>,
}

impl Reservations {
    /// Makes a reservation without counters, for a request that an allow list exempts.
    pub(super) fn make_empty(
        &mut self,
        verdict: RuleAnswer,
        request: &ReserveBody,
        name: Option<&String>,
    ) -> ReserveAnswer {
        if let Some(name) = name {
            self.named.insert(name.clone(), Outstanding::default());
        }
        let reserved =
            Some(ReservedAnswer { expires_in: request.ttl(), is_repeated: false, is_ended: false });
        ReserveAnswer { verdict, reserved }
    }

    pub(super) fn reserve(
        &mut self,
        counted: &mut CountedUnits,
        at: Timestamp,
        (request, name): (&ReserveBody, Option<&String>),
        sets: &[SetBody],
        asked: &[Asked<'_>],
    ) -> Result<ReserveAnswer, String> {
        self.made += 1;
        let (id, is_chosen) = match &request.id {
            Some(id) => (format!("chosen {id}"), true),
            None => (format!("number {}", self.made), false),
        };
        let digest = digest(sets);
        // "`hold` caps `ttl`", if the rule may deny the request.
        let ttl = asked
            .iter()
            .filter(|asked| !asked.rule.is_shadow())
            .filter_map(hold_of)
            .fold(request.ttl(), Duration::min);
        let (is_refused, mut decided, mut fitting) = (is_refused(asked), Vec::new(), Vec::new());
        for asked in asked {
            let Asked { rule, part } = asked;
            let AskedPart::Counter { key, limit, cost } = part else {
                let (name, CounterDecision { answer, wait, left }) = refused(rule, part);
                decided.push((name, Decided { rule, answer, wait, left }));
                continue;
            };
            if is_refused && !rule.is_shadow() {
                continue;
            }
            let unit = rule.unit.clone().unwrap_or_else(|| "requests".to_owned());
            let counter = Counter { key: key.clone(), unit, limit: *limit, is_shadow: rule.is_shadow() };
            let known = self.find(key, &id, at);
            let known = known.map(|entry| (entry.request == digest, (entry.expires_at, entry.is_settled)));
            let CounterDecision { answer, wait, left } = match known {
                Some((true, _)) => {
                    let left = self.left(counted, &counter, at);
                    CounterDecision { answer: CounterAnswer::Allowed(left), wait: Some(Duration::ZERO), left }
                }
                Some((false, _)) if rule.is_shadow() => {
                    CounterDecision { answer: CounterAnswer::Denied(0), wait: None, left: 0 }
                }
                Some((false, _)) => return Err("another request made a reservation with this id".to_owned()),
                None => self.decide(counted, &counter, at, if rule.postpaid { 1 } else { *cost }, *cost),
            };
            // Nobody holds a slot of no units.
            let is_part = *cost > 0 || limit.hold().is_none();
            if is_part && matches!(answer, CounterAnswer::Allowed(_)) {
                let known = known.map(|(_, known)| known);
                fitting.push(Part { asked, counter, cost: *cost, known });
            }
            decided.push((key.clone(), Decided { rule, answer, wait, left }));
        }
        let is_denied = decided.iter().any(|(_, decided)| decided.is_denying());
        if is_denied {
            decided.iter_mut().for_each(|(_, decided)| decided.uncharge());
        }
        fitting.retain(|part| part.asked.rule.is_shadow() || !is_denied);
        for part in &fitting {
            if part.known.is_some() {
                continue;
            }
            if let ModelLimit::Window(window) = part.counter.limit {
                counted.add(&part.counter.key, window, at, part.cost);
            }
            self.tables.entry(part.counter.key.clone()).or_default().push(Entry {
                id: id.clone(),
                is_chosen,
                request: digest.clone(),
                units: part.cost,
                recorded: at,
                expires_at: at + ttl,
                is_settled: false,
            });
        }
        let verdict = answer(decided);
        let enforced = || fitting.iter().filter(|part| !part.asked.rule.is_shadow());
        let expiries = enforced().map(|part| part.known.map_or(at + ttl, |(expires_at, _)| expires_at));
        let expires_at = expiries.min().unwrap_or(at + ttl);
        let is_repeated = enforced().next().is_some() && enforced().all(|part| part.known.is_some());
        let is_ended = enforced().any(|part| part.known.is_some_and(|(_, settled)| settled));
        let counters = fitting.iter().map(|part| part.counter.clone()).collect();
        let outstanding = Outstanding { id, counters };
        if is_denied {
            // Rules that only log count the request, and nobody will settle it.
            self.end(counted, at, &outstanding, Settling::At(&BTreeMap::new()));
            return Ok(ReserveAnswer { verdict, reserved: None });
        }
        if let Some(name) = name {
            self.named.insert(name.clone(), outstanding);
        }
        let expires_in = Duration::from_micros(expires_at.as_micros() - at.as_micros());
        Ok(ReserveAnswer { verdict, reserved: Some(ReservedAnswer { expires_in, is_repeated, is_ended }) })
    }

    pub(super) fn settle(
        &mut self,
        counted: &mut CountedUnits,
        at: Timestamp,
        name: &str,
        settling: Settling<'_>,
    ) -> Result<Settled, String> {
        let outstanding = self.named.get(name).cloned().ok_or("the text does not begin with `r1.`")?;
        Ok(self.end(counted, at, &outstanding, settling))
    }

    fn end(
        &mut self,
        counted: &mut CountedUnits,
        at: Timestamp,
        outstanding: &Outstanding,
        settling: Settling<'_>,
    ) -> Settled {
        let Outstanding { id, counters } = outstanding;
        let mut one = |Counter { key, unit, limit, .. }: &Counter| {
            let table = self.tables.entry(key.clone()).or_default();
            table.retain(|entry| at < entry.expires_at);
            let Some(index) = table.iter().position(|entry| entry.id == *id) else {
                return (key.clone(), SettledAnswer::Unknown);
            };
            let entry = &mut table[index];
            if entry.is_settled {
                return (key.clone(), SettledAnswer::Before);
            }
            let reserved = entry.units;
            let spent = match settling {
                Settling::At(costs) => costs.get(unit).copied().unwrap_or(reserved),
                Settling::Released => 0,
            };
            let refunded = match limit {
                ModelLimit::Slots { .. } => reserved,
                ModelLimit::Window(window) => {
                    counted.add(key, *window, at, spent.saturating_sub(reserved));
                    let units = reserved.saturating_sub(spent);
                    counted.refund(key, *window, Refund { recorded: entry.recorded, at, units })
                }
            };
            // Only an id that the caller chose is remembered, for a request that is repeated.
            entry.is_settled = true;
            if !entry.is_chosen {
                table.remove(index);
            }
            (key.clone(), SettledAnswer::Settled { reserved, counted: spent, refunded })
        };
        let settled = counters.iter().map(|counter| (counter.is_shadow, one(counter)));
        settled.filter(|(is_shadow, _)| !is_shadow).map(|(_, settled)| settled).collect()
    }

    pub(super) fn renew(
        &mut self,
        at: Timestamp,
        name: &str,
        ttl: Duration,
    ) -> Result<RenewedAnswer, String> {
        let Outstanding { id, counters } =
            self.named.get(name).ok_or("the text does not begin with `r1.`")?;
        let enforced = || counters.iter().filter(|counter| !counter.is_shadow);
        let ttl = enforced().filter_map(|counter| counter.limit.hold()).fold(ttl, Duration::min);
        // "A reservation that no rule applied to has nothing to lose."
        let mut is_renewed = enforced().next().is_none();
        let mut is_slot_lost = false;
        for counter in counters {
            let table = self.tables.entry(counter.key.clone()).or_default();
            let is_its = |entry: &&mut Entry| entry.id == *id && at < entry.expires_at && !entry.is_settled;
            match table.iter_mut().find(is_its) {
                Some(entry) => {
                    entry.expires_at = at + ttl;
                    is_renewed |= !counter.is_shadow;
                }
                None => is_slot_lost |= !counter.is_shadow && counter.limit.hold().is_some(),
            }
        }
        Ok(RenewedAnswer((is_renewed && !is_slot_lost).then_some(ttl)))
    }

    fn find(&self, key: &str, id: &str, at: Timestamp) -> Option<&Entry> {
        self.live(key, at).find(|entry| entry.id == id)
    }

    fn live(&self, key: &str, at: Timestamp) -> impl Iterator<Item = &Entry> {
        self.tables.get(key).into_iter().flatten().filter(move |entry| at < entry.expires_at)
    }

    fn left(&self, counted: &CountedUnits, counter: &Counter, at: Timestamp) -> u64 {
        match counter.limit {
            ModelLimit::Window(window) => counted.left(&counter.key, window, at),
            ModelLimit::Slots { limit, .. } => {
                let held = self.live(&counter.key, at).filter(|entry| !entry.is_settled);
                limit.saturating_sub(held.map(|entry| entry.units).sum())
            }
        }
    }

    fn decide(
        &self,
        counted: &CountedUnits,
        counter: &Counter,
        at: Timestamp,
        needed: u64,
        cost: u64,
    ) -> CounterDecision {
        let left = self.left(counted, counter, at);
        match counter.limit {
            ModelLimit::Window(window) => decide(left, window.limit, needed, cost, window.until_end(at)),
            ModelLimit::Slots { limit, .. } => {
                let latest = self.live(&counter.key, at).map(|entry| entry.expires_at).max().unwrap_or(at);
                let until_latest = Duration::from_micros(latest.as_micros() - at.as_micros());
                decide(left, limit, needed, cost, RETRY_AFTER.min(until_latest))
            }
        }
    }
}

fn hold_of(asked: &Asked<'_>) -> Option<Duration> {
    match &asked.part {
        AskedPart::Counter { limit, .. } => limit.hold(),
        AskedPart::Blocked { .. } | AskedPart::Missing { .. } => {
            ModelLimit::of(&asked.rule.strategy).and_then(|limit| limit.hold())
        }
    }
}

/// "A caller's `id` is scoped to its attributes and costs."
fn digest(sets: &[SetBody]) -> String {
    let digest = |set: &SetBody| {
        let mut costs = set.costs.clone().unwrap_or_default();
        costs.entry("requests".to_owned()).or_insert(set.cost.unwrap_or(1));
        format!("{:?} {costs:?}", set.attributes)
    };
    sets.iter().map(digest).collect()
}
