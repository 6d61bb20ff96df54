//! Explanations as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::Explanation;

use super::{RuleReport, Summary};

/// The decision of every rule about a request. Nothing is spent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExplainResponse<'a> {
    #[serde(flatten)]
    summary: Summary<'a>,
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
        Self {
            summary: Summary::from(&explanation.verdict),
            rules: explanation.applying().map(RuleReport::from).collect(),
            not_applying: explanation
                .not_applying()
                .map(|rule| NotApplyingRule {
                    rule: &rule.rule.id,
                    name: rule.rule.name.as_deref(),
                    reason: rule.reason.to_string(),
                })
                .collect(),
        }
    }
}
