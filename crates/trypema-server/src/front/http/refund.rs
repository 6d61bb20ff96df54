//! `POST /v1/refund`: gives back.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::{Refunded, Request as Asking, RuleSet};

use super::accounting::{Accounting, marked};
use super::answer::json;
use super::problem::Refusal;
use super::question::Topic;
use super::{Asked, CheckApi, begin, body};
use crate::net::Place;

/// What was given back.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RefundAnswer<'a> {
    /// Every rule that applies, by priority.
    rules: Vec<RefundedRule<'a>>,
}

/// What one rule was given back.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RefundedRule<'a> {
    /// Its id.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The name of the counter.
    key: &'a str,
    /// Units that were still counted, and are no more; `null` if that is not known.
    refunded: Option<u64>,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

impl<'a> RefundedRule<'a> {
    fn new(given: &'a Refunded, rules: &'a RuleSet) -> Self {
        Self {
            rule: &given.rule,
            name: rules.rule(&given.rule).and_then(|rule| rule.name.as_deref()),
            key: &given.key,
            refunded: given.units.as_ref().ok().copied(),
            error: given.units.is_err().then_some("the store could not be asked, or gave no answer"),
        }
    }
}

impl CheckApi {
    pub(super) async fn refund(&self, request: Request<Incoming>, place: &Place) -> Asked {
        let body = body::read(request.into_body(), self.max_body, place).await?;
        let topic = Topic::read(&body)?;
        begin(place)?;
        let attributes = topic.attributes.pairs();
        let refunded = self.app.give_back(&Asking::new(&attributes).costing(topic.cost)).await?;
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
