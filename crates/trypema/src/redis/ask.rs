//! Encodes requests to the scripts, and decodes their replies.

use std::sync::Arc;

use super::failure::{RedisFailure, RedisFailureKind};
use super::script;
use super::transport::ScriptCall;
use crate::clock::Timestamp;
use crate::strategy::{LeaseParams, ReplyReader, put_count, put_number};

/// The verbs of the driver script, with their numbers in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Take = 1,
    Peek = 2,
    /// Takes as much of the cost as fits.
    UpTo = 3,
    /// Takes the cost, for a caller that gets a receipt.
    Reserve = 4,
    /// Refunds the units of a receipt, once.
    Refund = 5,
    /// Refunds units without a receipt, oldest first.
    RefundUnits = 6,
    Reset = 7,
    /// Replaces the limit that is stored with a live state.
    Adopt = 8,
    Block = 9,
    Unblock = 10,
    /// Decides without spending. Records what the strategy counts when another check denies the request.
    DeniedElsewhere = 11,
    /// Takes units that only this instance will spend.
    Lease = 12,
    /// Announces that an instance is live, or leaves. Returns the number of live instances.
    Heartbeat = 13,
}

impl Verb {
    /// Whether the reply contains a decision.
    fn is_deciding(self) -> bool {
        matches!(
            self,
            Self::Take | Self::Peek | Self::UpTo | Self::Reserve | Self::DeniedElsewhere | Self::Lease
        )
    }
}

/// One check in a script call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ask {
    /// The Redis key of the state.
    pub(super) name: Vec<u8>,
    /// Further Redis keys that the verb uses: receipts, resets, instances.
    pub(super) helpers: Vec<Vec<u8>>,
    /// The number of the strategy in the scripts.
    pub(super) strategy: u8,
    pub(super) verb: Verb,
    pub(super) cost: u64,
    /// The verb's second argument, in microseconds: the length of a lease, the time at which the refunded
    /// units were recorded, or the length of a block.
    pub(super) extra: u64,
    /// For a refund: the key's reset count when the receipt was issued.
    pub(super) resets: u32,
    /// The limit, as the strategy's Lua twin reads it. Empty for verbs without a limit.
    pub(super) limit: Vec<u8>,
    pub(super) outcome_len: usize,
    /// The further arguments of [`Verb::Lease`].
    pub(super) lease: Option<LeaseTerms>,
}

/// A request for a lease, and the instance that makes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LeaseTerms {
    pub(super) ask: LeaseParams,
    pub(super) instance: u64,
    /// The time for which the instance counts as sharing the key; 0 if it leaves.
    pub(super) live_for_us: u64,
}

impl LeaseTerms {
    fn write(&self, argument: &mut Vec<u8>) {
        let back = self.ask.unspent;
        let numbers =
            [self.ask.want, back.units, back.recorded.as_micros(), self.ask.reported, self.live_for_us];
        numbers.into_iter().for_each(|number| put_count(argument, number));
        argument.extend_from_slice(&back.resets.to_le_bytes());
        argument.extend_from_slice(&self.instance.to_le_bytes());
    }
}

impl Ask {
    /// Returns all Redis keys that the check uses, the state's first.
    pub(super) fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        std::iter::once(&self.name).chain(&self.helpers)
    }
}

/// The checks of one caller, usually one.
#[derive(Debug)]
pub(super) enum Asks {
    One(Ask),
    /// The first `together` checks are spent all or nothing, the others independently.
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

    /// Returns the checks that are spent all or nothing, and those that are spent independently.
    pub(super) fn split(&self) -> (&[Ask], &[Ask]) {
        match self {
            Self::One(ask) => (&[], std::slice::from_ref(ask)),
            Self::Many { asks, together } => asks.split_at((*together).min(asks.len())),
        }
    }
}

/// The reply of a script to one check.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// The time of the decision.
    pub(super) now: Timestamp,
    /// The numeric result of the verb.
    pub(super) number: u64,
    facts: [u8; INLINE_FACTS],
    outcome_len: usize,
    /// Facts longer than [`INLINE_FACTS`].
    long_facts: Option<Arc<[u8]>>,
    /// Units that earlier callers of the same [`Run`] spent after the script had computed the outcome in
    /// `facts`.
    pub(super) spent: u64,
    /// For a lease: the number of instances that share the key, and the key's reset count.
    pub(super) instances: u32,
    pub(super) resets: u32,
}

