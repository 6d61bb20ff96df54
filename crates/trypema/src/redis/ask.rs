//! What is asked of the scripts, and what they answer.

use std::sync::Arc;

use super::failure::{RedisFailure, RedisFailureKind};
use super::script;
use super::transport::ScriptCall;
use crate::clock::Timestamp;
use crate::strategy::{Facts, LeaseAsk, put_count, put_number};

/// The verbs of the driver, by their numbers there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Take = 1,
    Peek = 2,
    UpTo = 3,
    Reserve = 4,
    Refund = 5,
    RefundUnits = 6,
    Reset = 7,
    Adopt = 8,
    Block = 9,
    Unblock = 10,
    /// Decides without spending; records what the strategy counts of requests that another check denies.
    Forgo = 11,
    /// Takes units to be spent by this instance alone.
    Lease = 12,
    /// Says that an instance lives, or leaves, and counts those that live.
    Heartbeat = 13,
}

impl Verb {
    /// Whether it answers with a decision.
    fn is_deciding(self) -> bool {
        matches!(self, Self::Take | Self::Peek | Self::UpTo | Self::Reserve | Self::Forgo | Self::Lease)
    }
}

/// One check for a script.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ask {
    /// The state's name.
    pub(super) name: Vec<u8>,
    /// The names of what helps the verb.
    pub(super) helpers: Vec<Vec<u8>>,
    /// The strategy's number.
    pub(super) strategy: u8,
    pub(super) verb: Verb,
    pub(super) cost: u64,
    /// What else the verb needs: the lease, where units were recorded, how long to block.
    pub(super) extra: u64,
    /// How often the key had been reset when a receipt was given.
    pub(super) resets: u32,
    /// The limit, as the strategy's twin reads it; empty for verbs that have none.
    pub(super) limit: Vec<u8>,
    pub(super) facts_len: usize,
    /// What a lease needs besides.
    pub(super) lease: Option<LeaseTerms>,
}

/// What an instance asks for, and who it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LeaseTerms {
    pub(super) ask: LeaseAsk,
    pub(super) instance: u64,
    /// For how long it counts as sharing the key; 0 if it leaves.
    pub(super) live_for_us: u64,
}

impl LeaseTerms {
    fn write(&self, argument: &mut Vec<u8>) {
        let back = self.ask.back;
        let numbers = [self.ask.want, back.units, back.recorded.as_micros(), self.ask.seen, self.live_for_us];
        numbers.into_iter().for_each(|number| put_count(argument, number));
        argument.extend_from_slice(&back.resets.to_le_bytes());
        argument.extend_from_slice(&self.instance.to_le_bytes());
    }
}

impl Ask {
    /// The names of all that it touches, the state's first.
    pub(super) fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        std::iter::once(&self.name).chain(&self.helpers)
    }
}

/// What one caller asks; mostly one check.
#[derive(Debug)]
pub(super) enum Asks {
    One(Ask),
    /// The first of them are spent all or nothing, the others each on its own.
    Many {
        asks: Vec<Ask>,
        together: usize,
    },
}

impl Asks {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many { asks, .. } => asks.len(),
        }
    }

    /// What is asked together, and what is asked alone.
    pub(super) fn split(&self) -> (&[Ask], &[Ask]) {
        match self {
            Self::One(ask) => (&[], std::slice::from_ref(ask)),
            Self::Many { asks, together } => asks.split_at((*together).min(asks.len())),
        }
    }
}

/// What a script told of one check.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// The time it was decided at.
    pub(super) now: Timestamp,
    /// The number that the verb answers with.
    pub(super) number: u64,
    facts: [u8; INLINE_FACTS],
    facts_len: usize,
    /// Facts that are too long for that.
    long_facts: Option<Arc<[u8]>>,
    /// What others have spent since, at the same moment.
    pub(super) spent: u64,
    /// Of a lease: how many instances share the key, and how often it was reset.
    pub(super) sharers: u32,
    pub(super) resets: u32,
}

