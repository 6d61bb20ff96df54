//! `POST /v1/explain`: explains the decision that a request would get.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::{Explanation, Request as Asking};

use super::answer::{OutcomeName, RuleAnswer, json, milliseconds};
use super::question::Topic;
use super::{AdminApi, Asked, begin, body};
use crate::net::Place;

/// The decision of every rule about a request. Nothing is spent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExplainAnswer<'a> {
    outcome: OutcomeName,
    retry_after_ms: Option<u64>,
    /// The id of the rule that would deny the request.
    decided_by: Option<&'a str>,
    /// The attribute whose value is on an allow list or a block list that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    listed_by: Option<&'a str>,
    /// The entry of that list: a value, or the network that contains the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    listed_entry: Option<&'a str>,
    /// The rules that apply, by priority.
    rules: Vec<RuleAnswer<'a>>,
    /// The rules that do not apply.
    not_applying: Vec<NotApplyingAnswer<'a>>,
}

/// A rule that does not apply.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NotApplyingAnswer<'a> {
    /// The id of the rule.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The reason why it does not apply.
    reason: String,
}

impl<'a> ExplainAnswer<'a> {
    pub(crate) fn new(explained: &'a Explanation) -> Self {
        let verdict = &explained.verdict;
        let reasons = explained.not_applying();
        Self {
            outcome: OutcomeName::of(verdict),
            retry_after_ms: milliseconds(verdict.retry_after()),
            decided_by: verdict.decided_by().map(|rule| rule.rule.id.as_str()),
            listed_by: verdict.listed_by(),
            listed_entry: verdict.listed_entry(),
            rules: explained.applying().map(RuleAnswer::from).collect(),
            not_applying: reasons
                .map(|rule| NotApplyingAnswer {
                    rule: &rule.rule.id,
                    name: rule.rule.name.as_deref(),
                    reason: rule.reason.to_string(),
                })
                .collect(),
        }
    }
}

impl AdminApi {
    pub(super) async fn explain(&self, request: Request<Incoming>, place: &Place) -> Asked {
        let body = body::read(request.into_body(), self.max_body, place).await?;
        let topic = Topic::read(&body)?;
        begin(place)?;
        let attributes = topic.attributes.pairs();
        let explained = self.app.explain(&Asking::new(&attributes).costing(topic.cost)).await?;
        Ok(json(StatusCode::OK, &ExplainAnswer::new(&explained)))
    }
}
