//! The verbs that every strategy has, on any provider.

use std::collections::HashMap;
use std::time::Duration;

use trypema::clock::Timestamp;

use super::answer::{Answer, Head};
use super::provider::{TimedCall, Unsupported};
use super::step::Verb;
use crate::subject::Modelled;
use crate::verbs::{Lease, Verbs};

/// Receipts by name; `None` if nothing was reserved.
pub(super) type Receipts<R> = HashMap<String, Option<R>>;

/// Calls a verb that every strategy has.
pub(super) fn core<S: Modelled, V: Verbs<S> + ?Sized>(
    limiter: &V,
    limit: &S::Limit,
    call: TimedCall<'_>,
    receipts: &mut Receipts<V::Receipt>,
) -> Result<Answer, Unsupported> {
    let key = call.key;
    Ok(match call.verb {
        Verb::Take(cost) => S::answer(&limiter.take(key, limit, *cost)),
        Verb::Peek(cost) => S::answer(&limiter.peek(key, limit, *cost)),
        Verb::Usage => S::answer(&limiter.peek(key, limit, 0)),
        Verb::UpTo(cost) => {
            let most = limiter.take_up_to(key, limit, *cost);
            S::answer(&most.decision).headed(Head::Granted(most.units))
        }
        Verb::Reserve { cost, name, lease } => {
            let (decision, receipt) =
                limiter.take_with_receipt_for(key, limit, Lease { cost: *cost, lease: *lease });
            let answer = stamped(S::answer(&decision), call, receipt.as_ref().map(V::recorded_at));
            receipts.insert(name.clone(), receipt);
            answer
        }
        Verb::Postpaid(cost) => S::answer(&limiter.take_postpaid(key, limit, *cost)),
        Verb::ReservePostpaid { cost, name } => {
            let (decision, receipt) = limiter.take_postpaid_with_receipt(key, limit, *cost);
            let answer = stamped(S::answer(&decision), call, receipt.as_ref().map(V::recorded_at));
            receipts.insert(name.clone(), receipt);
            answer
        }
        Verb::Debit(cost) => S::answer(&limiter.debit(key, limit, *cost)),
        Verb::Refund(name) => {
            let receipt = receipts.get(name).cloned().flatten();
            let receipt = receipt.ok_or(Unsupported("a refund of what was not taken"))?;
            Answer::new(Head::Refunded(limiter.refund(key, limit, &receipt)))
        }
        Verb::RefundUnits(units) => Answer::new(Head::Refunded(limiter.refund_units(key, limit, *units))),
        Verb::Reset => truth(limiter.reset(key)),
        _ => return Err(Unsupported("a verb that this strategy does not have")),
    })
}

/// Adds the field `stamp`: the time from the call until its units count.
fn stamped(answer: Answer, call: TimedCall<'_>, recorded: Option<Timestamp>) -> Answer {
    let Some(recorded) = recorded else { return answer };
    let ahead_us = recorded.as_micros().saturating_sub(call.now.as_micros());
    answer.with_time("stamp", Duration::from_micros(ahead_us))
}

pub(super) fn truth(is_so: bool) -> Answer {
    Answer::new(Head::Truth(is_so))
}
