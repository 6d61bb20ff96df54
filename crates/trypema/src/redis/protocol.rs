//! Encodes requests to the scripts, and decodes their replies.

use std::sync::Arc;

use super::failure::{RedisFailure, RedisFailureKind};
use super::lease::LeaseArgs;
use super::script;
use super::transport::ScriptCall;
use crate::clock::Timestamp;
use crate::strategy::reservations::{ENTRY_BYTES, MAX_ENTRIES};
use crate::strategy::{LeaseParams, Origin, Payment, ReplyReader, put_count, put_number};

/// The verbs of the driver script, with their numbers in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "rules"), allow(dead_code, reason = "only rules reserve under an id"))]
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
    /// Decides without spending. Records the observation or denial that the strategy counts when another
    /// check denies the request.
    DeniedElsewhere = 11,
    /// Takes units that only this instance will spend.
    Lease = 12,
    /// Announces that an instance is live, or leaves. Returns the number of live instances.
    Heartbeat = 13,
    /// Takes the cost under the id of a reservation, all or nothing with the other checks of its request.
    Hold = 14,
    /// Ends a reservation, with the cost as the units that were really spent.
    Settle = 15,
    /// Lets a reservation last longer.
    Renew = 16,
    /// Lists the reservations of a counter.
    Holders = 17,
}

impl Verb {
    /// Whether the reply contains a decision.
    fn is_deciding(self) -> bool {
        matches!(
            self,
            Self::Take
                | Self::Peek
                | Self::UpTo
                | Self::Reserve
                | Self::DeniedElsewhere
                | Self::Lease
                | Self::Hold
                | Self::Settle
                | Self::Renew
        )
    }
}

/// How a reservation ends, as numbers of the scripts.
#[cfg_attr(not(feature = "rules"), allow(dead_code, reason = "only rules reserve under an id"))]
pub(super) const AT_COST: u8 = 0;
pub(super) const AT_ESTIMATE: u8 = 1;
pub(super) const UNDONE: u8 = 2;
/// Added to the number if the settlement is remembered.
pub(super) const REMEMBERED: u8 = 8;

/// Added to the number of a verb whose cost is spent as far as one unit is free, and whatever is free.
pub(super) const POSTPAID: u8 = 32;
pub(super) const DEBIT: u8 = 64;

/// The further arguments of the verbs of reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReservationArgs {
    pub(super) id: [u8; 16],
    /// A digest of the request that makes the reservation.
    pub(super) request: u64,
    pub(super) attempt: u64,
    /// For [`Verb::Settle`]: the number of the `Ending`.
    pub(super) ending: u8,
}

impl ReservationArgs {
    fn write(&self, argument: &mut Vec<u8>) {
        argument.extend_from_slice(&self.id);
        argument.extend_from_slice(&self.request.to_le_bytes());
        argument.extend_from_slice(&self.attempt.to_le_bytes());
        argument.push(self.ending);
    }
}

/// One check in a script call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CheckRequest {
    /// The Redis key of the state.
    pub(super) name: Vec<u8>,
    /// Further Redis keys that the verb uses: receipts, resets, instances.
    pub(super) helpers: Vec<Vec<u8>>,
    /// The number of the strategy in the scripts.
    pub(super) strategy: u8,
    pub(super) verb: Verb,
    pub(super) cost: u64,
    pub(super) payment: Payment,
    /// The verb's second argument, in microseconds: the length of a lease or of a reservation, the time at
    /// which the refunded units were recorded, or the length of a block.
    pub(super) extra: u64,
    /// For a refund: the key's reset count when the receipt was issued.
    pub(super) resets: u32,
    /// The limit, as the strategy's Lua twin reads it. Empty for verbs without a limit. After it, the further
    /// arguments of [`Verb::Refund`] and [`Verb::Lease`].
    pub(super) limit: Vec<u8>,
    pub(super) outcome_len: usize,
    /// The further arguments of the verbs of reservations.
    pub(super) reservation: Option<ReservationArgs>,
}

