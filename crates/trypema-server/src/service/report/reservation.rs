//! Reservations and settlements as JSON.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use trypema::TrypemaError;
use trypema::rules::{Reservation, RuleSet, SettledRule, SettledStatus, Settlement};

use super::{CheckResponse, rounded_down};
use crate::mode::Mode;
use crate::refusal::Refusal;

/// The decision about a reservation. A denial has the fields of a denied check alone.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReserveResponse<'a> {
    #[serde(flatten)]
    decision: CheckResponse<'a>,
    /// The text by which the reservation is settled, released or renewed, on any server with the same
    /// counters. Any caller that knows it can do so.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
    /// Milliseconds, rounded down, after which the reservation expires: the `ttl`, or the `hold` of a
    /// concurrency rule if that is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    /// Whether an earlier request with the same id made the reservation, so that this one spent nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<bool>,
    /// Present if that reservation has been settled or released since: it holds no slot and no units. Use a new id
    /// for new work.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<bool>,
}

impl<'a> ReserveResponse<'a> {
    pub(crate) fn new(made: &'a Reservation) -> Self {
        Self {
            decision: CheckResponse::new(made.verdict(), Mode::Check),
            reservation: made.text(),
            expires_in_ms: made.is_allowed().then(|| rounded_down(made.expires_in())),
            repeated: made.is_allowed().then(|| made.is_repeated()),
            ended: made.is_ended().then_some(true),
        }
    }
}

/// The result of settling or releasing a reservation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SettleResponse<'a> {
    /// Whether this request settled the reservation: at one counter at least, and without a failure at any
    /// other. If it is `false`, a counter has `failed` and the request should be repeated, or nothing was
    /// left to settle.
    settled: bool,
    /// Every counter of the reservation.
    rules: Vec<SettledRuleReport<'a>>,
}

/// The result at one counter of a reservation.
#[derive(Debug, Serialize, JsonSchema)]
struct SettledRuleReport<'a> {
    /// The id of the rule.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The name of the counter.
    key: &'a str,
    /// The unit that the rule counts. Left out if the rule was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a str>,
    status: StatusName,
    /// The units that were reserved; with the status `settled`, as the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<u64>,
    /// The units that the request really cost. They are counted, even if they are more than the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<u64>,
    /// The reserved units that are free again: fewer than were not spent if some no longer counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    refunded: Option<u64>,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

/// The result at one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StatusName {
    /// The counter is settled.
    Settled,
    /// The reservation was settled or released before. This is only remembered if the caller chose its id.
    SettledBefore,
    /// The counter does not know the reservation: it expired, or was settled or released before, or was never
    /// made.
    NotOutstanding,
    /// No rule has this counter any more.
    RuleRemoved,
    /// Another server made the reservation while Redis was unreachable, and keeps it until then. Repeat the request.
    NotYetKnown,
    /// Redis failed. Repeat the request: what it settled is not settled again.
    Failed,
}

impl<'a> SettleResponse<'a> {
    /// Creates the response, unless every counter failed.
    pub(crate) fn new(settlement: &'a Settlement, rules: &'a RuleSet) -> Result<Self, Refusal> {
        let reached = |rule: &&SettledRule| rule.status != SettledStatus::RuleRemoved;
        let mut failures = settlement.rules.iter().filter(reached).map(|rule| match &rule.status {
            SettledStatus::Failed(error) => Some(error),
            _ => None,
        });
        if let Some(Some(first)) = failures.next()
            && failures.all(|failure| failure.is_some())
        {
            return Err(first.clone().into());
        }
        Ok(Self {
            settled: settlement.is_settled(),
            rules: settlement.rules.iter().map(|rule| SettledRuleReport::new(rule, rules)).collect(),
        })
    }
}

impl<'a> SettledRuleReport<'a> {
    fn new(settled: &'a SettledRule, rules: &'a RuleSet) -> Self {
        let mut report = Self {
            rule: settled.rule(),
            name: rules.rule(settled.rule()).and_then(|rule| rule.name.as_deref()),
            key: &settled.key,
            unit: Some(&*settled.unit).filter(|unit| !unit.is_empty()),
            status: StatusName::Settled,
            reserved: None,
            counted: None,
            refunded: None,
            error: None,
        };
        report.status = match settled.status {
            SettledStatus::Settled { reserved, counted, refunded, .. } => {
                (report.reserved, report.counted, report.refunded) =
                    (Some(reserved), Some(counted), Some(refunded));
                StatusName::Settled
            }
            SettledStatus::SettledBefore => StatusName::SettledBefore,
            SettledStatus::RuleRemoved => StatusName::RuleRemoved,
            SettledStatus::Failed(TrypemaError::ReservationNotYetKnown) => StatusName::NotYetKnown,
            SettledStatus::Failed(_) => {
                report.error = Some("Redis was unavailable or did not reply");
                StatusName::Failed
            }
            _ => StatusName::NotOutstanding,
        };
        report
    }
}

/// The result of renewing a reservation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RenewResponse {
    /// Whether the reservation was still outstanding, and lasts longer now. `false` also if one of its slots is
    /// lost, because another request may have it.
    renewed: bool,
    /// Milliseconds, rounded down, after which the reservation expires; `null` if it was not renewed.
    expires_in_ms: Option<u64>,
}

impl RenewResponse {
    pub(crate) fn new(expires_in: Option<Duration>) -> Self {
        Self { renewed: expires_in.is_some(), expires_in_ms: expires_in.map(rounded_down) }
    }
}
