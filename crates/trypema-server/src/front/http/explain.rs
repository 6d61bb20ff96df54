//! `POST /v1/explain`: why a request would get what it gets.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::{Explanation, Request as Asking};

use super::answer::{OutcomeName, RuleAnswer, json, milliseconds};
use super::question::Topic;
use super::{AdminApi, Asked, begin, body};
use crate::net::Place;

/// What every rule has to say about a request. Nothing is spent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExplainAnswer<'a> {
    outcome: OutcomeName,
    retry_after_ms: Option<u64>,
    /// The rule that would deny it.
    decided_by: Option<&'a str>,
    /// The attribute by which an allow list or a block list decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    listed_by: Option<&'a str>,
    /// The rules that apply, by priority.
    rules: Vec<RuleAnswer<'a>>,
    /// The others.
    not_applying: Vec<NotApplyingAnswer<'a>>,
}

/// A rule that does not apply.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NotApplyingAnswer<'a> {
    /// Its id.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// Why not.
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
