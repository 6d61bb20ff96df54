//! Reservations in Redis: an entry in the table beside each counter, written by the same script call that
//! takes the units.
//!
//! On a Cluster the counters may be in different slots. Then each is reserved on its own, and released again
//! if another one denies the request. The id makes both safe to repeat.

use std::time::Duration;

use super::super::batcher::CallOptions;
use super::super::failure::{RedisFailure, RedisFailureKind};
use super::super::join;
use super::super::protocol::{CheckReply, CheckRequest, ReservationArgs, Verb};
use super::super::provider::RedisRateLimiterProvider;
use super::super::verb_call::VerbArgs;
use super::{KeyedCheck, KeyedChecks};
use crate::check::{Check, CheckResult, Deadline, Failed, IfUnreachable, validate};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::{Decision, DecisionTime};
use crate::error::TrypemaError;
use crate::local::without_room;
use crate::reservation::{
    Ending, HeldReservation, HoldersResult, RenewRequest, RenewResult, RenewedCheck, ReserveRequest,
    ReserveResponse, ReservedCheck, SettleRequest, SettleResult, SettleStatus, SettledCheck,
};
use crate::strategy::reservations::Entry;
use crate::strategy::{Payment, ReplyReader, Spend, Strategy, Wire, with_strategy};

/// The bytes before the outcome in the reply to [`Verb::Hold`].
const BEFORE_OUTCOME: usize = 8;

/// How a reservation ends, as numbers of the scripts.
const AT_COST: u8 = 0;
const AT_ESTIMATE: u8 = 1;
const UNDONE: u8 = 2;
/// Added to the number if the settlement is remembered.
const REMEMBERED: u8 = 8;

/// The answer of the script to one check of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HoldAnswer {
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
struct HoldReply {
    answer: HoldAnswer,
    decision: Decision,
    expires_in: Duration,
}

impl HoldReply {
    fn is_reserved(&self) -> bool {
        matches!(self.answer, HoldAnswer::Known | HoldAnswer::Ended | HoldAnswer::Fits)
    }

    /// Returns the error that fails the request, if there is one.
    fn error(&self) -> Option<TrypemaError> {
        match self.answer {
            HoldAnswer::Conflict => Some(TrypemaError::ReservationConflict),
            HoldAnswer::Undone => Some(TrypemaError::ReservationUndone),
            _ => None,
        }
    }

    /// Returns the part of the reservation at this counter, if there is one.
    fn reserved(&self, check: &Check<'_>) -> Option<ReservedCheck> {
        let is_ended = self.answer == HoldAnswer::Ended;
        let is_known = is_ended || self.answer == HoldAnswer::Known;
        let is_reserved = self.is_reserved() && check.is_reservable();
        is_reserved.then(|| match is_known {
            true => ReservedCheck::known(self.expires_in, is_ended),
            false => ReservedCheck::made(self.expires_in),
        })
    }
}

type HoldResult = Result<HoldReply, RedisFailure>;

impl RedisRateLimiterProvider {
    pub(super) async fn reserve_by_name(
        &self,
        request: ReserveRequest<'_>,
    ) -> Result<ReserveResponse, TrypemaError> {
        validate(request.take.checks)?;
        let checks = KeyedChecks {
            atomic: KeyedCheck::all(request.take.checks),
            independent: KeyedCheck::all(request.take.independent),
        };
        let started = SystemClock.now();
        let requests: Vec<CheckRequest> =
            checks.iter().map(|keyed| self.hold_request(keyed, &request)).collect();
        let (atomic, independent) = if self.store.is_one_call(&requests) {
            let options = CallOptions::with_deadline(request.take.deadline.until());
            let mut replies = self.send_in_one_call(&checks, requests, options).await.into_iter();
            let read =
                |(keyed, reply): (&KeyedCheck<'_>, Result<CheckReply, _>)| self.read_hold(keyed, &reply?);
            let atomic: Vec<HoldResult> = checks.atomic.iter().zip(replies.by_ref()).map(read).collect();
            (atomic, checks.independent.iter().zip(replies).map(read).collect())
        } else {
            let options = CallOptions::with_deadline(request.take.deadline.before_rollback());
            let independent = self.hold_each(&checks.independent, &request, &options);
            let atomic = self.hold_across_slots(&checks.atomic, &request, &options);
            join::both(atomic, independent).await
        };
        let answered = checks.iter().zip(atomic.iter().chain(&independent));
        let decided = answered.filter_map(|(keyed, reply)| Some((keyed, &reply.as_ref().ok()?.decision)));
        self.notify_decisions(decided, started);
        if let Some(error) = atomic.iter().flatten().find_map(HoldReply::error) {
            // The request fails, so it counts nowhere.
            let mut independent = independent;
            self.undo_fitting(&checks.independent, &mut independent, &request).await;
            return Err(error);
        }
        let part = |keyed: &KeyedCheck<'_>, reply: &HoldResult| {
            reply.as_ref().ok().and_then(|reply| reply.reserved(&keyed.check))
        };
        let independent = checks.independent.iter().zip(independent);
        let (independent, independent_receipts) = independent
            .map(|(keyed, reply)| {
                let part = part(keyed, &reply);
                (self.independent_result(keyed, reply), part)
            })
            .unzip();
        let mut response = ReserveResponse { independent, independent_receipts, ..ReserveResponse::empty() };
        for (index, (keyed, reply)) in checks.atomic.iter().zip(atomic).enumerate() {
            response.decisions.push(reply.as_ref().ok().map(|reply| reply.decision));
            response.receipts.push(part(keyed, &reply));
            if let Err(failure) = reply {
                let error = self.report_failure(std::slice::from_ref(keyed), failure);
                response.failures.push(Failed { index, error });
            }
        }
        Ok(response.without_unspent_receipts())
    }

