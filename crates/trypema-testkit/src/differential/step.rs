//! One step of a random trace.

use std::fmt;

use crate::subject::{Answer, Reserved, Subject, UpTo};

/// The keys a trace plays with.
pub const KEYS: [&str; 3] = ["ann", "bob", "cy"];

/// Something that is done to a subject.
#[derive(Debug, Clone)]
pub struct Step<L> {
    /// The clock it is done at.
    pub now_us: u64,
    /// The limit it is done under.
    pub limit: L,
    /// The key it is done to.
    pub key: &'static str,
    /// What is done.
    pub verb: Verb,
}

/// What is done.
#[derive(Debug, Clone, Copy)]
pub enum Verb {
    /// A take of this cost.
    Take(u64),
    /// A look at a take of this cost.
    Peek(u64),
    /// As much as fits of this cost.
    TakeUpTo(u64),
    /// A take with a receipt.
    Reserve {
        /// The units.
        cost: u64,
        /// How long they may be spent.
        lease_us: u64,
    },
    /// A receipt given back.
    Refund(usize),
    /// Units given back without a receipt.
    RefundUnits(u64),
    /// The key forgotten by hand.
    Reset,
    /// What no longer matters forgotten.
    Forget,
}

/// What a subject answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To a take or a peek.
    Answer(Answer),
    /// To a take of what fits.
    UpTo(UpTo),
    /// To a reservation.
    Reserved(Reserved),
    /// To a refund.
    GivenBack(u64),
    /// To what has no answer.
    Done,
}

impl Reply {
    /// The decision in it.
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
    /// Does it.
    pub fn play<S: Subject<Limit = L>>(&self, subject: &mut S) -> Reply {
        let (key, limit) = (self.key, &self.limit);
        subject.set_clock(self.now_us);
        match self.verb {
            Verb::Take(cost) => Reply::Answer(subject.take(key, limit, cost)),
            Verb::Peek(cost) => Reply::Answer(subject.peek(key, limit, cost)),
            Verb::TakeUpTo(cost) => Reply::UpTo(subject.take_up_to(key, limit, cost)),
            Verb::Reserve { cost, lease_us } => Reply::Reserved(subject.reserve(key, limit, cost, lease_us)),
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
