//! `POST /v1/settle`: settles a reservation at what the request really cost.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::TrypemaError;
use trypema::rules::{RuleSet, SettledRule, SettledStatus, Settlement};

use super::accounting::{Accounting, with_accounting};
use super::problem::ApiError;
use super::request::{self, SettleRequest};
use super::response::json;
use super::{CheckApi, RouteResult, begin, body};
use crate::net::ConnectionSlot;

/// The result of settling or releasing a reservation.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SettleResponse<'a> {
    /// Whether this request settled the reservation: at one counter at least, and without a failure at any
    /// other. If it is `false`, a counter has `failed` and the request should be repeated, or nothing was
    /// left to settle.
    settled: bool,
    /// Every counter of the reservation.
    rules: Vec<SettledRuleReport<'a>>,
}

/// The result at one counter of a reservation.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SettledRuleReport<'a> {
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
pub(super) enum StatusName {
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
    pub(super) fn new(settlement: &'a Settlement, rules: &'a RuleSet) -> Result<Self, ApiError> {
        let reached = |rule: &&SettledRule| rule.status != SettledStatus::RuleRemoved;
        let mut failures = settlement.rules.iter().filter(reached).map(|rule| match &rule.status {
            SettledStatus::Failed(error) => Some(error),
            _ => None,
        });
        if let Some(Some(first)) = failures.next()
            && failures.all(|failure| failure.is_some())
        {
            return Err(ApiError::from(first));
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

impl CheckApi {
    pub(super) async fn settle(&self, request: Request<Incoming>, slot: &ConnectionSlot) -> RouteResult {
        let body = body::read(request.into_body(), self.max_body, slot).await?;
        let mut request = request::read::<SettleRequest<'_>>(&body)?;
        let named = request.named()?;
        begin(slot)?;
        let borrowed = named.borrowed();
        let sets = borrowed.sets();
        let settlement = self.app.settle(named.reference(&sets), &request.costs()).await?;
        self.settled(&settlement)
    }

    /// Returns the response to a settlement. It is sent in any case: the client must not believe that nothing
    /// was settled.
    pub(super) fn settled(&self, settlement: &Settlement) -> RouteResult {
        let rules = self.app.rules();
        let response = json(StatusCode::OK, &SettleResponse::new(settlement, &rules)?);
        Ok(with_accounting(response, Accounting::MustSend))
    }
}