/// What a request was told; mostly it had one check.
#[derive(Debug)]
pub(super) enum Answers {
    One(Told),
    Many(Vec<Result<Told, RedisFailure>>),
}

/// Room for the facts of all strategies, except those of a token bucket with more than four limits.
const INLINE_FACTS: usize = 64;

impl Told {
    fn at(now: Timestamp, number: u64) -> Self {
        let facts = [0; INLINE_FACTS];
        Self { now, number, facts, facts_len: 0, long_facts: None, spent: 0, sharers: 0, resets: 0 }
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts::new(self.long_facts.as_deref().unwrap_or(&self.facts[..self.facts_len]))
    }
}

/// A check and how many callers ask for it, one after the other.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) ask: &'a Ask,
    pub(super) times: u32,
}

/// One request of a script call.
#[derive(Debug)]
enum Request<'a> {
    Run(Run<'a>),
    /// Spent all or nothing.
    Together(&'a [Ask]),
}

/// What one script call is for: requests in their order.
#[derive(Debug, Default)]
pub(super) struct Cargo<'a> {
    requests: Vec<Request<'a>>,
}

impl<'a> Cargo<'a> {
    /// Adds what a caller asks. Callers that take the same from the same key, one after the other, are one run.
    pub(super) fn add(&mut self, asks: &'a Asks) {
        let (together, alone) = asks.split();
        match together {
            [] => {}
            [ask] => self.add_alone(ask),
            asks => self.requests.push(Request::Together(asks)),
        }
        alone.iter().for_each(|ask| self.add_alone(ask));
    }

    fn add_alone(&mut self, ask: &'a Ask) {
        match self.requests.last_mut() {
            Some(Request::Run(run)) if ask.verb == Verb::Take && run.ask == ask => run.times += 1,
            _ => self.requests.push(Request::Run(Run { ask, times: 1 })),
        }
    }

    /// The run of takes on one key that this is, if it is nothing else: it has a script of its own.
    fn single(&self) -> Option<&Run<'a>> {
        match self.requests.as_slice() {
            [Request::Run(run)] if run.ask.verb == Verb::Take => Some(run),
            _ => None,
        }
    }

    /// The script call that asks for this; `now` is the time to go by, if not the server's.
    pub(super) fn call(&self, now: Option<Timestamp>) -> ScriptCall {
        if let Some(run) = self.single() {
            return single_call(run, now);
        }
        let mut packing = Packing::new(now, self.requests.len());
        for request in &self.requests {
            match request {
                Request::Run(run) => {
                    packing.argument.push(1);
                    packing.add(run.ask, run.times);
                }
                Request::Together(asks) => {
                    packing.argument.push(asks.len() as u8);
                    asks.iter().for_each(|ask| packing.add(ask, 1));
                }
            }
        }
        packing.call()
    }

    /// What `reply` tells of each check that was asked, in their order; `None` if it makes no sense.
    pub(super) fn read(&self, reply: &[u8]) -> Option<Vec<Result<Told, RedisFailure>>> {
        let mut facts = Facts::new(reply);
        let now = Timestamp::from_micros(facts.count()?);
        let mut told = Vec::new();
        if let Some(run) = self.single() {
            let told_of = Told::at(now, 0);
            read_stretches(&mut facts, run, told_of, &mut told)?;
            return facts.is_empty().then_some(told);
        }
        for request in &self.requests {
            match request {
                Request::Run(run) => read_check(&mut facts, run, now, &mut told)?,
                Request::Together(asks) => asks
                    .iter()
                    .try_for_each(|ask| read_check(&mut facts, &Run { ask, times: 1 }, now, &mut told))?,
            }
        }
        facts.is_empty().then_some(told)
    }
}

fn single_call(run: &Run<'_>, now: Option<Timestamp>) -> ScriptCall {
    let mut argument = Vec::with_capacity(20 + run.ask.limit.len());
    put_time(&mut argument, now);
    argument.extend_from_slice(&run.times.to_le_bytes());
    put_count(&mut argument, run.ask.cost);
    argument.extend_from_slice(&run.ask.limit);
    let script = script::single(run.ask.strategy);
    let keys = run.ask.names().cloned().collect();
    ScriptCall { script, keys, arguments: vec![argument] }
}

