//! Callers that wait until their reservation fits.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::{LogOnlyRules, TriedReservation};
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::reservation::ReservationName;
use crate::rules::engine::Engine;
use crate::rules::plan::Plan;
use crate::rules::request::Request;
use crate::rules::reservation::{NewReservation, ReserveOptions};
use crate::rules::verdict::Verdict;
use crate::strategy::Limit;
use crate::waiting::{Sleep, with_timeout};

/// The jitter of a waiter between two tries in a store that other processes share.
const POLL_JITTER: Duration = Duration::from_millis(250);

impl Engine {
    /// Reserves, and waits while the request is denied and may be allowed soon.
    pub(super) async fn reserve_patiently(
        self: &Arc<Self>,
        request: &Request<'_>,
        options: &ReserveOptions,
        name: ReservationName,
    ) -> Result<NewReservation, TrypemaError> {
        let clock = self.limiter.local().clock();
        let deadline = clock.now() + options.patience;
        let try_reserve = || self.try_reserve(request, options.ttl, name, LogOnlyRules::DecideInTheEnd);
        let first_key = Plan::for_reservation(self.set.load_full(), request)?.first_slot_key();
        let is_crowded = first_key.as_deref().is_some_and(|key| self.waiters.is_waiting(key.as_bytes()));
        let mut denied = None;
        if !is_crowded {
            let tried = try_reserve().await?;
            if !tried.is_worth_waiting(clock.now(), deadline) {
                return Ok(self.conclude(tried).await);
            }
            denied = Some(tried);
        }
        let key = denied.as_ref().and_then(TriedReservation::denying_key).or(first_key).unwrap_or_default();
        // Too many callers may wait already.
        let position = self.waiters.join(key.as_bytes()).ok();
        let mut has_turn = false;
        if let Some(position) = &position {
            let turn = poll_fn(|context| position.poll_turn(context));
            has_turn = with_timeout(turn, Sleep::until(clock, deadline)).await.is_some();
        }
        let Some(position) = position.filter(|_| has_turn) else {
            let tried = match denied {
                Some(denied) => denied,
                None => try_reserve().await?,
            };
            return Ok(self.conclude(tried).await);
        };
        // The first try is at once: units may have been released before this caller was the first, and a
        // release wakes only the first.
        loop {
            let tried = try_reserve().await?;
            if !tried.is_worth_waiting(clock.now(), deadline) {
                return Ok(self.conclude(tried).await);
            }
            let retry_at = self.retry_at(&tried.plan.verdict, clock.now()).min(deadline);
            let woken = poll_fn(|context| position.poll_woken(context));
            with_timeout(woken, Sleep::until(clock, retry_at)).await;
        }
    }

    /// Returns the time of the next try after a denial.
    fn retry_at(&self, verdict: &Verdict, now: Timestamp) -> Timestamp {
        let wait = verdict.retry_after().unwrap_or_default();
        match self.provider().is_immediate() {
            true => now + wait,
            false => now + wait + crate::jitter::below(POLL_JITTER.min(wait)),
        }
    }

    /// Returns the clock by which callers and tasks wait.
    pub(in crate::rules) fn clock(&self) -> &crate::clock::ClockSource {
        self.limiter.local().clock()
    }
}

impl TriedReservation {
    /// Whether a denial may be over before the deadline. A slot may be released at any time, so its denial
    /// always may.
    fn is_worth_waiting(&self, now: Timestamp, deadline: Timestamp) -> bool {
        let verdict = &self.plan.verdict;
        if verdict.is_allowed() || verdict.is_blocked() || now >= deadline {
            return false;
        }
        let is_slot = |limit: &Limit| matches!(limit, Limit::Concurrency(_));
        let mut denying = verdict.rules().filter(|rule| rule.is_denying()).peekable();
        denying.peek().is_some()
            && denying.all(|rule| match rule.decision.retry_after() {
                None => false,
                Some(wait) => is_slot(rule.limit) || now + wait <= deadline,
            })
    }

    fn denying_key(&self) -> Option<String> {
        self.plan.verdict.decided_by().map(|rule| rule.key.to_owned())
    }
}
