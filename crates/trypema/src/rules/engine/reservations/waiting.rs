//! Callers that wait until their reservation fits.

mod waitlist;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use waitlist::CounterKey;
pub(in crate::rules) use waitlist::Waitlist;

use super::{LogOnlyRules, ReservedParts, TriedReservation};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime};
use crate::error::TrypemaError;
use crate::reservation::ReservationName;
use crate::rules::engine::Engine;
use crate::rules::plan::Plan;
use crate::rules::request::Request;
use crate::rules::reservation::{NewReservation, ReserveOptions};
use crate::rules::verdict::Verdict;
use crate::strategy::RETRY_AFTER;
use crate::waiting::{Sleep, with_timeout};

/// The jitter of a waiter between two tries in a store that other processes share.
const POLL_JITTER: Duration = Duration::from_millis(250);

impl Engine {
    /// Reserves, and waits while the request is denied and may be allowed soon.
    pub(super) async fn reserve_with_patience(
        self: &Arc<Self>,
        request: &Request<'_>,
        options: &ReserveOptions,
        name: ReservationName,
    ) -> Result<NewReservation, TrypemaError> {
        let clock = self.limiter.local().clock();
        let deadline = clock.now() + options.patience;
        let try_reserve = || self.try_reserve(request, options.ttl, name, LogOnlyRules::DecideInTheEnd);
        let counters = Plan::for_reservation(self.set.load_full(), request)?.counters_to_wait_for();
        let arrival = self.waitlist.arrive(counters.iter().map(|key| &**key));
        let mut denied = None;
        if !arrival.is_behind_others {
            let tried = try_reserve().await?;
            if !tried.is_worth_waiting(clock.now(), deadline) {
                return Ok(self.conclude(tried).await);
            }
            denied = Some(tried);
        }
        let mut behind = None;
        // Too many callers may wait already.
        if let Ok(place) = self.waitlist.join(arrival, counters) {
            let mut retry_at = deadline;
            loop {
                let turn = poll_fn(|context| place.poll_turn(context));
                if with_timeout(turn, Sleep::until(clock, retry_at)).await.is_none() {
                    place.retry();
                }
                if place.begin_try() {
                    let tried = try_reserve().await?;
                    if !tried.is_worth_waiting(clock.now(), deadline) {
                        // The next one may try meanwhile.
                        drop(place);
                        return Ok(self.conclude(tried).await);
                    }
                    retry_at = self.retry_at(&tried.plan.verdict, clock.now()).min(deadline);
                    place.deny(tried.plan.counters_to_wait_for(), tried.denying_counters());
                    denied = Some(tried);
                } else if clock.now() >= deadline {
                    break;
                } else {
                    // It gets its turn from those ahead of it.
                    retry_at = deadline;
                }
            }
            behind = place.queued_at();
        }
        let denied = match denied {
            Some(denied) => denied,
            // An earlier request with the id may have made the reservation, which a repeated one has to find.
            None if name.id.is_chosen() => try_reserve().await?,
            None => self.deny_untried(request, options.ttl, name, behind).await?,
        };
        Ok(self.conclude(denied).await)
    }

    /// Returns the denial of a caller that never had its turn. It takes nothing, even if there is enough for it:
    /// that is for those who came earlier.
    async fn deny_untried(
        &self,
        request: &Request<'_>,
        ttl: Duration,
        name: ReservationName,
        behind: Option<CounterKey>,
    ) -> Result<TriedReservation, TrypemaError> {
        let mut plan = Plan::for_reservation(self.set.load_full(), request)?;
        let deadline = self.provider().deadline();
        let enforced = || plan.enforced_checks();
        let mut decisions = self.peek_checks(&plan, enforced(), deadline).await?;
        let is_denied = |decision: &Option<Decision>| decision.is_some_and(|decision| !decision.is_allowed());
        if decisions.decisions.iter().any(is_denied) || !plan.verdict.is_allowed() {
            let uncharged = plan.uncharged_by(&decisions);
            self.report_usage(&plan, &uncharged, &mut decisions, deadline).await;
        } else {
            decisions = self.peek_checks(&plan, enforced().usage_of(&enforced().outcomes), deadline).await?;
            let is_behind = |outcome: &&usize| behind.as_deref() == Some(plan.verdict.key(**outcome));
            let waited_for = decisions.outcomes.iter().position(|outcome| is_behind(&outcome)).unwrap_or(0);
            if let Some(Some(decision)) = decisions.decisions.get_mut(waited_for) {
                *decision = self.deny_behind_others(decision);
            }
        }
        plan.decide(&decisions.outcomes, &decisions.decisions);
        let (parts, log_only_rules) = (ReservedParts::default(), LogOnlyRules::DecideInTheEnd);
        let attempt = self.backlog.new_attempt(name.id);
        Ok(TriedReservation { plan, decisions, parts, name, attempt, ttl, deadline, log_only_rules })
    }

    /// Returns the denial of a counter whose units are for those who came earlier.
    fn deny_behind_others(&self, usage: &Decision) -> Decision {
        let now = self.clock().now();
        let not_before = now + RETRY_AFTER;
        Decision {
            is_allowed: false,
            not_before,
            resets_at: not_before.max(now + usage.reset_after()),
            decided_at: DecisionTime::exactly(now),
            ..*usage
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
        let mut denying = verdict.rules().filter(|rule| rule.is_denying()).peekable();
        denying.peek().is_some()
            && denying.all(|rule| match rule.decision.retry_after() {
                None => false,
                Some(wait) => rule.limit.is_held() || now + wait <= deadline,
            })
    }

    /// Returns the counters that denied the request.
    fn denying_counters(&self) -> Arc<[CounterKey]> {
        let denying = self.plan.verdict.rules().filter(|rule| rule.is_denying());
        denying.map(|rule| CounterKey::from(rule.key)).collect()
    }
}

impl Plan {
    /// Returns the counters that may deny the request.
    fn counters_to_wait_for(&self) -> Arc<[CounterKey]> {
        self.enforced_checks().checks.iter().map(|check| CounterKey::from(check.key)).collect()
    }
}
