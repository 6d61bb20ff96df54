//! The shared state of a layer and its clones, and the steps of handling a request.

use std::sync::Arc;

use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, Response};

use super::denial::{Cause, Denial};
use super::gate::{Afterwards, Asked, BoxFuture, Finding, Found, Gate, Settled, Told, Trouble};
use super::incoming::{Incoming, ResponseView};
use super::keyless::Keyless;
use super::options::Options;
use crate::http::{HeaderStyle, whole_seconds, write_retry_after};

/// All settings of a layer.
pub(super) struct Config {
    pub(super) gate: Gate,
    pub(super) options: Options,
    pub(super) keyless: Keyless,
}

/// The next step for a request.
pub(super) enum Step {
    /// Call the inner service and return its response unchanged.
    In,
    /// Call the inner service, then process its response.
    Watch(Passage),
    /// Return this response: the request is denied. Boxed, because denials are rare and the other variants
    /// are small.
    Out(Box<Response<String>>),
    /// Wait for the decision of the store.
    Wait(BoxFuture<Result<Found, Trouble>>),
}

/// The work that remains for an admitted request, once its response is known.
pub(super) struct Passage {
    finding: Finding,
    headers: HeaderStyle,
    unsettled: Option<Unsettled>,
}

/// Counting or a refund that depends on the response.
struct Unsettled {
    afterwards: Afterwards,
    config: Arc<Config>,
}

impl Config {
    pub(super) fn receive(self: &Arc<Self>, request: &Incoming<'_>) -> Step {
        if self.options.passes(request) {
            return Step::In;
        }
        match self.gate.ask(request, self.options.terms(request)) {
            Asked::Passed => Step::In,
            Asked::Now(found) => self.judge(request, found),
            Asked::Later(asking) => Step::Wait(asking),
        }
    }

    pub(super) fn judge(self: &Arc<Self>, request: &Incoming<'_>, found: Result<Found, Trouble>) -> Step {
        match found {
            Ok(Found { finding, afterwards }) if finding.is_allowed() => {
                let headers = self.options.headers;
                let unsettled =
                    afterwards.map(|afterwards| Unsettled { afterwards, config: Arc::clone(self) });
                if unsettled.is_none() && headers == HeaderStyle::None {
                    return Step::In;
                }
                Step::Watch(Passage { finding, headers, unsettled })
            }
            Ok(Found { finding, .. }) => self.refuse(request, Cause::Denied(finding.told())),
            Err(trouble) => self.refuse(request, Cause::Trouble(&trouble)),
        }
    }

    #[cold]
    fn refuse(&self, request: &Incoming<'_>, cause: Cause<'_>) -> Step {
        let denial = Denial::new(*request, cause);
        if let Some(advice) = denial.missing_key() {
            self.keyless.log(advice);
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
        Step::Out(Box::new(response))
    }
}

impl Passage {
    /// Counts or refunds the request, depending on the response. Returns a future if this has to wait for the
    /// store.
    pub(super) fn settle(&mut self, response: &ResponseView<'_>) -> Option<BoxFuture<Option<Finding>>> {
        let Unsettled { afterwards, config } = self.unsettled.take()?;
        if !config.options.settles(response) {
            return None;
        }
        match afterwards() {
            Settled::Now(finding) => {
                self.note(finding);
                None
            }
            Settled::Later(settling) => Some(settling),
        }
    }

    /// Replaces the finding with a newer one, if there is one.
    pub(super) fn note(&mut self, finding: Option<Finding>) {
        if let Some(finding) = finding {
            self.finding = finding;
        }
    }

    /// Writes the headers for the client.
    pub(super) fn finish(self, headers: &mut HeaderMap) {
        match self.finding.told() {
            Told::Limit { policy, standing, .. } => self.headers.write_one(&policy, standing, headers),
            told @ Told::Rules(_) => self.headers.write(told.policies(), headers),
        }
    }
}