    /// Returns the result of a check that decides nothing. A conflict does not fail its request.
    fn independent_result(&self, keyed: &KeyedCheck<'_>, reply: HoldResult) -> CheckResult {
        let reply = reply.map_err(|failure| self.report_failure(std::slice::from_ref(keyed), failure))?;
        match reply.answer {
            HoldAnswer::Conflict | HoldAnswer::Undone => Ok(Decision::refused()),
            _ => Ok(reply.decision),
        }
    }

    async fn hold_across_slots(
        &self,
        keyed: &[KeyedCheck<'_>],
        request: &ReserveRequest<'_>,
        options: &CallOptions,
    ) -> Vec<HoldResult> {
        let mut replies = match request.name.id.is_chosen() {
            // The reservation may be known, and then it is no question whether its units would fit again.
            true => Vec::new(),
            false => {
                let first = CallOptions::with_deadline(request.take.deadline.of_first_step().until());
                self.try_each(keyed.iter().map(|keyed| (keyed, Verb::Peek)), &first).await
            }
        };
        let is_denied = |reply: &super::DecidedCheckResult| {
            reply.as_ref().is_ok_and(|decided| !decided.decision.is_allowed())
        };
        if replies.iter().any(is_denied) {
            self.report_denial(keyed, &mut replies, options, request.take.deadline).await;
            let as_hold = |reply: super::DecidedCheckResult| {
                reply.map(|decided| HoldReply {
                    answer: HoldAnswer::Denied,
                    decision: decided.decision,
                    expires_in: Duration::ZERO,
                })
            };
            return replies.into_iter().map(as_hold).collect();
        }
        let mut replies = self.hold_each(keyed, request, options).await;
        let is_kept = |(index, reply): (usize, &HoldResult)| match reply {
            Ok(reply) => reply.is_reserved(),
            Err(_) => request.take.if_unreachable(index) == IfUnreachable::Continue,
        };
        if !replies.iter().enumerate().all(is_kept) {
            self.undo_fitting(keyed, &mut replies, request).await;
            let is_given_back =
                |reply: &HoldResult| reply.as_ref().is_ok_and(|reply| reply.answer == HoldAnswer::GivenBack);
            let given_back = keyed.iter().zip(&replies);
            let given_back = given_back.map(|(keyed, reply)| is_given_back(reply).then_some(keyed));
            let options = CallOptions::with_deadline(request.take.deadline.until());
            let usage = self.peek_usage(given_back, &options).await;
            for (reply, usage) in replies.iter_mut().zip(usage) {
                if let Ok(reply) = reply
                    && reply.answer == HoldAnswer::GivenBack
                {
                    reply.decision = usage.unwrap_or(reply.decision);
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
        replies: &mut [HoldResult],
        request: &ReserveRequest<'_>,
    ) {
        let is_reserved = |reply: &HoldResult| {
            reply.as_ref().is_ok_and(|reply| matches!(reply.answer, HoldAnswer::Fits | HoldAnswer::Known))
        };
        let reserved = keyed.iter().zip(&*replies).filter(|(_, reply)| is_reserved(reply));
        let settlements: Vec<SettleRequest<'_>> = reserved
            .map(|(keyed, _)| SettleRequest::undo(keyed.check, request.attempt(), Duration::ZERO))
            .collect();
        let undone = self.settle_each(&settlements, request.take.deadline).await;
        for (reply, undone) in replies.iter_mut().filter(|reply| is_reserved(reply)).zip(undone) {
            match (&mut *reply, undone) {
                (Ok(held), Ok(_)) if held.answer == HoldAnswer::Fits => held.answer = HoldAnswer::GivenBack,
                (_, Ok(_)) => {}
                (_, Err(error)) => {
                    let message = format!("could not be given back: {error}");
                    *reply = Err(RedisFailure::new(RedisFailureKind::OutcomeUnknown, message));
                }
            }
        }
    }

    /// Reserves each check independently and concurrently.
    async fn hold_each(
        &self,
        keyed: &[KeyedCheck<'_>],
        request: &ReserveRequest<'_>,
        options: &CallOptions,
    ) -> Vec<HoldResult> {
        let requests: Vec<(&KeyedCheck<'_>, CheckRequest)> =
            keyed.iter().map(|keyed| (keyed, self.hold_request(keyed, request))).collect();
        let hold = |(keyed, request)| async move {
            self.charge_outage_units(keyed, options).await?;
            let reply = self.store.send_many(vec![request], 1, options.clone()).await?;
            let missing = || RedisFailure::new(RedisFailureKind::BadReply, "the script's reply is empty");
            self.read_hold(keyed, &reply.into_iter().next().ok_or_else(missing)??)
        };
        join::all(requests.into_iter().map(hold)).await
    }

    pub(super) async fn settle_each(
        &self,
        settlements: &[SettleRequest<'_>],
        deadline: Deadline,
    ) -> Vec<SettleResult> {
        let requests = settlements.iter().map(|settlement| {
            let (attempt, ending, extra) = match settlement.ending {
                Ending::Cost => (0, AT_COST, 0),
                Ending::Estimate => (0, AT_ESTIMATE, 0),
                Ending::Undone { attempt, marked_for } => (attempt, UNDONE, micros(marked_for)),
            };
            let ending = if settlement.is_remembered { ending + REMEMBERED } else { ending };
            let args = ReservationArgs { id: settlement.id.0, request: 0, attempt, ending };
            (settlement.check, self.reservation_request(&settlement.check, Verb::Settle, extra, args))
        });
        let read = |now: Timestamp, number: u64, mut reply: ReplyReader<'_>| {
            let status = match number {
                1 => SettleStatus::Settled,
                2 => SettleStatus::SettledBefore,
                3 => SettleStatus::NoRoom,
                _ => SettleStatus::Unknown,
            };
            let (reserved, counted) = (reply.count()?, reply.count()?);
            let (refunded, expires_at) = (reply.count()?, reply.count()?);
            let expires_in = left_until(expires_at, now);
            Some(SettledCheck { status, reserved, counted, refunded, expires_in })
        };
        self.send_to_tables(requests.collect(), deadline, read).await
    }

    pub(super) async fn renew_each(
        &self,
        renewals: &[RenewRequest<'_>],
        deadline: Deadline,
    ) -> Vec<RenewResult> {
        let requests = renewals.iter().map(|renewal| {
            let args = ReservationArgs { id: renewal.id.0, request: 0, attempt: 0, ending: AT_COST };
            let ttl_us = micros(renewal.ttl);
            (renewal.check, self.reservation_request(&renewal.check, Verb::Renew, ttl_us, args))
        });
        let read = |now: Timestamp, number: u64, mut reply: ReplyReader<'_>| {
            let (was_left, expires_in) = (reply.count()?, reply.count()?);
            let [was_left, expires_in] = [was_left, expires_in].map(|at| left_until(at, now));
            Some((number == 1).then_some(RenewedCheck { was_left, expires_in }))
        };
        self.send_to_tables(requests.collect(), deadline, read).await
    }

    pub(super) async fn holders_of(&self, check: Check<'_>, deadline: Deadline) -> HoldersResult {
        let args = ReservationArgs { id: [0; 16], request: 0, attempt: 0, ending: AT_COST };
        let request = self.reservation_request(&check, Verb::Holders, 0, args);
        let read = |now: Timestamp, number: u64, mut reply: ReplyReader<'_>| {
            let entry = |_| Some(HeldReservation::new(&Entry::read(&mut reply)?, now));
            (0..number).map(entry).collect::<Option<Vec<_>>>()
        };
        let holders = self.send_to_tables(vec![(check, request)], deadline, read).await;
        holders.into_iter().next().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Sends requests to the tables of counters, in one call if possible, and reads the reply to each.
    async fn send_to_tables<T>(
        &self,
        requests: Vec<(Check<'_>, CheckRequest)>,
        deadline: Deadline,
        read: impl Fn(Timestamp, u64, ReplyReader<'_>) -> Option<T>,
    ) -> Vec<Result<T, TrypemaError>> {
        let (checks, requests): (Vec<Check<'_>>, Vec<CheckRequest>) = requests.into_iter().unzip();
        let (count, options) = (requests.len(), CallOptions::with_deadline(deadline.until()));
        let malformed =
            || RedisFailure::new(RedisFailureKind::BadReply, "the script's reply has an impossible number");
        let mut replies = if self.store.is_one_call(&requests) {
            match self.store.send_many(requests, 0, options).await {
                Ok(replies) => replies,
                Err(failure) => vec![Err(failure); count],
            }
        } else {
            let send = |request: CheckRequest| self.store.send(request, options.clone());
            join::all(requests.into_iter().map(send)).await
        };
        replies.resize_with(count, || Err(malformed()));
        let read_one = |(check, reply): (&Check<'_>, Result<CheckReply, RedisFailure>)| {
            let reply =
                reply.and_then(|reply| read(reply.now, reply.number, reply.outcome()).ok_or_else(malformed));
            reply.map_err(|failure| self.report_failure(&[KeyedCheck::new(*check)], failure))
        };
        checks.iter().zip(replies).map(read_one).collect()
    }

    fn hold_request(&self, keyed: &KeyedCheck<'_>, request: &ReserveRequest<'_>) -> CheckRequest {
        let (name, attempt, extra) = (request.name, request.attempt, micros(request.ttl));
        let payment = if request.is_debit { Payment::Debit } else { keyed.payment };
        let args = VerbArgs { extra, ..VerbArgs::new(Verb::Hold, keyed.check.cost) }.with_payment(payment);
        let mut made = with_strategy!(keyed.check.limit, |S, limit| {
            self.limiter::<S>().check_request(&keyed.key, Some(limit), args)
        });
        made.outcome_len += BEFORE_OUTCOME;
        let ending = AT_COST;
        made.reservation = Some(ReservationArgs { id: name.id.0, request: name.request, attempt, ending });
        made
    }

    fn reservation_request(
        &self,
        check: &Check<'_>,
        verb: Verb,
        extra: u64,
        reservation: ReservationArgs,
    ) -> CheckRequest {
        let keyed = KeyedCheck::new(*check);
        let args = VerbArgs { extra, ..VerbArgs::new(verb, check.cost) };
        let made = with_strategy!(check.limit, |S, limit| {
            self.limiter::<S>().check_request(&keyed.key, Some(limit), args)
        });
        let outcome_len = match verb {
            Verb::Settle => 4 * 8,
            Verb::Renew => 2 * 8,
            _ => 8,
        };
        CheckRequest { outcome_len, reservation: Some(reservation), ..made }
    }

    fn read_hold(&self, keyed: &KeyedCheck<'_>, reply: &CheckReply) -> HoldResult {
        let malformed =
            || RedisFailure::new(RedisFailureKind::BadReply, "the script's reply has an impossible outcome");
        let answer = match reply.number {
            0 => HoldAnswer::Denied,
            1 => HoldAnswer::Fits,
            2 => HoldAnswer::Known,
            3 => HoldAnswer::Conflict,
            4 => HoldAnswer::Full,
            5 => HoldAnswer::Ended,
            6 => HoldAnswer::DeniedElsewhere,
            7 => HoldAnswer::Undone,
            _ => return Err(malformed()),
        };
        let mut outcome = reply.outcome();
        let expires_at = outcome.count().ok_or_else(malformed)?;
        let spend = match answer {
            HoldAnswer::Known
            | HoldAnswer::Ended
            | HoldAnswer::Conflict
            | HoldAnswer::Undone
            | HoldAnswer::Full
            | HoldAnswer::DeniedElsewhere => Spend::NOTHING,
            _ => Spend { cost: keyed.check.cost, payment: keyed.payment },
        };
        let decision = with_strategy!(keyed.check.limit, |S, limit| {
            let found = <S as Wire>::read_outcome(limit, &mut outcome, spend.at(reply.now), 0);
            let found = found.ok_or_else(malformed)?;
            S::core(&S::decision(limit, found, DecisionTime::exactly(reply.now)))
        });
        let decision = match answer {
            HoldAnswer::Full => without_room(decision, reply.now),
            _ => decision,
        };
        Ok(HoldReply { answer, decision, expires_in: left_until(expires_at, reply.now) })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn left_until(expires_at: u64, now: Timestamp) -> Duration {
    Duration::from_micros(expires_at.saturating_sub(now.as_micros()))
}
