//! `GET /v1/candidates`: what rules in shadow would have decided.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::front::http::answer::json;
use crate::front::http::{AdminApi, Answer};
use crate::metrics::Comparisons;

/// What candidates said beside their live rules, on this server, since it has them.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct CandidatesAnswer {
    candidates: Vec<CandidateReport>,
}

/// One candidate beside its live rule.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct CandidateReport {
    /// The live rule.
    rule: String,
    /// The rule that might replace it.
    candidate: String,
    /// The share of its keys that are asked.
    share: f64,
    /// Requests that both let pass.
    both_allowed: u64,
    /// Requests that both denied.
    both_denied: u64,
    /// Requests that the live rule let pass, and the candidate would have denied.
    would_deny: u64,
    /// Requests that the live rule denied, and the candidate would have let pass.
    would_allow: u64,
}

impl AdminApi {
    pub(super) fn candidates(&self) -> Answer {
        let rules = self.app.rules();
        let report = |candidate: &trypema::rules::Rule| {
            let Comparisons { both_allowed, both_denied, would_deny, would_allow } =
                self.app.metrics.rules.comparisons(&candidate.id);
            Some(CandidateReport {
                rule: candidate.candidate_for.clone()?,
                candidate: candidate.id.clone(),
                share: candidate.share.unwrap_or(1.0),
                both_allowed,
                both_denied,
                would_deny,
                would_allow,
            })
        };
        json(StatusCode::OK, &CandidatesAnswer { candidates: rules.rules().filter_map(report).collect() })
    }
}
