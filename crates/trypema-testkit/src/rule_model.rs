//! A second implementation of rules, written from the specification: it visits every rule and every attribute
//! set in turn, and counts fixed windows. Random rules and requests compare it with the engine.

mod applying;
mod counting;
mod draw;
mod limit;
mod reserving;
mod walk;
mod window;

use std::collections::BTreeMap;

use trypema::clock::Timestamp;
use trypema::rules::{Override, Rule, Rules, Scope};

use crate::rule_trace::{
    CheckBody, ReserveAnswer, ReserveBody, RuleAnswer, RuleOutcome, RuleSubject, SetBody, StepAnswer,
    StepRequest,
};

use applying::{Purpose, applying};
use counting::CountedUnits;
pub use draw::{draw_request, draw_rules, draw_step};
use limit::ModelLimit;
use reserving::{Reservations, Settling};
pub use walk::{Walked, walk};

/// Rules with fixed windows and limits on units held, and the units that were counted or are held.
#[derive(Debug, Clone)]
pub struct RuleModel {
    rules: Rules,
    counted: CountedUnits,
    reservations: Reservations,
}

impl RuleModel {
    /// Creates a model that has counted nothing. Returns `None` if the rules have something that the model does
    /// not know: another strategy, a calendar that needs a time zone, candidates, addresses, or endpoints with
    /// methods or with `*` as a segment.
    pub fn new(rules: &Rules) -> Option<Self> {
        let is_plain = |endpoint: &String| {
            endpoint.starts_with('/') && !endpoint.strip_suffix("/**").unwrap_or(endpoint).contains('*')
        };
        let is_known = |rule: &Rule| {
            ModelLimit::of(&rule.strategy).is_some()
                && !matches!(rule.scope, Scope::Ip | Scope::Endpoint)
                && rule.endpoints.iter().all(is_plain)
                && rule.candidate_for.is_none()
        };
        let has_addresses = [&rules.allow, &rules.block].iter().any(|list| list.contains_key("ip"));
        let is_modelled = |overriding: &Override| {
            overriding.strategy.as_ref().is_none_or(|strategy| ModelLimit::of(strategy).is_some())
        };
        let is_known =
            rules.rules.iter().all(is_known) && rules.overrides.iter().all(is_modelled) && !has_addresses;
        is_known.then(|| Self {
            rules: rules.clone(),
            counted: CountedUnits::default(),
            reservations: Reservations::default(),
        })
    }

    fn check(&mut self, at: Timestamp, request: &CheckBody, sets: &[SetBody]) -> Result<RuleAnswer, String> {
        refuse_too_many(sets)?;
        self.refuse_undeclared(sets)?;
        let exempting = match self.decided_by_lists(sets) {
            Ok(exempting) => exempting,
            Err(answer) => return Ok(answer),
        };
        let asked = applying(&self.rules, sets, &exempting, Purpose::Check)?;
        if asked.len() > 64 {
            return Err("more than 64 rules apply to this request".to_owned());
        }
        Ok(self.counted.count(at, request.mode, &asked))
    }

    fn reserve(
        &mut self,
        at: Timestamp,
        request: &ReserveBody,
        name: Option<&String>,
        sets: &[SetBody],
    ) -> Result<ReserveAnswer, String> {
        refuse_too_many(sets)?;
        self.refuse_undeclared(sets)?;
        let asked = match self.decided_by_lists(sets) {
            Ok(exempting) => applying(&self.rules, sets, &exempting, Purpose::Reserve)?,
            // Nothing is counted, but an exempted request has a reservation, too.
            Err(answer) if answer.outcome.is_allowed() => {
                return Ok(self.reservations.make_empty(answer, request, name));
            }
            Err(verdict) => return Ok(ReserveAnswer { verdict, reserved: None }),
        };
        if asked.len() > 64 {
            return Err("more than 64 rules apply to this request".to_owned());
        }
        self.reservations.reserve(&mut self.counted, at, (request, name), sets, &asked)
    }

