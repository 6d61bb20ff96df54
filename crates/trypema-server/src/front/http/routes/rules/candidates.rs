//! `GET /v1/candidates`: compares candidates with their live rules.

use std::sync::Arc;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::Rule;

use crate::app::App;
use crate::background_worker::Worker;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, HttpResponse, RouteResult};

/// The decisions of candidates compared with those of their live rules, as this server has counted them
/// since it loaded each pair.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct CandidatesResponse {
    candidates: Vec<CandidateReport>,
}

/// One candidate compared with its live rule.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::front::http) struct CandidateReport {
    /// The id of the live rule.
    rule: String,
    /// The id of the candidate.
    candidate: String,
    /// The share of keys for which the candidate is checked.
    share: f64,
    /// Requests that both rules allowed.
    both_allowed: u64,
    /// Requests that both rules denied.
    both_denied: u64,
    /// Requests that the live rule allowed and the candidate would have denied.
    would_deny: u64,
    /// Requests that the live rule denied and the candidate would have allowed.
    would_allow: u64,
}

impl Api {
    pub(in super::super) async fn candidates(&self, _: Exchange<'_>) -> RouteResult {
        let app = Arc::clone(self.app());
        Ok(self.app().workers().run(Worker::Reads, move || report(&app)).await?)
    }
}

/// Compares every candidate of the rules in force, of which there may be thousands.
fn report(app: &App) -> HttpResponse {
    let rules = app.rules();
    let report = |candidate: &Rule| {
        let compared = app.metrics.rules.comparisons(&candidate.id);
        Some(CandidateReport {
            rule: candidate.candidate_for.clone()?,
            candidate: candidate.id.clone(),
            share: candidate.share.unwrap_or(1.0),
            both_allowed: compared.both_allowed.get(),
            both_denied: compared.both_denied.get(),
            would_deny: compared.would_deny.get(),
            would_allow: compared.would_allow.get(),
        })
    };
    json_response(
        StatusCode::OK,
        &CandidatesResponse { candidates: rules.rules().filter_map(report).collect() },
    )
}
