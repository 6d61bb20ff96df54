//! The strategies alone: one state per key, no clock, no map, no lock.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use trypema::DecisionTime;
use trypema::clock::Timestamp;
use trypema::strategy::{Call, Recorded, Refund, Strategy, with_strategy};

use super::answer::{Answer, Head, Value};
use super::provider::{Provider, TimedCall, Unsupported};
use super::step::Verb;
use crate::subject::Modelled;

/// The reference that every provider must equal. It lacks the calls of the trypema 1.x API and manual
/// blocks.
#[derive(Debug, Default)]
pub struct Pure {
    /// The [`Keys`] of each strategy.
    strategies: HashMap<&'static str, Box<dyn Any>>,
}

impl Provider for Pure {
    fn call(&mut self, call: TimedCall<'_>) -> Result<Answer, Unsupported> {
        with_strategy!(&call.limit.limit, |S, limit| {
            let keys = self.strategies.entry(S::NAME).or_insert_with(|| Box::<Keys<S>>::default());
            let keys = keys.downcast_mut::<Keys<S>>().ok_or(Unsupported("two strategies have one name"))?;
            keys.call(limit, call)
        })
    }
}

/// The states of one strategy.
#[derive(Debug)]
struct Keys<S: Strategy> {
    states: HashMap<String, S::State>,
    receipts: HashMap<String, Taken>,
    refunded: HashSet<String>,
}

/// The units of a receipt.
#[derive(Debug, Clone)]
struct Taken {
    key: String,
    units: u64,
    recorded: Recorded,
}

impl<S: Strategy> Default for Keys<S> {
    fn default() -> Self {
        Self { states: HashMap::new(), receipts: HashMap::new(), refunded: HashSet::new() }
    }
}

impl<S: Modelled> Keys<S> {
    fn call(&mut self, limit: &S::Limit, timed: TimedCall<'_>) -> Result<Answer, Unsupported> {
        let (key, now) = (timed.key, timed.now);
        Ok(match timed.verb {
            Verb::Take(cost) => self.take(limit, key, Call::new(now, *cost)).0,
            Verb::Peek(cost) => self.peek(limit, key, Call::new(now, *cost)),
            Verb::Usage => self.peek(limit, key, Call::new(now, 0)),
            Verb::UpTo(cost) => self.up_to(limit, key, Call::new(now, *cost)),
            Verb::Reserve { cost, name, lease } => {
                let call = Call::new(now, *cost).with_stamp(now + *lease);
                self.take_with_receipt(limit, key, call, name)
            }
            Verb::Postpaid(cost) => self.take(limit, key, Call::new(now, *cost).postpaid()).0,
            Verb::ReservePostpaid { cost, name } => {
                self.take_with_receipt(limit, key, Call::new(now, *cost).postpaid(), name)
            }
            Verb::Debit(cost) => self.take(limit, key, Call::new(now, *cost).debit()).0,
            Verb::Refund(name) => self.refund_receipt(limit, key, now, name)?,
            Verb::RefundUnits(units) => {
                let refund = Refund { now, units: *units, recorded: None };
                Answer::new(Head::Refunded(self.refund(limit, key, refund)))
            }
            Verb::Reset => Answer::new(Head::Truth(self.states.remove(key).is_some())),
            Verb::Forget => {
                self.states.retain(|_, state| S::fresh_from(state) > now);
                Answer::new(Head::Done).with("keys", Value::Count(self.states.len() as u64))
            }
            _ => {
                return Err(Unsupported("the pure model has the verbs of every strategy only"));
            }
        })
    }

    fn take(&mut self, limit: &S::Limit, key: &str, call: Call) -> (Answer, Option<(Recorded, u64)>) {
        let mut state = self.states.remove(key).unwrap_or_default();
        let outcome = S::decide(limit, &state, call);
        S::commit(limit, &mut state, call, &outcome);
        let origin = S::origin(&state);
        self.keep(key, state, call.now);
        let is_recorded = S::is_admitted(&outcome) && call.cost > 0;
        let units = S::recorded_units(limit, &outcome, call);
        let recorded =
            is_recorded.then(|| (Recorded { at: S::recorded_at(limit, &outcome, call), origin }, units));
        (S::answer(&S::decision(limit, outcome, DecisionTime::exactly(call.now))), recorded)
    }

    fn peek(&self, limit: &S::Limit, key: &str, call: Call) -> Answer {
        let fresh = S::State::default();
        let outcome = S::decide(limit, self.states.get(key).unwrap_or(&fresh), call);
        S::answer(&S::decision(limit, outcome, DecisionTime::exactly(call.now)))
    }

    fn up_to(&mut self, limit: &S::Limit, key: &str, call: Call) -> Answer {
        let fresh = S::State::default();
        match S::available(limit, self.states.get(key).unwrap_or(&fresh), call) {
            0 => self.peek(limit, key, call.with_cost(call.cost.min(1))).headed(Head::Granted(0)),
            units => self.take(limit, key, call.with_cost(units)).0.headed(Head::Granted(units)),
        }
    }

    fn take_with_receipt(&mut self, limit: &S::Limit, key: &str, call: Call, name: &str) -> Answer {
        let (answer, recorded) = self.take(limit, key, call);
        let Some((recorded, units)) = recorded else {
            return answer;
        };
        let taken = Taken { key: key.to_owned(), units, recorded };
        self.receipts.insert(name.to_owned(), taken);
        let ahead_us = recorded.at.as_micros().saturating_sub(call.now.as_micros());
        answer.with_time("stamp", Duration::from_micros(ahead_us))
    }

    fn refund_receipt(
        &mut self,
        limit: &S::Limit,
        key: &str,
        now: Timestamp,
        name: &str,
    ) -> Result<Answer, Unsupported> {
        let taken = self.receipts.get(name).cloned().ok_or(Unsupported("a refund of what was not taken"))?;
        let until = taken.recorded.at + Duration::from_micros(S::retention_us(limit));
        let is_good = taken.key == key && until > now && self.refunded.insert(name.to_owned());
        let refund = Refund { now, units: taken.units, recorded: Some(taken.recorded) };
        let units = if is_good { self.refund(limit, key, refund) } else { 0 };
        Ok(Answer::new(Head::Refunded(units)))
    }

    fn refund(&mut self, limit: &S::Limit, key: &str, refund: Refund) -> u64 {
        self.states.get_mut(key).map_or(0, |state| S::refund(limit, state, refund))
    }

    /// Stores a state, unless it equals a fresh one.
    fn keep(&mut self, key: &str, state: S::State, now: Timestamp) {
        if S::fresh_from(&state) > now {
            self.states.insert(key.to_owned(), state);
        }
    }
}
