//! What the clones of a layer share, and the way of a request through it.

use std::sync::Arc;

use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, Response};

use super::denial::{Cause, Denial};
use super::gate::{Afterwards, Asked, BoxFuture, Finding, Found, Gate, Settled, Told, Trouble};
use super::incoming::{Incoming, ResponseView};
use super::keyless::Keyless;
use super::options::Options;
use crate::http::{HeaderStyle, whole_seconds, write_retry_after};

/// Everything that was chosen.
pub(super) struct Config {
    pub(super) gate: Gate,
    pub(super) options: Options,
    pub(super) keyless: Keyless,
}

/// What becomes of a request.
pub(super) enum Step {
    /// It is let in, and there is no more to do.
    In,
    /// It is let in, and its response matters.
    Watch(Passage),
    /// It is not let in. Boxed, so that what most requests are does not grow by what they rarely are.
    Out(Box<Response<String>>),
    /// That is not known yet.
    Wait(BoxFuture<Result<Found, Trouble>>),
}

/// What is left to do for a request that was let in, once it has a response.
pub(super) struct Passage {
    finding: Finding,
    headers: HeaderStyle,
    unsettled: Option<Unsettled>,
}

/// What may have to be done, depending on the response.
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
    /// Does what is to be done now that the response is known; what has to be waited for, if anything.
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

    /// Notes a newer finding.
    pub(super) fn note(&mut self, finding: Option<Finding>) {
        if let Some(finding) = finding {
            self.finding = finding;
        }
    }

    /// Tells the client what was found.
    pub(super) fn finish(self, headers: &mut HeaderMap) {
        match self.finding.told() {
            Told::Limit { policy, standing, .. } => self.headers.write_one(&policy, standing, headers),
            told @ Told::Rules(_) => self.headers.write(told.policies(), headers),
        }
    }
}
