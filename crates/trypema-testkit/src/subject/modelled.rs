//! A model per key, as a subject.

use std::collections::BTreeMap;

use super::{Answer, Reserved, Subject, UpTo};
use crate::model::{Ask, Model, Origin, Refund, Taken};

/// The model of every key, and all receipts.
#[derive(Debug, Clone, Default)]
pub struct ModelSubject<M: Model> {
    now_us: u64,
    keys: BTreeMap<String, M>,
    receipts: Vec<Receipt>,
}

#[derive(Debug, Clone)]
struct Receipt {
    key: String,
    units: u64,
    recorded: i64,
    origin: Origin,
    is_spent: bool,
}

impl<M: Model> ModelSubject<M> {
    fn key(&mut self, key: &str) -> &mut M {
        self.keys.entry(key.to_owned()).or_default()
    }

    fn ask(&self, cost: u64) -> Ask {
        Ask { now: self.now_us as i64, stamp: self.now_us as i64, cost, needed: cost }
    }

    /// Takes, and keeps the receipt.
    fn reserve_ask(&mut self, key: &str, limit: &M::Limit, ask: Ask) -> Reserved {
        let number = self.receipts.len();
        let Taken { answer, recorded, units, origin } = self.key(key).take(limit, ask);
        let is_taken = answer.is_allowed && ask.cost > 0;
        if is_taken {
            self.receipts.push(Receipt { key: key.to_owned(), units, recorded, origin, is_spent: false });
        }
        Reserved { answer, receipt: is_taken.then_some(number) }
    }
}

impl<M: Model> Subject for ModelSubject<M> {
    type Limit = M::Limit;

    fn set_clock(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    fn take(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Answer {
        let ask = self.ask(cost);
        self.key(key).take(limit, ask).answer
    }

    fn peek(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Answer {
        let ask = self.ask(cost);
        self.key(key).peek(limit, ask)
    }

    fn take_up_to(&mut self, key: &str, limit: &M::Limit, cost: u64) -> UpTo {
        let ask = self.ask(cost);
        let model = self.key(key);
        let units = model.fits(limit, ask);
        let answer = if units == 0 {
            model.peek(limit, ask.costing(cost.min(1)))
        } else {
            model.take(limit, ask.costing(units)).answer
        };
        UpTo { units, answer }
    }

    fn take_with_receipt(&mut self, key: &str, limit: &M::Limit, cost: u64, lease_us: u64) -> Reserved {
        let ask = Ask { stamp: (self.now_us + lease_us) as i64, ..self.ask(cost) };
        self.reserve_ask(key, limit, ask)
    }

    fn take_postpaid(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Answer {
        let ask = Ask { needed: 1, ..self.ask(cost) };
        self.key(key).take(limit, ask).answer
    }

    fn take_postpaid_with_receipt(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Reserved {
        let ask = Ask { needed: 1, ..self.ask(cost) };
        self.reserve_ask(key, limit, ask)
    }

    fn debit(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Answer {
        let ask = Ask { needed: 0, ..self.ask(cost) };
        self.key(key).take(limit, ask).answer
    }

    fn refund(&mut self, key: &str, limit: &M::Limit, receipt: usize) -> u64 {
        let now = self.now_us as i64;
        let named = &mut self.receipts[receipt];
        let is_over = named.recorded + M::memory_us(limit) <= now;
        if named.is_spent || named.key != key || is_over {
            return 0;
        }
        named.is_spent = true;
        let refund = Refund { now, units: named.units, recorded: Some(named.recorded), origin: named.origin };
        self.key(key).refund(limit, refund)
    }

    fn refund_units(&mut self, key: &str, limit: &M::Limit, units: u64) -> u64 {
        let now = self.now_us as i64;
        let refund = Refund { now, units, recorded: None, origin: Origin::default() };
        self.key(key).refund(limit, refund)
    }

    fn reset(&mut self, key: &str) {
        self.keys.remove(key);
        // A reset invalidates the receipts of the key.
        let own = self.receipts.iter_mut().filter(|receipt| receipt.key == key);
        own.for_each(|receipt| receipt.is_spent = true);
    }

    /// Does nothing: a model keeps everything, and so shows whether forgetting changes an answer.
    fn forget_stale(&mut self) {}
}
