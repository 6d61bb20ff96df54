//! Encodes checks for the scripts, and decodes the replies to them. `verb.rs` has the format.

use std::sync::Arc;
use std::time::Duration;

use super::failure::{RedisFailure, RedisFailureKind};
use super::lease::LeaseArgs;
use super::script;
use super::transport::ScriptCall;
use super::verb::{self, ReplyLayout, VerbRow};
use crate::clock::Timestamp;
use crate::strategy::reservations::{ENTRY_BYTES, MAX_ENTRIES};
use crate::strategy::{LeaseParams, Origin, Payment, ReplyReader, Spend, put_count, put_number};

/// One check in a script call.
#[derive(Debug)]
pub(crate) struct CheckRequest {
    /// The Redis key of the state.
    pub(super) name: Vec<u8>,
    /// Further Redis keys that the verb uses.
    pub(super) helpers: Vec<Vec<u8>>,
    /// The number of the strategy in the scripts.
    pub(super) strategy: u8,
    pub(super) verb: &'static VerbRow,
    pub(super) spend: Spend,
    /// The time that the verb needs, in microseconds.
    pub(super) time_us: u64,
    /// The arguments of the verb, with the limit as the strategy's Lua twin reads it.
    pub(super) arguments: Vec<u8>,
    /// The length of an outcome for the limit.
    pub(super) outcome_len: usize,
}

/// The name of a reservation, and how it ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReservationArgs {
    pub(crate) id: [u8; 16],
    /// A digest of the request that makes the reservation.
    pub(crate) request: u64,
    pub(crate) attempt: u64,
    /// The number of the `Ending`.
    pub(crate) ending: u8,
}

/// The reply of a script to one check.
#[derive(Debug, Clone)]
pub(crate) struct CheckReply {
    /// The time of the decision.
    pub(crate) now: Timestamp,
    /// The numeric result of the verb.
    pub(crate) number: u64,
    /// What follows the number.
    inline: [u8; INLINE],
    len: usize,
    /// The same, if it is longer than [`INLINE`].
    long: Option<Arc<[u8]>>,
    /// Units that earlier callers of the same take spent after the script had computed the outcome.
    pub(super) spent: u64,
}

/// The reply to one check, or the failure of its request.
pub(super) type CheckReplyResult = Result<CheckReply, RedisFailure>;

/// The size of the buffer in a reply: enough for every verb and strategy, except a token bucket with more than four
/// limits.
const INLINE: usize = 88;

impl ReservationArgs {
    /// Returns the arguments of a verb whose limit is encoded as `limit`.
    fn with_limit(&self, limit: &[u8]) -> Vec<u8> {
        // A limit has at most 16 token buckets of 32 bytes.
        let len = (limit.len() as u16).to_le_bytes();
        let (request, attempt) = (self.request.to_le_bytes(), self.attempt.to_le_bytes());
        [&self.id[..], &request, &attempt, &[self.ending], &len, limit].concat()
    }
}

impl LeaseArgs {
    /// Appends the arguments that follow the limit.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let LeaseParams { want, unspent, reported, .. } = self.params;
        let numbers =
            [want, unspent.units, unspent.recorded.as_micros(), reported, self.instance.live_for_us];
        numbers.into_iter().for_each(|number| put_count(out, number));
        out.extend_from_slice(&unspent.resets.to_le_bytes());
        out.extend_from_slice(&self.instance.id.to_le_bytes());
        put_origin(out, unspent.origin);
    }
}

pub(super) fn put_origin(out: &mut Vec<u8>, origin: Origin) {
    put_count(out, origin.window_end);
    out.extend_from_slice(&origin.count.to_le_bytes());
}

pub(super) fn read_origin(reader: &mut ReplyReader<'_>) -> Option<Origin> {
    Some(Origin { window_end: reader.count()?, count: reader.word()? })
}

impl CheckRequest {
    /// Returns the same request with a cost.
    pub(crate) fn spending(self, spend: Spend) -> Self {
        Self { spend, ..self }
    }

    /// Returns the same request with the time of its verb.
    pub(crate) fn lasting(self, time: Duration) -> Self {
        Self { time_us: u64::try_from(time.as_micros()).unwrap_or(u64::MAX), ..self }
    }

    /// Returns the same request with the name of a reservation.
    pub(crate) fn naming(self, reservation: &ReservationArgs) -> Self {
        Self { arguments: reservation.with_limit(&self.arguments), ..self }
    }

    /// Whether this is a take that only fits or does not. Only such takes share replies, and have a script of
    /// their own.
    pub(super) fn is_plain_take(&self) -> bool {
        self.verb.number == verb::TAKE.number && self.spend.payment == Payment::Prepaid
    }

    /// Whether consecutive callers with these requests share a reply.
    pub(super) fn shares_reply_with(&self, other: &Self) -> bool {
        self.is_plain_take()
            && other.is_plain_take()
            && self.spend == other.spend
            && self.strategy == other.strategy
            && self.name == other.name
            && self.arguments == other.arguments
    }

    /// Returns the call of the script for a plain take by `times` callers.
    pub(super) fn single_call(&self, times: u32, now: Option<Timestamp>) -> ScriptCall {
        let mut argument = Vec::with_capacity(20 + self.arguments.len());
        put_time(&mut argument, now);
        argument.extend_from_slice(&times.to_le_bytes());
        put_count(&mut argument, self.spend.cost);
        argument.extend_from_slice(&self.arguments);
        let script = script::single(self.strategy);
        ScriptCall { script, keys: vec![self.name.clone()], arguments: vec![argument] }
    }

