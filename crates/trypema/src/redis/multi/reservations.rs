//! Reservations in Redis: an entry in the table beside each counter, written by the same script call that
//! takes the units.
//!
//! On a Cluster the counters may be in different slots. Then each is reserved on its own, and released again
//! if another one denies the request. The id makes both safe to repeat.

use std::time::Duration;

use super::super::batcher::CallOptions;
use super::super::failure::{RedisFailure, RedisFailureKind};
use super::super::join;
use super::super::protocol::{
    CheckReply, CheckReplyResult, CheckRequest, ReservationArgs, left_until, malformed,
};
use super::super::provider::RedisRateLimiterProvider;
use super::super::verb;
use super::{DecidedCheckResult, KeyedCheck, is_denied, read_decision};
use crate::check::{Check, Failed, validate};
use crate::clock::{Clock, SystemClock};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::local::without_room;
use crate::reservation::{ReserveRequest, ReserveResponse, ReservedCheck, SettleRequest};
use crate::strategy::{Payment, Spend};

/// The answer of the script to one check of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReserveAnswer {
    /// The counter denies it.
    Denied,
    /// It is reserved, unless another check of the request is denied.
    Fits,
    /// It was reserved by an earlier request with the same id.
    Known,
    /// It was reserved by an earlier request with the same id, and has been settled or released since.
    Ended,
    /// It would fit, but another check of the request is denied.
    DeniedElsewhere,
    /// Another request has used the id.
    Conflict,
    /// The table of reservations has no room.
    Full,
    /// It was reserved and given back, because another check of the request was denied or failed.
    GivenBack,
    /// The attempt was undone before it arrived.
    Undone,
}

/// The reply to one check of a reservation.
#[derive(Debug, Clone, Copy)]
struct ReserveReply {
    answer: ReserveAnswer,
    decision: Decision,
    expires_in: Duration,
}

impl ReserveReply {
    fn is_reserved(&self) -> bool {
        matches!(self.answer, ReserveAnswer::Known | ReserveAnswer::Ended | ReserveAnswer::Fits)
    }

    /// Returns the error that fails the request, if there is one.
    fn error(&self) -> Option<TrypemaError> {
        match self.answer {
            ReserveAnswer::Conflict => Some(TrypemaError::ReservationConflict),
            ReserveAnswer::Undone => Some(TrypemaError::ReservationUndone),
            _ => None,
        }
    }

    /// Returns the part of the reservation at this counter, if there is one.
    fn reserved(&self, check: &Check<'_>) -> Option<ReservedCheck> {
        let is_ended = self.answer == ReserveAnswer::Ended;
        let is_known = is_ended || self.answer == ReserveAnswer::Known;
        let is_reserved = self.is_reserved() && check.is_reservable();
        is_reserved.then(|| match is_known {
            true => ReservedCheck::known(self.expires_in, is_ended),
            false => ReservedCheck::made(self.expires_in),
        })
    }
}

type ReserveResult = Result<ReserveReply, RedisFailure>;

