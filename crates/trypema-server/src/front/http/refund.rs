//! `POST /v1/refund`: refunds the cost of a request.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::{Request as Asking, RuleRefund, RuleSet};

use super::accounting::{Accounting, marked};
use super::answer::json;
use super::problem::Refusal;
use super::question::Topic;
use super::{Asked, CheckApi, begin, body};
use crate::net::Place;

/// The refund of every rule.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RefundAnswer<'a> {
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
    fn new(given: &'a RuleRefund, rules: &'a RuleSet) -> Self {
        Self {
            rule: &given.rule,
            name: rules.rule(&given.rule).and_then(|rule| rule.name.as_deref()),
            key: &given.key,
            refunded: given.units.as_ref().ok().copied(),
            error: given.units.is_err().then_some("Redis was unavailable or did not reply"),
        }
    }
}

impl CheckApi {
    pub(super) async fn refund(&self, request: Request<Incoming>, place: &Place) -> Asked {
        let body = body::read(request.into_body(), self.max_body, place).await?;
        let topic = Topic::read(&body)?;
        begin(place)?;
        let attributes = topic.attributes.pairs();
        let refunded = self.app.refund_units(&Asking::new(&attributes).costing(topic.cost)).await?;
        if let Some(Err(error)) = refunded.first().map(|first| &first.units)
            && refunded.iter().all(|given| given.units.is_err())
        {
            return Err(Refusal::from(error));
        }
        let known = self.app.rules();
        let rules = refunded.iter().map(|given| RefundedRule::new(given, &known)).collect();
        Ok(marked(json(StatusCode::OK, &RefundAnswer { rules }), Accounting::MustSend))
    }
}