impl LeaseArgs {
    /// Appends the arguments of [`Verb::Lease`], which `read_terms` in lease.lua reads.
    pub(super) fn write(&self, argument: &mut Vec<u8>) {
        let LeaseParams { want, unspent, reported, .. } = self.params;
        let numbers =
            [want, unspent.units, unspent.recorded.as_micros(), reported, self.instance.live_for_us];
        numbers.into_iter().for_each(|number| put_count(argument, number));
        argument.extend_from_slice(&unspent.resets.to_le_bytes());
        argument.extend_from_slice(&self.instance.id.to_le_bytes());
        put_origin(argument, unspent.origin);
    }
}

/// Appends the argument of [`Verb::Refund`], which `read_check` in driver/answer.lua reads.
pub(super) fn put_origin(argument: &mut Vec<u8>, origin: Origin) {
    put_count(argument, origin.window_end);
    argument.extend_from_slice(&origin.count.to_le_bytes());
}

/// Reads what `origin_of` in driver.lua returned.
fn read_origin(reader: &mut ReplyReader<'_>) -> Option<Origin> {
    Some(Origin { window_end: reader.count()?, count: reader.word()? })
}

impl CheckRequest {
    /// Whether this is a take that only fits or does not. Only such takes share replies, and have a script of
    /// their own.
    fn is_plain_take(&self) -> bool {
        self.verb == Verb::Take && self.payment == Payment::Prepaid
    }

    /// Returns the verb's number in the driver script, with the payment.
    fn verb_number(&self) -> u8 {
        let payment = match self.payment {
            Payment::Prepaid => 0,
            Payment::Postpaid => POSTPAID,
            Payment::Debit => DEBIT,
        };
        self.verb as u8 + payment
    }

    /// Returns all Redis keys that the check uses, the state's first.
    pub(super) fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        std::iter::once(&self.name).chain(&self.helpers)
    }
}

/// The checks of one caller, usually one.
#[derive(Debug)]
pub(super) enum CallerChecks {
    One(CheckRequest),
    /// The first `atomic` checks are spent all or nothing, the others independently.
    Many {
        requests: Vec<CheckRequest>,
        atomic: usize,
    },
}

impl CallerChecks {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many { requests, .. } => requests.len(),
        }
    }

    /// Returns the checks that are spent all or nothing, and those that are spent independently.
    pub(super) fn split(&self) -> (&[CheckRequest], &[CheckRequest]) {
        match self {
            Self::One(request) => (&[], std::slice::from_ref(request)),
            Self::Many { requests, atomic } => requests.split_at((*atomic).min(requests.len())),
        }
    }
}

/// The reply of a script to one check.
#[derive(Debug, Clone)]
pub(super) struct CheckReply {
    /// The time of the decision.
    pub(super) now: Timestamp,
    /// The numeric result of the verb.
    pub(super) number: u64,
    outcome: [u8; INLINE_OUTCOME],
    outcome_len: usize,
    /// An outcome that is longer than [`INLINE_OUTCOME`].
    long_outcome: Option<Arc<[u8]>>,
    /// Units that earlier callers of the same [`RepeatedCheck`] spent after the script had computed the
    /// outcome.
    pub(super) spent: u64,
    /// For a lease: the number of instances that share the key, and the key's reset count.
    pub(super) instances: u32,
    pub(super) resets: u32,
    /// For a lease and a take with a receipt: the count that the units joined.
    pub(super) origin: Origin,
}

/// The replies to the checks of one caller, usually one.
#[derive(Debug)]
pub(super) enum CallerReplies {
    One(CheckReply),
    Many(Vec<Result<CheckReply, RedisFailure>>),
}

/// The size of the inline buffer for the encoded outcome. Enough for every strategy, except a token bucket
/// with more than four limits.
const INLINE_OUTCOME: usize = 64;

impl CheckReply {
    fn at(now: Timestamp, number: u64) -> Self {
        Self {
            now,
            number,
            outcome: [0; INLINE_OUTCOME],
            outcome_len: 0,
            long_outcome: None,
            spent: 0,
            instances: 0,
            resets: 0,
            origin: Origin::default(),
        }
    }

    pub(super) fn outcome(&self) -> ReplyReader<'_> {
        ReplyReader::new(self.long_outcome.as_deref().unwrap_or(&self.outcome[..self.outcome_len]))
    }
}

/// A check, and the number of consecutive callers that sent it.
#[derive(Debug)]
pub(super) struct RepeatedCheck<'a> {
    pub(super) request: &'a CheckRequest,
    pub(super) times: u32,
}

