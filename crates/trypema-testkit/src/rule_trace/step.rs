//! The steps of a trace: a request at a time, and its answer.

use std::fmt;

use serde::Serialize;
use trypema::clock::Timestamp;
use trypema::rules::Rules;

use super::answer::RuleAnswer;
use super::request::CheckBody;
use super::reservation::{
    ReleaseBody, RenewBody, RenewedAnswer, ReserveAnswer, ReserveBody, SettleBody, Settled,
};

/// A request, and the answer to it.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleStep {
    /// The time of the request.
    pub at: Timestamp,
    /// The request.
    pub request: StepRequest,
    /// The expected answer.
    pub expected: StepAnswer,
}

/// A request of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepRequest {
    /// `POST /v1/check`.
    Request(CheckBody),
    /// `POST /v1/reserve`. Later steps use the name for the reservation.
    Reserve(ReserveBody, Option<String>),
    /// `POST /v1/settle`.
    Settle(SettleBody),
    /// `POST /v1/release`.
    Release(ReleaseBody),
    /// `POST /v1/renew`.
    Renew(RenewBody),
    /// Replaces the rules.
    Replace(Box<Rules>),
}

/// The answer to a [`StepRequest`]. The error of a settlement or renewal is its text.
#[derive(Debug, Clone, PartialEq)]
pub enum StepAnswer {
    /// To a check.
    Verdict(RuleAnswer),
    /// To a reservation.
    Reserved(ReserveAnswer),
    /// To a settlement or a release.
    Settled(Result<Settled, String>),
    /// To a renewal.
    Renewed(Result<RenewedAnswer, String>),
    /// The rules were replaced.
    Replaced,
}

impl StepRequest {
    /// Returns the request if it is a check.
    pub fn as_check(&self) -> Option<&CheckBody> {
        match self {
            Self::Request(request) => Some(request),
            _ => None,
        }
    }

    /// Whether the library has this request. If not, it is for front ends.
    pub fn is_expressible(&self) -> bool {
        match self {
            Self::Request(request) => request.attribute_sets().is_some(),
            Self::Reserve(request, _) => request.as_check().attribute_sets().is_some(),
            _ => true,
        }
    }
}

impl StepAnswer {
    /// Whether this answer is the expected one.
    pub fn fulfils(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Verdict(got), Self::Verdict(expected)) => got.fulfils(expected),
            (Self::Reserved(got), Self::Reserved(expected)) => {
                got.verdict.fulfils(&expected.verdict) && got.reserved == expected.reserved
            }
            (Self::Settled(Err(got)), Self::Settled(Err(expected)))
            | (Self::Renewed(Err(got)), Self::Renewed(Err(expected))) => got.contains(expected.as_str()),
            (got, expected) => got == expected,
        }
    }

    /// Returns the decision of the rules on a check or a reservation.
    pub fn verdict(&self) -> Option<&RuleAnswer> {
        match self {
            Self::Verdict(verdict) => Some(verdict),
            Self::Reserved(answer) => Some(&answer.verdict),
            _ => None,
        }
    }

    /// Returns the decision of the rules, to change it.
    pub fn verdict_mut(&mut self) -> Option<&mut RuleAnswer> {
        match self {
            Self::Verdict(verdict) => Some(verdict),
            Self::Reserved(answer) => Some(&mut answer.verdict),
            _ => None,
        }
    }
}

impl fmt::Display for StepAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => write!(f, "{verdict}"),
            Self::Reserved(answer) => write!(f, "{answer}"),
            Self::Settled(Err(error)) | Self::Renewed(Err(error)) => write!(f, "error {error}"),
            Self::Settled(Ok(settled)) if settled.is_empty() => f.write_str("nothing to settle"),
            Self::Settled(Ok(settled)) => {
                settled.iter().try_for_each(|(key, answer)| write!(f, "{key}: {}; ", String::from(*answer)))
            }
            Self::Renewed(Ok(renewed)) => write!(f, "renewed {}", String::from(*renewed)),
            Self::Replaced => f.write_str("replaced"),
        }
    }
}
