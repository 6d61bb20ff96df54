//! The failure policy: decides checks whose store has failed. It is applied here, once, for every verb of rules
//! and middleware. (`redis/fallback.rs` decides single calls to Redis.)
//!
//! | policy | take, peek, reserve | record | refund | reset, settle, renew |
//! | --- | --- | --- | --- | --- |
//! | `error` | an error | an error | an error | an error |
//! | `allow` | allowed, not counted | allowed, not counted | an error | an error |
//! | `deny` | denied, not counted | denied, not counted | an error | an error |
//! | `local` | decided and counted here | counted here | of units counted here | an error; here, of what was reserved here |
//!
//! "Here" is in this process.
//!
//! A refund or reset that did not happen is never reported as done. Decisions made here are marked as such
//! ([`Decision::is_substitute`]).

use super::{AnyReceipt, OnStoreFailure, Provider, RefundRequest, SubstituteReservation};
use crate::check::{
    Check, CheckResult, Deadline, DecideRequest, Failed, Receipts, TakeRequest, TakeResponse,
};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::reservation::{ReserveRequest, ReserveResponse, ReservedCheck};
use crate::strategy::Effect;

/// Returns the policy of the check at an index. `None` is the policy that the limiter was built with.
pub(crate) type PolicyOf<'a> = dyn Fn(usize) -> Option<OnStoreFailure> + Sync + 'a;

/// The [`PolicyOf`] for limits without a policy of their own.
#[cfg(feature = "tower")]
pub(crate) fn as_built(_index: usize) -> Option<OnStoreFailure> {
    None
}

/// Returns, for each check, whether its request continues if it fails. Empty for a provider that cannot fail.
pub(crate) fn may_fail(provider: Provider<'_>, checks: &[Check<'_>], policy_of: &PolicyOf<'_>) -> Vec<bool> {
    if provider.is_immediate() {
        return Vec::new();
    }
    (0..checks.len()).map(|index| provider.may_fail(policy_of(index))).collect()
}

/// Decides the failed checks of a take, all or nothing with the other checks.
///
/// If the store denied a check, the request is denied in any case, and the failed checks stay undecided.
pub(crate) async fn after_take(
    provider: Provider<'_>,
    request: TakeRequest<'_>,
    mut response: TakeResponse<AnyReceipt>,
    policy_of: &PolicyOf<'_>,
) -> Result<TakeResponse<AnyReceipt>, TrypemaError> {
    if response.failures.is_empty() || !response.is_allowed() {
        return Ok(response);
    }
    let decided = decide_failed(provider, request.checks, &response, Receipts::Unwanted, policy_of);
    let is_allowed =
        decided.as_ref().is_ok_and(|decided| decided.iter().all(|one| one.decision.is_allowed()));
    if !is_allowed {
        roll_back(provider, request, &mut response).await;
        if decided.is_ok() {
            report_usage(provider, request, &mut response.decisions).await;
        }
    }
    if is_allowed && request.receipts == Receipts::Wanted {
        response.receipts.resize_with(request.checks.len(), || None);
    }
    for (failed, SubstituteReservation { decision, .. }) in response.failures.iter().zip(decided?) {
        if let Some(place) = response.decisions.get_mut(failed.index) {
            *place = Some(decision);
        }
        if let Some(place) = response.receipts.get_mut(failed.index) {
            *place = (!decision.is_uncounted()).then_some(AnyReceipt::Fallback);
        }
    }
    Ok(response)
}

/// Decides the failed checks of a reservation, all or nothing with the other checks. If `receipts` are wanted, those that
/// are counted in this process have one, too: the caller keeps them until the store knows them.
pub(crate) fn after_reserve(
    provider: Provider<'_>,
    request: ReserveRequest<'_>,
    mut response: ReserveResponse,
    receipts: Receipts,
    policy_of: &PolicyOf<'_>,
) -> Result<ReserveResponse, TrypemaError> {
    let checks = request.take.checks;
    let decided = decide_failed(provider, checks, &response, receipts, policy_of)?;
    let is_allowed = decided.iter().all(|one| one.decision.is_allowed());
    for (failed, SubstituteReservation { decision, charged }) in response.failures.iter().zip(decided) {
        if let Some(place) = response.decisions.get_mut(failed.index) {
            *place = Some(decision);
        }
        let kept = charged.filter(|_| is_allowed);
        if let (Some(charged), Some(place)) = (kept, response.receipts.get_mut(failed.index)) {
            *place = Some(ReservedCheck::kept_here(request.ttl, charged));
        }
    }
    Ok(response)
}

/// Replaces the decisions of the store, which would admit a request that is denied: it is charged nothing, so they say
/// what is left. If the store fails, they stay as they are, and report less.
pub(crate) async fn report_usage(
    provider: Provider<'_>,
    request: TakeRequest<'_>,
    decisions: &mut [Option<Decision>],
) {
    let decided = request.checks.iter().zip(decisions.iter()).filter(|(_, decision)| decision.is_some());
    let usage: Vec<Check<'_>> = decided.map(|(check, _)| check.usage()).collect();
    if usage.is_empty() {
        return;
    }
    let usage = DecideRequest::all(Effect::Peek, &usage);
    let peeked = provider.each(&usage, request.deadline).wait().await;
    for (decision, usage) in decisions.iter_mut().filter(|decision| decision.is_some()).zip(peeked) {
        *decision = usage.ok().filter(Decision::is_allowed).or(*decision);
    }
}