/// Appends a time, -1 for the server's.
fn put_time(argument: &mut Vec<u8>, now: Option<Timestamp>) {
    put_number(argument, now.map_or(-1.0, |now| now.as_micros() as f64));
}

/// The driver's keys and argument as they are put together.
struct Packing {
    keys: Vec<Vec<u8>>,
    argument: Vec<u8>,
}

impl Packing {
    fn new(now: Option<Timestamp>, requests: usize) -> Self {
        let mut argument = Vec::with_capacity(64 * (requests + 1));
        put_time(&mut argument, now);
        argument.extend_from_slice(&(requests as u16).to_le_bytes());
        Self { keys: Vec::with_capacity(requests), argument }
    }

    fn add(&mut self, ask: &Ask, times: u32) {
        // A name may come twice: the driver reads and writes it once.
        let index = self.keys.len();
        self.keys.extend(ask.names().cloned());
        let times = if ask.verb == Verb::Refund { ask.resets } else { times };
        self.argument.push(ask.strategy);
        self.argument.push(ask.verb as u8);
        self.argument.extend_from_slice(&(index as u16 + 1).to_le_bytes());
        self.argument.extend_from_slice(&times.to_le_bytes());
        put_count(&mut self.argument, ask.cost);
        put_number(&mut self.argument, ask.extra.min(1 << 53) as f64);
        self.argument.extend_from_slice(&ask.limit);
        if let Some(lease) = &ask.lease {
            lease.write(&mut self.argument);
        }
    }

    fn call(self) -> ScriptCall {
        let (script, arguments) = (script::driver(), vec![self.argument]);
        ScriptCall { script, keys: self.keys, arguments }
    }
}

/// What became of one check of the driver's reply.
fn read_check(
    facts: &mut Facts<'_>,
    run: &Run<'_>,
    now: Timestamp,
    told: &mut Vec<Result<Told, RedisFailure>>,
) -> Option<()> {
    if facts.byte()? == 0 {
        let len = usize::from(facts.short()?);
        let why = String::from_utf8_lossy(facts.bytes(len)?);
        let failure = RedisFailure::new(RedisFailureKind::Refused, why);
        told.extend((0..run.times).map(|_| Err(failure.clone())));
        return Some(());
    }
    let number = facts.count()?;
    let mut answer = Told::at(now, number);
    if run.ask.verb == Verb::Lease {
        (answer.sharers, answer.resets) = (facts.word()?, facts.word()?);
    }
    if run.ask.verb.is_deciding() {
        return read_stretches(facts, run, answer, told);
    }
    told.extend((0..run.times).map(|_| Ok(answer.clone())));
    Some(())
}

/// Reads answers for all callers of `run`, each like `told_of` but for what it decided.
fn read_stretches(
    facts: &mut Facts<'_>,
    run: &Run<'_>,
    told_of: Told,
    told: &mut Vec<Result<Told, RedisFailure>>,
) -> Option<()> {
    let mut left = run.times;
    while left > 0 {
        let count = facts.word().filter(|count| (1..=left).contains(count))?;
        let bytes = facts.bytes(run.ask.facts_len)?;
        let mut answer = told_of.clone();
        match answer.facts.get_mut(..bytes.len()) {
            Some(facts) => {
                facts.copy_from_slice(bytes);
                answer.facts_len = bytes.len();
            }
            None => answer.long_facts = Some(bytes.into()),
        }
        // All twins begin with a byte that is 1 where the cost was spent without a draw.
        let is_spending = bytes.first() == Some(&1);
        for before in 0..u64::from(count) {
            let spent = if is_spending { before.checked_mul(run.ask.cost)? } else { 0 };
            told.push(Ok(Told { spent, ..answer.clone() }));
        }
        left -= count;
    }
    Some(())
}