    /// Returns the lists' decision as the error; if they have none, the entry that exempts each set.
    fn decided_by_lists(&self, sets: &[SetBody]) -> Result<Vec<Option<String>>, RuleAnswer> {
        if let Some(entry) = sets.iter().find_map(|set| listed(&self.rules.block, set)) {
            return Err(without_counters(RuleOutcome::BlockedByList(entry)));
        }
        let exempting: Vec<Option<String>> = sets.iter().map(|set| listed(&self.rules.allow, set)).collect();
        match exempting.first() {
            Some(Some(first)) if exempting.iter().all(Option::is_some) => {
                Err(without_counters(RuleOutcome::AllowedByList(first.clone())))
            }
            _ => Ok(exempting),
        }
    }

    /// "Undeclared names are errors."
    fn refuse_undeclared(&self, sets: &[SetBody]) -> Result<(), String> {
        let named = sets.iter().flat_map(|set| set.costs.iter().flatten()).map(|(unit, _)| unit);
        let is_declared =
            |unit: &str| unit == "requests" || self.rules.units.iter().any(|known| known == unit);
        let mut undeclared = named.filter(|unit| !is_declared(unit));
        undeclared.next().map_or(Ok(()), |unit| Err(format!("unit {unit:?} is not declared")))
    }
}

impl RuleSubject for RuleModel {
    fn ask(&mut self, at: Timestamp, request: &CheckBody) -> Option<RuleAnswer> {
        let sets = request.attribute_sets()?;
        Some(self.check(at, request, &sets).unwrap_or_else(RuleAnswer::error))
    }

    fn answer(&mut self, at: Timestamp, request: &StepRequest) -> Option<StepAnswer> {
        Some(match request {
            StepRequest::Request(request) => StepAnswer::Verdict(self.ask(at, request)?),
            StepRequest::Reserve(request, name) => {
                let sets = request.as_check().attribute_sets()?;
                let answer = self.reserve(at, request, name.as_ref(), &sets);
                StepAnswer::Reserved(answer.unwrap_or_else(|error| ReserveAnswer {
                    verdict: RuleAnswer::error(error),
                    reserved: None,
                }))
            }
            StepRequest::Settle(settle) => {
                let set = SetBody { costs: Some(settle.costs.clone()), ..SetBody::default() };
                let settled = self.refuse_undeclared(&[set]).and_then(|()| {
                    let settling = Settling::At(&settle.costs);
                    self.reservations.settle(&mut self.counted, at, &settle.reservation, settling)
                });
                StepAnswer::Settled(settled)
            }
            StepRequest::Release(release) => {
                let released =
                    self.reservations.settle(&mut self.counted, at, &release.reservation, Settling::Released);
                StepAnswer::Settled(released)
            }
            StepRequest::Renew(renew) => {
                StepAnswer::Renewed(self.reservations.renew(at, &renew.reservation, renew.ttl.0))
            }
            // The model has the rules that it was made with.
            StepRequest::Replace(_) => return None,
        })
    }
}

/// "Bounds apply to the whole request."
fn refuse_too_many(sets: &[SetBody]) -> Result<(), String> {
    let attributes: usize = sets.iter().map(|set| set.attributes.len()).sum();
    match attributes {
        _ if sets.len() > 32 => Err("more than 32 attribute sets".to_owned()),
        33.. => Err(format!("{attributes} attributes: at most 32 are allowed")),
        _ => Ok(()),
    }
}

/// Returns the first entry of a list that a set has, as `attribute=entry`.
fn listed(list: &BTreeMap<String, Vec<String>>, set: &SetBody) -> Option<String> {
    let mut found = list.iter().filter_map(|(name, entries)| {
        let value = set.attributes.get(name)?;
        entries.contains(value).then(|| format!("{name}={value}"))
    });
    found.next()
}

fn without_counters(outcome: RuleOutcome) -> RuleAnswer {
    RuleAnswer { outcome, counters: BTreeMap::new(), candidates: None }
}
