//! One step of a random trace.

use std::fmt;

use crate::subject::{Answer, Reserved, Subject, UpTo};

/// The keys of a trace.
pub const KEYS: [&str; 3] = ["ann", "bob", "cy"];

/// One call of a subject.
#[derive(Debug, Clone)]
pub struct Step<L> {
    /// The time of the call.
    pub now_us: u64,
    /// The limit of the call.
    pub limit: L,
    /// The key of the call.
    pub key: &'static str,
    /// The verb.
    pub verb: Verb,
}

/// A verb with its arguments.
#[derive(Debug, Clone, Copy)]
pub enum Verb {
    /// A take of this cost.
    Take(u64),
    /// A peek of this cost.
    Peek(u64),
    /// A take of as much of this cost as fits.
    TakeUpTo(u64),
    /// A take with a receipt.
    Reserve {
        /// The units.
        cost: u64,
        /// The duration of the lease.
        lease_us: u64,
    },
    /// A postpaid take of this cost.
    TakePostpaid(u64),
    /// A postpaid take of this cost with a receipt.
    ReservePostpaid(u64),
    /// A debit of this cost.
    Debit(u64),
    /// A refund of the receipt at this position.
    Refund(usize),
    /// A refund of units without a receipt.
    RefundUnits(u64),
    /// A reset of the key.
    Reset,
    /// A removal of stale keys, which must not change any answer.
    Forget,
}

/// The answer of a subject.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To a take or a peek.
    Answer(Answer),
    /// To a take of as much as fits.
    UpTo(UpTo),
    /// To a reservation.
    Reserved(Reserved),
    /// To a refund.
    GivenBack(u64),
    /// To a verb without an answer.
    Done,
}

impl Reply {
    /// Returns the decision in the reply, if it has one.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::UpTo(up_to) => Some(&up_to.answer),
            Self::Reserved(reserved) => Some(&reserved.answer),
            Self::GivenBack(_) | Self::Done => None,
        }
    }
}

impl<L> Step<L> {
    /// Runs the step on `subject`.
    pub fn play<S: Subject<Limit = L>>(&self, subject: &mut S) -> Reply {
        let (key, limit) = (self.key, &self.limit);
        subject.set_clock(self.now_us);
        match self.verb {
            Verb::Take(cost) => Reply::Answer(subject.take(key, limit, cost)),
            Verb::Peek(cost) => Reply::Answer(subject.peek(key, limit, cost)),
            Verb::TakeUpTo(cost) => Reply::UpTo(subject.take_up_to(key, limit, cost)),
            Verb::Reserve { cost, lease_us } => {
                Reply::Reserved(subject.take_with_receipt(key, limit, cost, lease_us))
            }
            Verb::TakePostpaid(cost) => Reply::Answer(subject.take_postpaid(key, limit, cost)),
            Verb::ReservePostpaid(cost) => {
                Reply::Reserved(subject.take_postpaid_with_receipt(key, limit, cost))
            }
            Verb::Debit(cost) => Reply::Answer(subject.debit(key, limit, cost)),
            Verb::Refund(receipt) => Reply::GivenBack(subject.refund(key, limit, receipt)),
            Verb::RefundUnits(units) => Reply::GivenBack(subject.refund_units(key, limit, units)),
            Verb::Reset => {
                subject.reset(key);
                Reply::Done
            }
            Verb::Forget => {
                subject.forget_stale();
                Reply::Done
            }
        }
    }
}

impl<L: fmt::Debug> fmt::Display for Step<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now_us, limit, key, verb } = self;
        write!(f, "{now_us} {key} {verb:?} under {limit:?}")
    }
}