    /// Appends this check, of `times` callers, to the keys and the argument of a call to the driver script.
    pub(super) fn write(&self, times: u32, keys: &mut Vec<Vec<u8>>, argument: &mut Vec<u8>) {
        let payment = match self.spend.payment {
            Payment::Prepaid => 0,
            Payment::Postpaid => verb::POSTPAID,
            Payment::Debit => verb::DEBIT,
        };
        argument.push(self.strategy);
        argument.push(self.verb.number + payment);
        // A key may be listed twice: the driver script reads and writes its state once.
        argument.extend_from_slice(&(keys.len() as u16 + 1).to_le_bytes());
        keys.push(self.name.clone());
        keys.extend(self.helpers.iter().cloned());
        argument.extend_from_slice(&times.to_le_bytes());
        put_count(argument, self.spend.cost);
        put_count(argument, self.time_us);
        argument.extend_from_slice(&self.arguments);
    }

    /// Reads the part of the driver's reply to this check, of `times` callers. Adds a reply for each.
    pub(super) fn read(
        &self,
        times: u32,
        now: Timestamp,
        reader: &mut ReplyReader<'_>,
        replies: &mut Vec<CheckReplyResult>,
    ) -> Option<()> {
        if reader.byte()? == 0 {
            let len = usize::from(reader.short()?);
            let why = String::from_utf8_lossy(reader.bytes(len)?);
            let failure = RedisFailure::new(RedisFailureKind::Refused, why);
            replies.extend((0..times).map(|_| Err(failure.clone())));
            return Some(());
        }
        let mut reply = CheckReply::new(now, reader.count()?);
        if let ReplyLayout::Decision { before, .. } = self.verb.reply {
            reply.append(reader.bytes(before)?);
        }
        if self.verb.reply == ReplyLayout::Number {
            replies.extend((0..times).map(|_| Ok(reply.clone())));
            return Some(());
        }
        self.read_parts(times, &reply, reader, replies)
    }

    /// Reads the parts of a reply, each for some of the `times` callers. Each caller gets a copy of `reply` with its
    /// part.
    pub(super) fn read_parts(
        &self,
        times: u32,
        reply: &CheckReply,
        reader: &mut ReplyReader<'_>,
        replies: &mut Vec<CheckReplyResult>,
    ) -> Option<()> {
        let len = match self.verb.reply {
            ReplyLayout::Number => 0,
            ReplyLayout::Decision { in_front, .. } => in_front + self.outcome_len,
            ReplyLayout::Bytes(len) => len,
            ReplyLayout::Entries => {
                usize::try_from(reply.number).ok().filter(|count| *count <= MAX_ENTRIES)? * ENTRY_BYTES
            }
        };
        let mut left = times;
        while left > 0 {
            let count = reader.word().filter(|count| (1..=left).contains(count))?;
            let part = reader.bytes(len)?;
            let mut reply = reply.clone();
            reply.append(part);
            // The outcome of every Lua twin begins with a byte that is 1 if the cost was spent without a draw.
            let is_spending = part.first() == Some(&1);
            for before in 0..u64::from(count) {
                let spent = if is_spending { before.checked_mul(self.spend.cost)? } else { 0 };
                replies.push(Ok(CheckReply { spent, ..reply.clone() }));
            }
            left -= count;
        }
        Some(())
    }
}

impl CheckReply {
    /// Returns what follows the number, as counts.
    pub(crate) fn counts<const N: usize>(&self) -> Result<[u64; N], RedisFailure> {
        let (mut counts, mut reader) = ([0; N], self.reader());
        for count in &mut counts {
            *count = reader.count().ok_or_else(malformed)?;
        }
        Ok(counts)
    }

    pub(super) fn new(now: Timestamp, number: u64) -> Self {
        Self { now, number, inline: [0; INLINE], len: 0, long: None, spent: 0 }
    }

    fn append(&mut self, bytes: &[u8]) {
        let len = self.len + bytes.len();
        match self.inline.get_mut(self.len..len) {
            Some(free) => free.copy_from_slice(bytes),
            None => self.long = Some([&self.inline[..self.len], bytes].concat().into()),
        }
        self.len = len;
    }

    /// Returns a reader of what follows the number.
    pub(crate) fn reader(&self) -> ReplyReader<'_> {
        ReplyReader::new(self.long.as_deref().unwrap_or_else(|| &self.inline[..self.len]))
    }
}

/// Returns the failure of a reply with an impossible number.
pub(crate) fn malformed() -> RedisFailure {
    RedisFailure::new(RedisFailureKind::BadReply, "the script's reply has an impossible number")
}

/// Returns the time from `now` until a time of the scripts.
pub(crate) fn left_until(expires_at: u64, now: Timestamp) -> Duration {
    Duration::from_micros(expires_at.saturating_sub(now.as_micros()))
}

/// Appends a time; -1 stands for the server's own.
pub(super) fn put_time(argument: &mut Vec<u8>, now: Option<Timestamp>) {
    put_number(argument, now.map_or(-1.0, |now| now.as_micros() as f64));
}