/// The replies to the checks of one caller, usually one.
#[derive(Debug)]
pub(super) enum Answers {
    One(Told),
    Many(Vec<Result<Told, RedisFailure>>),
}

/// The size of the inline buffer for facts, which are the encoded outcome. Enough for every strategy,
/// except a token bucket with more than four limits.
const INLINE_FACTS: usize = 64;

impl Told {
    fn at(now: Timestamp, number: u64) -> Self {
        let facts = [0; INLINE_FACTS];
        Self { now, number, facts, outcome_len: 0, long_facts: None, spent: 0, instances: 0, resets: 0 }
    }

    pub(super) fn facts(&self) -> ReplyReader<'_> {
        ReplyReader::new(self.long_facts.as_deref().unwrap_or(&self.facts[..self.outcome_len]))
    }
}

/// A check, and the number of consecutive callers that sent it.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) ask: &'a Ask,
    pub(super) times: u32,
}

/// One request in a script call.
#[derive(Debug)]
enum Request<'a> {
    Run(Run<'a>),
    /// Checks that are spent all or nothing.
    Together(&'a [Ask]),
}

/// The requests of one script call, in order.
#[derive(Debug, Default)]
pub(super) struct Cargo<'a> {
    requests: Vec<Request<'a>>,
}

impl<'a> Cargo<'a> {
    /// Adds the checks of one caller. Consecutive callers that take the same cost from the same key form
    /// one [`Run`].
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

    /// Returns the run if it is the only request and a take. Such a call uses the strategy's own script.
    fn single(&self) -> Option<&Run<'a>> {
        match self.requests.as_slice() {
            [Request::Run(run)] if run.ask.verb == Verb::Take => Some(run),
            _ => None,
        }
    }

    /// Returns the script call for these requests. `now` replaces the server's time, if it is given.
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

    /// Decodes `reply` into a result for each check, in order. Returns `None` if the reply is malformed.
    pub(super) fn read(&self, reply: &[u8]) -> Option<Vec<Result<Told, RedisFailure>>> {
        let mut facts = ReplyReader::new(reply);
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

/// Appends a time; -1 stands for the server's own.
fn put_time(argument: &mut Vec<u8>, now: Option<Timestamp>) {
    put_number(argument, now.map_or(-1.0, |now| now.as_micros() as f64));
}

/// The keys and the packed argument of a call to the driver script.
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
        // A key may be listed twice: the driver script reads and writes its state once.
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

/// Reads the reply of the driver script to one check.
fn read_check(
    facts: &mut ReplyReader<'_>,
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
        (answer.instances, answer.resets) = (facts.word()?, facts.word()?);
    }
    if run.ask.verb.is_deciding() {
        return read_stretches(facts, run, answer, told);
    }
    told.extend((0..run.times).map(|_| Ok(answer.clone())));
    Some(())
}

/// Reads the replies for all callers of `run`. Each is a copy of `told_of` with its own facts.
fn read_stretches(
    facts: &mut ReplyReader<'_>,
    run: &Run<'_>,
    told_of: Told,
    told: &mut Vec<Result<Told, RedisFailure>>,
) -> Option<()> {
    let mut left = run.times;
    while left > 0 {
        let count = facts.word().filter(|count| (1..=left).contains(count))?;
        let bytes = facts.bytes(run.ask.outcome_len)?;
        let mut answer = told_of.clone();
        match answer.facts.get_mut(..bytes.len()) {
            Some(facts) => {
                facts.copy_from_slice(bytes);
                answer.outcome_len = bytes.len();
            }
            None => answer.long_facts = Some(bytes.into()),
        }
        // The facts of every Lua twin begin with a byte that is 1 if the cost was spent without a draw.
        let is_spending = bytes.first() == Some(&1);
        for before in 0..u64::from(count) {
            let spent = if is_spending { before.checked_mul(run.ask.cost)? } else { 0 };
            told.push(Ok(Told { spent, ..answer.clone() }));
        }
        left -= count;
    }
    Some(())
}
