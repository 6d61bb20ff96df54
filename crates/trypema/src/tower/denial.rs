//! Denied requests, and the responses to them.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use ::http::{Method, Response};

use super::enforcer::{DecisionReport, EnforcerError};
use super::view::RequestView;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::http::{
    ErrorCode, ErrorResponse, GrpcDenial, Policy, Problem, is_by_limit, is_grpc, never_detail, whole_seconds,
};
use crate::rules::Verdict;

/// A denied request: the argument of [`error_handler`](super::RateLimitLayerBuilder::error_handler).
///
/// ```
/// use trypema::tower::{Denial, RateLimitLayer};
///
/// let plain = |denial: &Denial<'_>| {
///     let seconds = denial.retry_after().map_or(0, trypema::http::whole_seconds);
///     let mut response = http::Response::new(format!("come back in {seconds} s"));
///     *response.status_mut() = denial.code().status();
///     response
/// };
/// let layer = RateLimitLayer::builder().per_second(1).burst_size(10).error_handler(plain).build()?;
/// # let _ = layer;
/// # Ok::<(), trypema::tower::InvalidLayer>(())
/// ```
#[derive(Clone, Copy)]
pub struct Denial<'a> {
    request: RequestView<'a>,
    cause: Cause<'a>,
}

/// The reason why a request is denied.
#[derive(Clone, Copy)]
pub(super) enum Cause<'a> {
    Denied(DecisionReport<'a>),
    Error(&'a EnforcerError),
}

impl<'a> Denial<'a> {
    pub(super) fn new(request: RequestView<'a>, cause: Cause<'a>) -> Self {
        Self { request, cause }
    }

    /// Returns the request.
    pub fn request(&self) -> &RequestView<'a> {
        &self.request
    }

    /// Whether the request is gRPC: a `POST` with the content type of gRPC. Other methods with that content
    /// type get an HTTP response, because a gRPC denial has the status 200 and caches might store it.
    pub fn is_grpc(&self) -> bool {
        self.request.method == Method::POST && is_grpc(self.request.headers)
    }

    /// Returns the error code.
    ///
    /// - [`RateLimited`](ErrorCode::RateLimited) and, for abuse limits,
    ///   [`TooManyAttempts`](ErrorCode::TooManyAttempts): 429.
    /// - [`Blocked`](ErrorCode::Blocked), if a block list or an override of the key decided: 403.
    /// - [`ServiceUnavailable`](ErrorCode::ServiceUnavailable), if the store is unreachable: 503.
    /// - [`BadRequest`](ErrorCode::BadRequest), if the request lacks an attribute that a rule with
    ///   `if_missing: error` needs, or if its path is refused: 400.
    /// - [`InternalServerError`](ErrorCode::InternalServerError), for a request without a key and for all
    ///   other failures: 500.
    pub fn code(&self) -> ErrorCode {
        match self.cause {
            Cause::Denied(DecisionReport::Limit { policy, code, .. }) if is_by_limit(policy.decision) => code,
            Cause::Denied(DecisionReport::Limit { .. }) => ErrorCode::ServiceUnavailable,
            Cause::Denied(DecisionReport::Rules(verdict)) => ErrorCode::of_verdict(verdict),
            Cause::Error(EnforcerError::MissingKey(_)) => ErrorCode::InternalServerError,
            Cause::Error(EnforcerError::Failed(error)) => ErrorCode::from(error),
        }
    }

    /// Returns the time after which the same request would be allowed, if no other request comes first.
    /// `None` if it will never be allowed, or if the time is unknown.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause {
            Cause::Denied(DecisionReport::Limit { policy, .. }) => policy.decision.retry_after(),
            Cause::Denied(DecisionReport::Rules(verdict)) => verdict.retry_after(),
            Cause::Error(EnforcerError::MissingKey(_)) => None,
            Cause::Error(EnforcerError::Failed(error)) => {
                Problem::from(error).retry_after().map(Duration::from_secs)
            }
        }
    }

    /// Returns the decision of the limit, or of the rule that decided. `None` if a block list decided, or if
    /// there was no decision.
    pub fn decision(&self) -> Option<&'a Decision> {
        match self.cause {
            Cause::Denied(DecisionReport::Limit { policy, .. }) => Some(policy.decision),
            Cause::Denied(DecisionReport::Rules(verdict)) => verdict.decided_by().map(|rule| rule.decision),
            Cause::Error(_) => None,
        }
    }

    /// Returns the verdict of the rules, if the layer has rules.
    pub fn verdict(&self) -> Option<&'a Verdict> {
        match self.cause {
            Cause::Denied(DecisionReport::Rules(verdict)) => Some(verdict),
            _ => None,
        }
    }

    /// Returns the error if there is no decision, for example because the store failed. It may contain host
    /// names and keys: log it, but do not send it to clients.
    pub fn error(&self) -> Option<&'a TrypemaError> {
        match self.cause {
            Cause::Error(EnforcerError::Failed(error)) => Some(error),
            _ => None,
        }
    }

    /// Returns instructions for the developer, if the request has no key.
    pub fn missing_key(&self) -> Option<&'static str> {
        match self.cause {
            Cause::Error(EnforcerError::MissingKey(advice)) => Some(advice),
            _ => None,
        }
    }

    /// Returns the body of the default response to HTTP requests.
    pub fn problem(&self) -> Problem {
        match self.cause {
            Cause::Denied(_) => {
                let denying = self.policies().filter(|policy| !policy.decision.is_allowed());
                let names = denying.map(|Policy { name, .. }| name);
                let problem = Problem::new(self.code()).with_violated_policies(names);
                match self.retry_after() {
                    Some(wait) => problem.with_retry_after(whole_seconds(wait)),
                    None => problem.with_detail(
                        self.verdict().map_or(Cow::Borrowed("Retrying will not succeed."), never_detail),
                    ),
                }
            }
            Cause::Error(EnforcerError::MissingKey(advice)) => {
                Problem::new(self.code()).with_detail(missing_key_detail(advice))
            }
            Cause::Error(EnforcerError::Failed(error)) => Problem::from(error),
        }
    }

    /// Returns the default response, without the headers of the chosen style: `application/problem+json`, or
    /// a gRPC status.
    pub fn to_http_response(&self) -> Response<String> {
        if !self.is_grpc() {
            return self.problem().into_http_response();
        }
        let code = self.code();
        let error = ErrorResponse::new(code);
        let message = match self.cause {
            Cause::Error(EnforcerError::MissingKey(advice)) => missing_key_detail(advice),
            _ => error.message(),
        };
        GrpcDenial { code, message, retry_after: self.retry_after() }.to_http_response()
    }

    /// Returns the limits to report to the client. Empty if the store failed, because then there are no
    /// numbers.
    pub(super) fn policies(&self) -> impl Iterator<Item = Policy<'a>> {
        let report = match self.cause {
            Cause::Denied(report) if self.code() != ErrorCode::ServiceUnavailable => Some(report),
            _ => None,
        };
        let policies = report.into_iter().flat_map(DecisionReport::policies);
        policies.filter(|policy| policy.decision.is_allowed() || is_by_limit(policy.decision))
    }
}

/// Returns the detail of the response to a request without a key. Only debug builds include instructions for
/// the developer.
fn missing_key_detail(advice: &'static str) -> &'static str {
    if cfg!(debug_assertions) {
        advice
    } else {
        "The rate limiter cannot identify the client: server misconfiguration."
    }
}

impl fmt::Debug for Denial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Denial");
        debug.field("code", &self.code()).field("retry_after", &self.retry_after()).finish_non_exhaustive()
    }
}
