//! Explanations as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::Explanation;

use super::{OutcomeName, RuleReport, milliseconds};

/// The decision of every rule about a request. Nothing is spent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExplainResponse<'a> {
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
    rules: Vec<RuleReport<'a>>,
    /// The rules that do not apply.
    not_applying: Vec<NotApplyingRule<'a>>,
}

/// A rule that does not apply.
#[derive(Debug, Serialize, JsonSchema)]
struct NotApplyingRule<'a> {
    /// The id of the rule.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The reason why it does not apply.
    reason: String,
}

impl<'a> ExplainResponse<'a> {
    pub(crate) fn new(explanation: &'a Explanation) -> Self {
        let verdict = &explanation.verdict;
        let reasons = explanation.not_applying();
        Self {
            outcome: OutcomeName::of(verdict),
            retry_after_ms: milliseconds(verdict.retry_after()),
            decided_by: verdict.decided_by().map(|rule| rule.rule.id.as_str()),
            listed_by: verdict.listed_by(),
            listed_entry: verdict.listed_entry(),
            rules: explanation.applying().map(RuleReport::from).collect(),
            not_applying: reasons
                .map(|rule| NotApplyingRule {
                    rule: &rule.rule.id,
                    name: rule.rule.name.as_deref(),
                    reason: rule.reason.to_string(),
                })
                .collect(),
        }
    }
}