impl RedisRateLimiterProvider {
    pub(crate) async fn reserve_by_name(
        &self,
        request: ReserveRequest<'_>,
    ) -> Result<ReserveResponse, TrypemaError> {
        validate(request.take.checks)?;
        let (mut keyed, started) = (KeyedCheck::all(&request.take), SystemClock.now());
        if request.is_debit {
            keyed.iter_mut().for_each(|keyed| keyed.spend.payment = Payment::Debit);
        }
        let count = request.take.checks.len();
        let requests: Vec<CheckRequest> =
            keyed.iter().map(|keyed| self.reserve_request(keyed, &request)).collect();
        let (atomic, mut independent) = if self.store.is_one_call(&requests) {
            let options = CallOptions::with_deadline(request.take.deadline.until());
            let options = CallOptions { atomic: count, ..options };
            let replies = self.send_each(&keyed, requests, options).await;
            let read = |(keyed, reply): (&_, CheckReplyResult)| read_reserved(keyed, &reply?);
            let mut replies: Vec<ReserveResult> = keyed.iter().zip(replies).map(read).collect();
            let independent = replies.split_off(count);
            (replies, independent)
        } else {
            let options = CallOptions::with_deadline(request.take.deadline.before_rollback());
            let (atomic, independent) = keyed.split_at(count);
            let independent = self.reserve_each(independent, &request, &options);
            join::both(self.reserve_across_slots(atomic, &request, &options), independent).await
        };
        let answered = keyed.iter().zip(atomic.iter().chain(&independent));
        let decided = answered.filter_map(|(keyed, reply)| Some((keyed, &reply.as_ref().ok()?.decision)));
        self.notify_decisions(decided, started);
        let (keyed, keyed_independent) = keyed.split_at(count);
        if let Some(error) = atomic.iter().flatten().find_map(ReserveReply::error) {
            // The request fails, so it counts nowhere.
            self.undo_fitting(keyed_independent, &mut independent, &request).await;
            return Err(error);
        }
        let part = |keyed: &KeyedCheck<'_>, reply: &ReserveResult| {
            reply.as_ref().ok().and_then(|reply| reply.reserved(&keyed.check))
        };
        let independent = keyed_independent.iter().zip(independent);
        let (independent, independent_receipts) = independent
            .map(|(keyed, reply)| {
                let part = part(keyed, &reply);
                // A conflict of a check that decides nothing does not fail its request.
                let decision =
                    reply.map(|reply| reply.error().map_or(reply.decision, |_| Decision::refused()));
                (decision.map_err(|failure| self.report_failure(keyed, failure)), part)
            })
            .unzip();
        let mut response = ReserveResponse { independent, independent_receipts, ..ReserveResponse::empty() };
        for (index, (keyed, reply)) in keyed.iter().zip(atomic).enumerate() {
            response.decisions.push(reply.as_ref().ok().map(|reply| reply.decision));
            response.receipts.push(part(keyed, &reply));
            if let Err(failure) = reply {
                response.failures.push(Failed { index, error: self.report_failure(keyed, failure) });
            }
        }
        Ok(response.without_unspent_receipts())
    }

    async fn reserve_across_slots(
        &self,
        keyed: &[KeyedCheck<'_>],
        request: &ReserveRequest<'_>,
        options: &CallOptions,
    ) -> Vec<ReserveResult> {
        let mut replies = match request.name.id.is_chosen() {
            // The reservation may be known, and then it is no question whether its units would fit again.
            true => Vec::new(),
            false => {
                let first = CallOptions::with_deadline(request.take.deadline.of_first_step().until());
                self.try_each(keyed, verb::PEEK, &first).await
            }
        };
        if replies.iter().any(is_denied) {
            self.report_denial(keyed, &mut replies, options, request.take.deadline).await;
            let denied = |reply: DecidedCheckResult| {
                reply.map(|decided| ReserveReply {
                    answer: ReserveAnswer::Denied,
                    decision: decided.decision,
                    expires_in: Duration::ZERO,
                })
            };
            return replies.into_iter().map(denied).collect();
        }
        let mut replies = self.reserve_each(keyed, request, options).await;
        let is_kept = |(index, reply): (usize, &ReserveResult)| match reply {
            Ok(reply) => reply.is_reserved(),
            Err(_) => request.take.may_fail(index),
        };
        if !replies.iter().enumerate().all(is_kept) {
            self.undo_fitting(keyed, &mut replies, request).await;
            let is_given_back = |reply: &ReserveResult| {
                reply.as_ref().is_ok_and(|reply| reply.answer == ReserveAnswer::GivenBack)
            };
            let options = CallOptions::with_deadline(request.take.deadline.until());
            let usage = self.peek_usage(keyed, replies.iter().map(is_given_back), &options).await;
            for (reply, usage) in replies.iter_mut().zip(usage) {
                if let (Ok(reply), Some(usage)) = (reply, usage) {
                    reply.decision = usage;
                }
            }
        }
        replies
    }

    /// Undoes the checks that this attempt has reserved or found, because another one was denied or failed. What could
    /// not be undone is a failure with an unknown outcome, like a check without a reply: the caller undoes it later.
    async fn undo_fitting(
        &self,
        keyed: &[KeyedCheck<'_>],
        replies: &mut [ReserveResult],
        request: &ReserveRequest<'_>,
    ) {
        let is_reserved = |reply: &ReserveResult| {
            reply
                .as_ref()
                .is_ok_and(|reply| matches!(reply.answer, ReserveAnswer::Fits | ReserveAnswer::Known))
        };
        let reserved = keyed.iter().zip(&*replies).filter(|(_, reply)| is_reserved(reply));
        let settlements: Vec<SettleRequest<'_>> = reserved
            .map(|(keyed, _)| SettleRequest::undo(keyed.check, request.attempt(), Duration::ZERO))
            .collect();
        let undone = self.each(&settlements, request.take.deadline).await;
        for (reply, undone) in replies.iter_mut().filter(|reply| is_reserved(reply)).zip(undone) {
            match (&mut *reply, undone) {
                (Ok(held), Ok(_)) if held.answer == ReserveAnswer::Fits => {
                    held.answer = ReserveAnswer::GivenBack
                }
                (_, Ok(_)) => {}
                (_, Err(error)) => {
                    let message = format!("could not be given back: {error}");
                    *reply = Err(RedisFailure::new(RedisFailureKind::OutcomeUnknown, message));
                }
            }
        }
    }

    /// Reserves each check independently and concurrently.
    async fn reserve_each(
        &self,
        keyed: &[KeyedCheck<'_>],
        request: &ReserveRequest<'_>,
        options: &CallOptions,
    ) -> Vec<ReserveResult> {
        let reserve = |keyed| async move {
            self.charge_outage_units(keyed, options.clone()).await?;
            read_reserved(
                keyed,
                &self.store.send(self.reserve_request(keyed, request), options.clone()).await?,
            )
        };
        join::all(keyed.iter().map(reserve)).await
    }

    fn reserve_request(&self, keyed: &KeyedCheck<'_>, request: &ReserveRequest<'_>) -> CheckRequest {
        let (name, attempt) = (request.name, request.attempt);
        let name = ReservationArgs { id: name.id.0, request: name.request, attempt, ending: 0 };
        self.check_request(keyed, verb::RESERVE).lasting(request.ttl).naming(&name)
    }
}

fn read_reserved(keyed: &KeyedCheck<'_>, reply: &CheckReply) -> ReserveResult {
    let answer = match reply.number {
        0 => ReserveAnswer::Denied,
        1 => ReserveAnswer::Fits,
        2 => ReserveAnswer::Known,
        3 => ReserveAnswer::Conflict,
        4 => ReserveAnswer::Full,
        5 => ReserveAnswer::Ended,
        6 => ReserveAnswer::DeniedElsewhere,
        7 => ReserveAnswer::Undone,
        _ => return Err(malformed()),
    };
    let reader = &mut reply.reader();
    let expires_at = reader.count().ok_or_else(malformed)?;
    let spend = match answer {
        ReserveAnswer::Denied | ReserveAnswer::Fits | ReserveAnswer::GivenBack => keyed.check.spend(),
        _ => Spend::NOTHING,
    };
    let decision = read_decision(&keyed.check, spend, reply, reader)?;
    let decision = match answer {
        ReserveAnswer::Full => without_room(decision, reply.now),
        _ => decision,
    };
    Ok(ReserveReply { answer, decision, expires_in: left_until(expires_at, reply.now) })
}