/// An entry of a script call.
#[derive(Debug)]
enum BatchEntry<'a> {
    Repeated(RepeatedCheck<'a>),
    /// Checks that are spent all or nothing.
    Atomic(&'a [CheckRequest]),
}

/// The entries of one script call, in order.
#[derive(Debug, Default)]
pub(super) struct BatchRequest<'a> {
    entries: Vec<BatchEntry<'a>>,
}

impl<'a> BatchRequest<'a> {
    /// Adds the checks of one caller. Consecutive callers that take the same cost from the same key form
    /// one [`RepeatedCheck`].
    pub(super) fn add(&mut self, requests: &'a CallerChecks) {
        let (atomic, independent) = requests.split();
        match atomic {
            [] => {}
            [request] => self.add_independent(request),
            requests => self.entries.push(BatchEntry::Atomic(requests)),
        }
        independent.iter().for_each(|request| self.add_independent(request));
    }

    fn add_independent(&mut self, request: &'a CheckRequest) {
        match self.entries.last_mut() {
            Some(BatchEntry::Repeated(repeated))
                if request.is_plain_take() && repeated.request == request =>
            {
                repeated.times += 1
            }
            _ => self.entries.push(BatchEntry::Repeated(RepeatedCheck { request, times: 1 })),
        }
    }

    /// Returns the check if it is the only entry and a take. Such a call uses the strategy's own script.
    fn single(&self) -> Option<&RepeatedCheck<'a>> {
        match self.entries.as_slice() {
            [BatchEntry::Repeated(repeated)] if repeated.request.is_plain_take() => Some(repeated),
            _ => None,
        }
    }

    /// Returns the script call for these requests. `now` replaces the server's time, if it is given.
    pub(super) fn call(&self, now: Option<Timestamp>) -> ScriptCall {
        if let Some(repeated) = self.single() {
            return single_call(repeated, now);
        }
        let mut packed = PackedCall::new(now, self.entries.len());
        for entry in &self.entries {
            match entry {
                BatchEntry::Repeated(repeated) => {
                    packed.argument.push(1);
                    packed.add(repeated.request, repeated.times);
                }
                BatchEntry::Atomic(requests) => {
                    packed.argument.push(requests.len() as u8);
                    requests.iter().for_each(|request| packed.add(request, 1));
                }
            }
        }
        packed.call()
    }

    /// Decodes `reply` into a result for each check, in order. Returns `None` if the reply is malformed.
    pub(super) fn read(&self, reply: &[u8]) -> Option<Vec<Result<CheckReply, RedisFailure>>> {
        let mut reader = ReplyReader::new(reply);
        let now = Timestamp::from_micros(reader.count()?);
        let mut replies = Vec::new();
        if let Some(repeated) = self.single() {
            let template = CheckReply::at(now, 0);
            read_outcomes(&mut reader, repeated, template, &mut replies)?;
            return reader.is_empty().then_some(replies);
        }
        for entry in &self.entries {
            match entry {
                BatchEntry::Repeated(repeated) => read_check(&mut reader, repeated, now, &mut replies)?,
                BatchEntry::Atomic(requests) => requests.iter().try_for_each(|request| {
                    read_check(&mut reader, &RepeatedCheck { request, times: 1 }, now, &mut replies)
                })?,
            }
        }
        reader.is_empty().then_some(replies)
    }
}

fn single_call(repeated: &RepeatedCheck<'_>, now: Option<Timestamp>) -> ScriptCall {
    let mut argument = Vec::with_capacity(20 + repeated.request.limit.len());
    put_time(&mut argument, now);
    argument.extend_from_slice(&repeated.times.to_le_bytes());
    put_count(&mut argument, repeated.request.cost);
    argument.extend_from_slice(&repeated.request.limit);
    let script = script::single(repeated.request.strategy);
    let keys = repeated.request.names().cloned().collect();
    ScriptCall { script, keys, arguments: vec![argument] }
}

/// Appends a time; -1 stands for the server's own.
fn put_time(argument: &mut Vec<u8>, now: Option<Timestamp>) {
    put_number(argument, now.map_or(-1.0, |now| now.as_micros() as f64));
}

/// The keys and the packed argument of a call to the driver script.
struct PackedCall {
    keys: Vec<Vec<u8>>,
    argument: Vec<u8>,
}

