//! Steps as they are written in a file.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use trypema::clock::Timestamp;
use trypema::rules::{Period, RuleSet, Rules};

use super::answer::{Counters, RuleAnswer, RuleOutcome};
use super::request::CheckBody;
use super::reservation::{
    ReleaseBody, RenewBody, RenewedAnswer, ReserveAnswer, ReserveBody, ReservedAnswer, SettleBody, Settled,
};
use super::step::{RuleStep, StepAnswer, StepRequest};

/// A step: one request, and the answer that fits it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenStep {
    /// The time since the step before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Period>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<CheckBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve: Option<ReserveBody>,
    /// The name of the reservation in later steps.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settle: Option<SettleBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<ReleaseBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew: Option<RenewBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replace: Option<Box<Rules>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<RuleOutcome>,
    #[serde(skip_serializing_if = "Counters::is_empty")]
    counters: Counters,
    #[serde(skip_serializing_if = "Counters::is_empty")]
    candidates: Counters,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<ReservedAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<Settled>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed: Option<RenewedAnswer>,
}

impl WrittenStep {
    /// Returns the step at a time, or what is wrong with it.
    pub(super) fn read(self, at: Timestamp) -> Result<RuleStep, &'static str> {
        let Self { after: _, request, reserve, name, settle, release, renew, replace, .. } = self;
        let mut requests = [
            request.map(StepRequest::Request),
            reserve.map(|reserve| StepRequest::Reserve(reserve, name.clone())),
            settle.map(StepRequest::Settle),
            release.map(StepRequest::Release),
            renew.map(StepRequest::Renew),
            replace.map(StepRequest::Replace),
        ]
        .into_iter()
        .flatten();
        let (Some(request), None) = (requests.next(), requests.next()) else {
            return Err("need one of `request`, `reserve`, `settle`, `release`, `renew`, `replace`");
        };
        if name.is_some() && !matches!(request, StepRequest::Reserve(..)) {
            return Err("only a reservation has a name");
        }
        let has_counters = !(self.counters.is_empty() && self.candidates.is_empty());
        if matches!(self.answer, Some(RuleOutcome::Error(_))) && has_counters {
            return Err("an error has no counters");
        }
        let is_reserved = self.reserved.is_some();
        let parts = (self.answer, self.reserved, self.settled, self.renewed);
        let verdict = |outcome: RuleOutcome| RuleAnswer {
            outcome,
            counters: self.counters,
            candidates: Some(self.candidates),
        };
        let expected = match (&request, parts) {
            (StepRequest::Request(_), (Some(outcome), None, None, None)) => {
                StepAnswer::Verdict(verdict(outcome))
            }
            (StepRequest::Reserve(..), (Some(outcome), reserved, None, None)) => {
                if outcome.is_allowed() != is_reserved {
                    return Err("a reservation that is allowed, and no other, has `reserved`");
                }
                StepAnswer::Reserved(ReserveAnswer { verdict: verdict(outcome), reserved })
            }
            (
                StepRequest::Settle(_) | StepRequest::Release(_),
                (Some(RuleOutcome::Error(text)), None, None, None),
            ) => StepAnswer::Settled(Err(text)),
            (StepRequest::Settle(_) | StepRequest::Release(_), (None, None, Some(settled), None))
                if !has_counters =>
            {
                StepAnswer::Settled(Ok(settled))
            }
            (StepRequest::Renew(_), (Some(RuleOutcome::Error(text)), None, None, None)) => {
                StepAnswer::Renewed(Err(text))
            }
            (StepRequest::Renew(_), (None, None, None, Some(renewed))) if !has_counters => {
                StepAnswer::Renewed(Ok(renewed))
            }
            (StepRequest::Replace(rules), (None, None, None, None)) if !has_counters => {
                if RuleSet::compile(rules).is_err() {
                    return Err("the new rules are invalid");
                }
                StepAnswer::Replaced
            }
            _ => return Err("the answer does not fit the request"),
        };
        Ok(RuleStep { at, request, expected })
    }

    /// Returns a step in the form of a file.
    pub(super) fn of(step: &RuleStep, after: Duration) -> Self {
        let mut written = Self { after: Some(Period(after)), ..Self::default() };
        match step.request.clone() {
            StepRequest::Request(request) => written.request = Some(request),
            StepRequest::Reserve(reserve, name) => (written.reserve, written.name) = (Some(reserve), name),
            StepRequest::Settle(settle) => written.settle = Some(settle),
            StepRequest::Release(release) => written.release = Some(release),
            StepRequest::Renew(renew) => written.renew = Some(renew),
            StepRequest::Replace(rules) => written.replace = Some(rules),
        }
        if let Some(verdict) = step.expected.verdict().cloned() {
            written.answer = Some(verdict.outcome);
            written.counters = verdict.counters;
            written.candidates = verdict.candidates.unwrap_or_default();
        }
        match step.expected.clone() {
            StepAnswer::Reserved(answer) => written.reserved = answer.reserved,
            StepAnswer::Settled(Ok(settled)) => written.settled = Some(settled),
            StepAnswer::Renewed(Ok(renewed)) => written.renewed = Some(renewed),
            StepAnswer::Settled(Err(text)) | StepAnswer::Renewed(Err(text)) => {
                written.answer = Some(RuleOutcome::Error(text));
            }
            StepAnswer::Verdict(_) | StepAnswer::Replaced => {}
        }
        written
    }
}
