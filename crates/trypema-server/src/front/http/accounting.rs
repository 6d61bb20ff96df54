//! Accounting for answers that clients have not read yet, in the memory budget of all connections.

use http_body::Body;

use super::Answer;
use super::problem::Refusal;
use crate::net::{Place, UNACCOUNTED_BYTES};

/// How an answer is accounted for where that differs from the usual; an extension of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accounting {
    /// It reports units that were spent or a change that was made: it is sent even if the budget is exhausted. A refusal would make
    /// the client repeat the request, and spend twice.
    MustSend,
    /// Its memory was reserved before it was made.
    Reserved,
}

/// Marks an answer.
pub(super) fn marked(mut answer: Answer, accounting: Accounting) -> Answer {
    answer.extensions_mut().insert(accounting);
    answer
}

/// Accounts for an answer until it is sent. An answer for which there is no room becomes a refusal.
pub(super) async fn account_for(answer: Answer, place: &Place) -> Answer {
    let bytes = answer.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.unwrap_or(usize::MAX);
    if bytes <= UNACCOUNTED_BYTES {
        return answer;
    }
    match answer.extensions().get() {
        Some(Accounting::Reserved) => answer,
        Some(Accounting::MustSend) => {
            place.hold_answer_anyway(bytes);
            answer
        }
        None if place.hold_answer(bytes).await => answer,
        None => Refusal::out_of_memory().into_answer(),
    }
}
