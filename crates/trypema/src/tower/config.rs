//! What the clones of a layer share, and the way of a request through it.

use std::sync::Arc;

use ::http::Response;
use ::http::header::RETRY_AFTER;

use super::body::ResponseBody;
use super::denial::{Cause, Denial};
use super::gate::{Afterwards, Asked, BoxFuture, Finding, Found, Gate, Settled, Trouble};
use super::incoming::{Incoming, ResponseView};
use super::options::Options;
use crate::http::{HeaderStyle, whole_seconds, write_retry_after};

/// Everything that was chosen.
pub(super) struct Config {
    pub(super) gate: Gate,
    pub(super) options: Options,
}

/// What becomes of a request.
pub(super) enum Step {
    /// It is let in.
    In(Option<Passage>),
    /// It is not.
    Out(Response<String>),
    /// That is not known yet.
    Wait(BoxFuture<Result<Found, Trouble>>),
}

/// What is left to do for a request that was let in, once it has a response.
pub(super) struct Passage {
    config: Arc<Config>,
    finding: Finding,
    afterwards: Option<Afterwards>,
}

impl Config {
    pub(super) fn receive(self: &Arc<Self>, request: &Incoming<'_>) -> Step {
        if self.options.passes(request) {
            return Step::In(None);
        }
        match self.gate.ask(request, self.options.terms(request)) {
            Asked::Passed => Step::In(None),
            Asked::Now(found) => self.judge(request, found),
            Asked::Later(asking) => Step::Wait(asking),
        }
    }

    pub(super) fn judge(self: &Arc<Self>, request: &Incoming<'_>, found: Result<Found, Trouble>) -> Step {
        match found {
            Ok(Found { finding, afterwards }) if finding.is_allowed() => {
                let is_done = afterwards.is_none() && self.options.headers == HeaderStyle::None;
                Step::In((!is_done).then(|| Passage { config: Arc::clone(self), finding, afterwards }))
            }
            Ok(Found { finding, .. }) => self.refuse(request, Cause::Denied(self.gate.told(&finding))),
            Err(trouble) => self.refuse(request, Cause::Trouble(&trouble)),
        }
    }

    #[cold]
    fn refuse(&self, request: &Incoming<'_>, cause: Cause<'_>) -> Step {
        let denial = Denial::new(*request, cause);
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
        Step::Out(response)
    }
}

impl Passage {
    /// Does what is to be done now that the response is known; what has to be waited for, if anything.
    pub(super) fn settle(&mut self, response: &ResponseView<'_>) -> Option<BoxFuture<Option<Finding>>> {
        let afterwards = self.afterwards.take().filter(|_| self.config.options.settles(response))?;
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

    /// The response with its headers.
    pub(super) fn finish<B>(self, mut response: Response<B>) -> Response<ResponseBody<B>> {
        let told = self.config.gate.told(&self.finding);
        self.config.options.headers.write(told.policies(), response.headers_mut());
        ResponseBody::inner(response)
    }
}
