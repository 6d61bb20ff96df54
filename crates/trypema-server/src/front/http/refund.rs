//! `POST /v1/refund`: refunds the cost of a request.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::{RuleRefund, RuleSet};

use super::accounting::{Accounting, with_accounting};
use super::problem::ApiError;
use super::request::{RequestDescription, request_of};
use super::response::json;
use super::{CheckApi, RouteResult, begin, body};
use crate::net::ConnectionSlot;

/// The refund of every rule.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RefundResponse<'a> {
    /// Every rule that applies, by priority.
    rules: Vec<RefundedRule<'a>>,
}

/// The refund of one rule.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RefundedRule<'a> {
    /// The id of the rule.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The name of the counter.
    key: &'a str,
    /// Units that were still counted and are now refunded; `null` if that is unknown.
    refunded: Option<u64>,
    /// The reason why it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

impl<'a> RefundedRule<'a> {
    fn new(refund: &'a RuleRefund, rules: &'a RuleSet) -> Self {
        Self {
            rule: &refund.rule,
            name: rules.rule(&refund.rule).and_then(|rule| rule.name.as_deref()),
            key: &refund.key,
            refunded: refund.units.as_ref().ok().copied(),
            error: refund.units.is_err().then_some("Redis was unavailable or did not reply"),
        }
    }
}

impl CheckApi {
    pub(super) async fn refund(&self, request: Request<Incoming>, slot: &ConnectionSlot) -> RouteResult {
        let body = body::read(request.into_body(), self.max_body, slot).await?;
        let described = RequestDescription::read(&body)?.for_refund();
        begin(slot)?;
        let borrowed = described.borrowed();
        let sets = borrowed.sets();
        let refunds = self.app.refund_units(&request_of(&sets)).await?;
        if let Some(Err(error)) = refunds.first().map(|first| &first.units)
            && refunds.iter().all(|refund| refund.units.is_err())
        {
            return Err(ApiError::from(error));
        }
        let known = self.app.rules();
        let rules = refunds.iter().map(|refund| RefundedRule::new(refund, &known)).collect();
        Ok(with_accounting(json(StatusCode::OK, &RefundResponse { rules }), Accounting::MustSend))
    }
}
