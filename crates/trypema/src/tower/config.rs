//! The shared state of a layer and its clones, and the steps of handling a request.

use std::sync::Arc;

use ::http::header::RETRY_AFTER;
use ::http::{Extensions, HeaderMap, Response};

use super::denial::{Cause, Denial};
use super::enforcer::{
    AfterResponse, AfterResponseResult, BoxFuture, CheckOutcome, CheckedRequest, DecisionReport, Enforcer,
    EnforcerError, LayerDecision,
};
use super::misconfiguration_log::MisconfigurationLog;
use super::options::Options;
use super::reservation_handle::ReservationTransfer;
use super::view::{RequestView, ResponseView};
use crate::error::TrypemaError;
use crate::http::{HeaderStyle, whole_seconds, write_retry_after};

/// All settings of a layer.
pub(super) struct LayerConfig {
    pub(super) enforcer: Enforcer,
    pub(super) options: Options,
    pub(super) log: MisconfigurationLog,
}

/// The next step for a request.
pub(super) enum NextStep {
    /// Call the inner service and return its response unchanged.
    Call,
    /// Call the inner service, then process its response.
    CallThenProcess(AdmittedRequest),
    /// Return this response: the request is denied. Boxed, because denials are rare and the other variants
    /// are small.
    Respond(Box<Response<String>>),
    /// Wait for the decision of the store.
    Wait(BoxFuture<Result<CheckedRequest, EnforcerError>>),
}

/// The work that remains for an admitted request, once its response is known.
pub(super) struct AdmittedRequest {
    decision: LayerDecision,
    headers: HeaderStyle,
    pending_count: Option<PendingCount>,
    /// For the service that keeps it; see [`AdmittedRequest::transfer_reservation`].
    reservation: Option<ReservationTransfer>,
}

/// Counting or a refund that depends on the response.
struct PendingCount {
    after_response: AfterResponse,
    config: Arc<LayerConfig>,
}

impl LayerConfig {
    pub(super) fn check(self: &Arc<Self>, request: &RequestView<'_>) -> NextStep {
        if self.options.is_other_method(request) {
            return NextStep::Call;
        }
        if self.options.is_refused(request) {
            return self.deny(request, Cause::Error(&EnforcerError::Failed(TrypemaError::DotSegments)));
        }
        if self.options.is_skipped(request) {
            return NextStep::Call;
        }
        match self.enforcer.check(request, self.options.counting_options(request)) {
            CheckOutcome::Admitted => NextStep::Call,
            CheckOutcome::Ready(checked) => self.next_step(request, checked),
            CheckOutcome::Pending(decision) => NextStep::Wait(decision),
        }
    }

    pub(super) fn next_step(
        self: &Arc<Self>,
        request: &RequestView<'_>,
        checked: Result<CheckedRequest, EnforcerError>,
    ) -> NextStep {
        match checked {
            Ok(CheckedRequest { decision, after_response, reservation }) if decision.is_allowed() => {
                self.log_skipped_rules(&decision);
                let headers = self.options.headers;
                let pending_count = after_response
                    .map(|after_response| PendingCount { after_response, config: Arc::clone(self) });
                if pending_count.is_none() && reservation.is_none() && headers == HeaderStyle::None {
                    return NextStep::Call;
                }
                NextStep::CallThenProcess(AdmittedRequest { decision, headers, pending_count, reservation })
            }
            Ok(CheckedRequest { decision, .. }) => self.deny(request, Cause::Denied(decision.report())),
            Err(error) => self.deny(request, Cause::Error(&error)),
        }
    }

    /// Logs concurrency rules that were not enforced, because the layer reserves nothing.
    fn log_skipped_rules(&self, decision: &LayerDecision) {
        if let LayerDecision::Rules(verdict) = decision
            && let Some(rule) = verdict.skipped_rules().next()
        {
            self.log.skipped_rule(&rule.id);
        }
    }

    #[cold]
    fn deny(&self, request: &RequestView<'_>, cause: Cause<'_>) -> NextStep {
        let denial = Denial::new(*request, cause);
        if let Some(advice) = denial.missing_key() {
            self.log.missing_key(advice);
        }
        let mut response = match &self.options.error_handler {
            Some(handler) => handler(&denial),
            None => denial.to_http_response(),
        };
        let headers = response.headers_mut();
        self.options.headers.write(denial.policies(), headers);
        if let Some(wait) =
            denial.retry_after().filter(|_| !denial.is_grpc() && !headers.contains_key(RETRY_AFTER))
        {
            write_retry_after(whole_seconds(wait), headers);
        }
        NextStep::Respond(Box::new(response))
    }
}

impl AdmittedRequest {
    /// Puts the reservation, if there is one, into the extensions of the request that is about to be sent to
    /// the inner service.
    pub(super) fn transfer_reservation(&mut self, extensions: &mut Extensions) {
        if let Some(reservation) = self.reservation.take() {
            extensions.insert(reservation);
        }
    }

    /// Counts or refunds the request, depending on the response. Returns a future if this has to wait for the
    /// store.
    pub(super) fn count_or_refund(
        &mut self,
        response: &ResponseView<'_>,
    ) -> Option<BoxFuture<Option<LayerDecision>>> {
        let PendingCount { after_response, config } = self.pending_count.take()?;
        if !config.options.needs_follow_up(response) {
            return None;
        }
        match after_response() {
            AfterResponseResult::Ready(decision) => {
                self.update_decision(decision);
                None
            }
            AfterResponseResult::Pending(decision) => Some(decision),
        }
    }

    /// Replaces the decision with a newer one, if there is one.
    pub(super) fn update_decision(&mut self, decision: Option<LayerDecision>) {
        if let Some(decision) = decision {
            self.decision = decision;
        }
    }

    /// Writes the headers for the client.
    pub(super) fn write_headers(self, headers: &mut HeaderMap) {
        match self.decision.report() {
            DecisionReport::Limit { policy, static_headers, .. } => {
                self.headers.write_one(&policy, static_headers, headers)
            }
            report @ DecisionReport::Rules(_) => self.headers.write(report.policies(), headers),
        }
    }
}