/// Decides the failed checks. Peeks at all of them before it spends on any.
fn decide_failed<R>(
    provider: Provider<'_>,
    checks: &[Check<'_>],
    response: &TakeResponse<R>,
    receipts: Receipts,
    policy_of: &PolicyOf<'_>,
) -> Result<Vec<SubstituteReservation>, TrypemaError> {
    let check_of = |failed: &Failed| checks.get(failed.index).copied().ok_or_else(|| failed.error.clone());
    let decide_as = |failed: &Failed, check: Check<'_>, effect: Effect| {
        let request = DecideRequest::new(effect, check);
        decide(provider, &request, policy_of(failed.index), failed.error.clone())
    };
    let decide_one = |failed: &Failed, effect: Effect| decide_as(failed, check_of(failed)?, effect);
    let peeked = response.failures.iter().map(|failed| decide_one(failed, Effect::Peek));
    let uncharged = |decision| SubstituteReservation { decision, charged: None };
    let mut decided: Vec<SubstituteReservation> =
        peeked.map(|decision| decision.map(uncharged)).collect::<Result<_, _>>()?;
    let is_allowed = |decided: &[SubstituteReservation]| decided.iter().all(|one| one.decision.is_allowed());
    let is_denied = !is_allowed(&decided);
    for (failed, one) in response.failures.iter().zip(&mut decided) {
        // Denied checks are taken as well, so that the observer sees them and the strategy can count the
        // denial.
        if is_denied && one.decision.is_allowed() {
            continue;
        }
        *one = match receipts {
            Receipts::Wanted => {
                let reserved = provider.reserve_without_store(&check_of(failed)?, policy_of(failed.index));
                reserved.ok_or_else(|| failed.error.clone())?
            }
            Receipts::Unwanted => uncharged(decide_one(failed, Effect::Take)?),
        };
    }
    if !is_denied && !is_allowed(&decided) {
        // A concurrent request used up a limit after the peek: refund the units that this request took.
        for (failed, one) in response.failures.iter().zip(&decided) {
            let (true, Some(check)) = (one.decision.is_allowed(), checks.get(failed.index)) else { continue };
            let policy = policy_of(failed.index);
            match one.charged {
                Some(charged) => provider.settle_without_store(&Check { cost: 0, ..*check }, charged, policy),
                None => drop(provider.refund_without_store(check, policy)),
            }
        }
    }
    if !is_allowed(&decided) {
        // The others are charged nothing, so they say what is left.
        for (failed, SubstituteReservation { decision, .. }) in response.failures.iter().zip(&mut decided) {
            if decision.is_allowed() {
                let usage = decide_as(failed, check_of(failed)?.usage(), Effect::Peek)?;
                *decision = if usage.is_allowed() { usage } else { *decision };
            }
        }
    }
    Ok(decided)
}

/// Returns the decision of the policy, or `error` if the policy is to fail. Errors other than store
/// failures are returned as they are.
fn decide(
    provider: Provider<'_>,
    request: &DecideRequest<'_>,
    policy: Option<OnStoreFailure>,
    error: TrypemaError,
) -> CheckResult {
    if !error.is_store_failure() {
        return Err(error);
    }
    provider.decide_without_store(request, policy).ok_or(error)
}

/// Refunds the units that a request spent on the checks that did not fail. If a refund fails, its units
/// stay spent, which is the stricter outcome.
async fn roll_back(
    provider: Provider<'_>,
    request: TakeRequest<'_>,
    response: &mut TakeResponse<AnyReceipt>,
) {
    let receipts = std::mem::take(&mut response.receipts);
    let refunds: Vec<RefundRequest<'_>> = request
        .checks
        .iter()
        .zip(&receipts)
        .filter_map(|(check, receipt)| {
            Some(RefundRequest { check: *check, receipt: Some(receipt.as_ref()?) })
        })
        .collect();
    if !refunds.is_empty() {
        provider.each(&refunds, request.deadline).wait().await;
    }
}

/// Makes each refund. If a refund without a receipt certainly did not happen in the store, it is made from
/// the units counted in this process, if there are any.
#[cfg(feature = "tower")]
pub(crate) async fn refund_all(
    provider: Provider<'_>,
    refunds: &[RefundRequest<'_>],
    deadline: Deadline,
    policy_of: &PolicyOf<'_>,
) -> Vec<Result<u64, TrypemaError>> {
    let results = provider.each(refunds, deadline).wait().await;
    let fall_back =
        |(index, (refund, result)): (usize, (&RefundRequest<'_>, Result<u64, TrypemaError>))| match result {
            Err(error) if refund.receipt.is_none() && error.is_certainly_unspent() => {
                let refunded = provider.refund_without_store(&refund.check, policy_of(index));
                refunded.filter(|units| *units > 0).ok_or(error)
            }
            result => result,
        };
    refunds.iter().zip(results).enumerate().map(fall_back).collect()
}

/// Decides each check, and applies the policy of the checks whose store failed.
pub(crate) async fn decide_each(
    provider: Provider<'_>,
    requests: &[DecideRequest<'_>],
    deadline: Deadline,
    policy_of: &PolicyOf<'_>,
) -> Vec<CheckResult> {
    let results = provider.each(requests, deadline).wait().await;
    let apply = |(index, (request, result)): (usize, (&DecideRequest<'_>, CheckResult))| {
        result.or_else(|error| decide(provider, request, policy_of(index), error))
    };
    requests.iter().zip(results).enumerate().map(apply).collect()
}