impl PackedCall {
    fn new(now: Option<Timestamp>, requests: usize) -> Self {
        let mut argument = Vec::with_capacity(64 * (requests + 1));
        put_time(&mut argument, now);
        argument.extend_from_slice(&(requests as u16).to_le_bytes());
        Self { keys: Vec::with_capacity(requests), argument }
    }

    fn add(&mut self, request: &CheckRequest, times: u32) {
        // A key may be listed twice: the driver script reads and writes its state once.
        let index = self.keys.len();
        self.keys.extend(request.names().cloned());
        let times = if request.verb == Verb::Refund { request.resets } else { times };
        self.argument.push(request.strategy);
        self.argument.push(request.verb_number());
        self.argument.extend_from_slice(&(index as u16 + 1).to_le_bytes());
        self.argument.extend_from_slice(&times.to_le_bytes());
        put_count(&mut self.argument, request.cost);
        put_number(&mut self.argument, request.extra.min(1 << 53) as f64);
        if let Some(reservation) = &request.reservation {
            reservation.write(&mut self.argument);
            // A limit has at most 16 token buckets of 32 bytes.
            self.argument.extend_from_slice(&(request.limit.len() as u16).to_le_bytes());
        }
        self.argument.extend_from_slice(&request.limit);
    }

    fn call(self) -> ScriptCall {
        let (script, arguments) = (script::driver(), vec![self.argument]);
        ScriptCall { script, keys: self.keys, arguments }
    }
}

/// Reads the reply of the driver script to one check.
fn read_check(
    reader: &mut ReplyReader<'_>,
    repeated: &RepeatedCheck<'_>,
    now: Timestamp,
    replies: &mut Vec<Result<CheckReply, RedisFailure>>,
) -> Option<()> {
    if reader.byte()? == 0 {
        let len = usize::from(reader.short()?);
        let why = String::from_utf8_lossy(reader.bytes(len)?);
        let failure = RedisFailure::new(RedisFailureKind::Refused, why);
        replies.extend((0..repeated.times).map(|_| Err(failure.clone())));
        return Some(());
    }
    let number = reader.count()?;
    let mut reply = CheckReply::at(now, number);
    if repeated.request.verb == Verb::Lease {
        (reply.instances, reply.resets) = (reader.word()?, reader.word()?);
    }
    if matches!(repeated.request.verb, Verb::Lease | Verb::Reserve) {
        reply.origin = read_origin(reader)?;
    }
    if repeated.request.verb == Verb::Holders {
        let count = usize::try_from(number).ok().filter(|count| *count <= MAX_ENTRIES)?;
        reader.word()?;
        reply.long_outcome = Some(reader.bytes(count * ENTRY_BYTES)?.into());
        replies.push(Ok(reply));
        return Some(());
    }
    if repeated.request.verb.is_deciding() {
        return read_outcomes(reader, repeated, reply, replies);
    }
    replies.extend((0..repeated.times).map(|_| Ok(reply.clone())));
    Some(())
}

/// Reads the replies for all callers of `repeated`. Each is a copy of `template` with its own outcome.
fn read_outcomes(
    reader: &mut ReplyReader<'_>,
    repeated: &RepeatedCheck<'_>,
    template: CheckReply,
    replies: &mut Vec<Result<CheckReply, RedisFailure>>,
) -> Option<()> {
    let mut left = repeated.times;
    while left > 0 {
        let count = reader.word().filter(|count| (1..=left).contains(count))?;
        let bytes = reader.bytes(repeated.request.outcome_len)?;
        let mut reply = template.clone();
        match reply.outcome.get_mut(..bytes.len()) {
            Some(outcome) => {
                outcome.copy_from_slice(bytes);
                reply.outcome_len = bytes.len();
            }
            None => reply.long_outcome = Some(bytes.into()),
        }
        // The outcome of every Lua twin begins with a byte that is 1 if the cost was spent without a draw.
        let is_spending = bytes.first() == Some(&1);
        for before in 0..u64::from(count) {
            let spent = if is_spending { before.checked_mul(repeated.request.cost)? } else { 0 };
            replies.push(Ok(CheckReply { spent, ..reply.clone() }));
        }
        left -= count;
    }
    Some(())
}
