//! Requests that are not let in, and what they are answered.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use ::http::{Method, Response};

use super::gate::{Told, Trouble};
use super::incoming::Incoming;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::http::{
    ErrorCode, ErrorResponse, GrpcDenial, Policy, Problem, is_by_limit, is_grpc, never_detail, whole_seconds,
};
use crate::rules::Verdict;

/// A request that is not let in: what [`error_handler`](super::RateLimitLayerBuilder::error_handler) makes a
/// response of.
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
    request: Incoming<'a>,
    cause: Cause<'a>,
}

/// Why a request is not let in.
#[derive(Clone, Copy)]
pub(super) enum Cause<'a> {
    Denied(Told<'a>),
    Trouble(&'a Trouble),
}

impl<'a> Denial<'a> {
    pub(super) fn new(request: Incoming<'a>, cause: Cause<'a>) -> Self {
        Self { request, cause }
    }

    /// The request.
    pub fn request(&self) -> &Incoming<'a> {
        &self.request
    }

    /// Whether the request is gRPC: a `POST`, and of that type. Whatever else claims to be is answered in HTTP, where a
    /// denial is no success that caches would keep.
    pub fn is_grpc(&self) -> bool {
        self.request.method == Method::POST && is_grpc(self.request.headers)
    }

    /// Why, in one word. [`RateLimited`](ErrorCode::RateLimited) and, where an abuse limit denied,
    /// [`TooManyAttempts`](ErrorCode::TooManyAttempts) are 429;
    /// [`ServiceUnavailable`](ErrorCode::ServiceUnavailable), because the store could not be asked, is 503;
    /// [`InternalServerError`](ErrorCode::InternalServerError), for a request without a key and for all other
    /// failures, is 500.
    pub fn code(&self) -> ErrorCode {
        match self.cause {
            Cause::Denied(Told::Limit { policy, code, .. }) if is_by_limit(policy.decision) => code,
            Cause::Denied(Told::Limit { .. }) => ErrorCode::ServiceUnavailable,
            Cause::Denied(Told::Rules(verdict)) => ErrorCode::of_verdict(verdict),
            Cause::Trouble(Trouble::NoKey(_)) => ErrorCode::InternalServerError,
            Cause::Trouble(Trouble::Failed(error)) => ErrorCode::from(error),
        }
    }

    /// How long to wait before the same request would be let in, if nobody else asks; `None` if it never will be, or
    /// if that is not known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause {
            Cause::Denied(Told::Limit { policy, .. }) => policy.decision.retry_after(),
            Cause::Denied(Told::Rules(verdict)) => verdict.retry_after(),
            Cause::Trouble(Trouble::NoKey(_)) => None,
            Cause::Trouble(Trouble::Failed(error)) => {
                Problem::from(error).retry_after().map(Duration::from_secs)
            }
        }
    }

    /// The denial: of the one limit, or of the rule that decided. `None` if a block list did, or if nothing could be
    /// decided.
    pub fn decision(&self) -> Option<&'a Decision> {
        match self.cause {
            Cause::Denied(Told::Limit { policy, .. }) => Some(policy.decision),
            Cause::Denied(Told::Rules(verdict)) => verdict.decided_by().map(|rule| rule.decision),
            Cause::Trouble(_) => None,
        }
    }

    /// What the rules said, if it was them that were asked.
    pub fn verdict(&self) -> Option<&'a Verdict> {
        match self.cause {
            Cause::Denied(Told::Rules(verdict)) => Some(verdict),
            _ => None,
        }
    }

    /// The failure, if the store could not be asked. It may name hosts and keys: for logs, not for responses.
    pub fn error(&self) -> Option<&'a TrypemaError> {
        match self.cause {
            Cause::Trouble(Trouble::Failed(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether the request has no key, and what to do about that.
    pub fn missing_key(&self) -> Option<&'static str> {
        match self.cause {
            Cause::Trouble(Trouble::NoKey(advice)) => Some(advice),
            _ => None,
        }
    }

    /// The body of the response that is sent without an error handler, unless the request is gRPC.
    pub fn problem(&self) -> Problem {
        match self.cause {
            Cause::Denied(_) => {
                let denying = self.policies().filter(|policy| !policy.decision.is_allowed());
                let names = denying.map(|Policy { name, .. }| name);
                let problem = Problem::new(self.code()).with_violated_policies(names);
                match self.retry_after() {
                    Some(wait) => problem.with_retry_after(whole_seconds(wait)),
                    None => problem.with_detail(
                        self.verdict().map_or(Cow::Borrowed("Trying again does not help."), never_detail),
                    ),
                }
            }
            Cause::Trouble(Trouble::NoKey(advice)) => {
                Problem::new(self.code()).with_detail(keyless_detail(advice))
            }
            Cause::Trouble(Trouble::Failed(error)) => Problem::from(error),
        }
    }

    /// The response that is sent without an error handler, but for the headers of the chosen style:
    /// `application/problem+json`, or a gRPC status.
    pub fn to_http_response(&self) -> Response<String> {
        if !self.is_grpc() {
            return self.problem().into_http_response();
        }
        let code = self.code();
        let error = ErrorResponse::new(code);
        let message = match self.cause {
            Cause::Trouble(Trouble::NoKey(advice)) => keyless_detail(advice),
            _ => error.message(),
        };
        GrpcDenial { code, message, retry_after: self.retry_after() }.to_http_response()
    }

    /// What clients are told of the limits that were asked: nothing, where the store could not be asked and there are
    /// no numbers.
    pub(super) fn policies(&self) -> impl Iterator<Item = Policy<'a>> {
        let told = match self.cause {
            Cause::Denied(told) if self.code() != ErrorCode::ServiceUnavailable => Some(told),
            _ => None,
        };
        let policies = told.into_iter().flat_map(Told::policies);
        policies.filter(|policy| policy.decision.is_allowed() || is_by_limit(policy.decision))
    }
}

/// The response to a request without a key. In debug builds it tells the developer more than clients should know.
fn keyless_detail(advice: &'static str) -> &'static str {
    if cfg!(debug_assertions) {
        advice
    } else {
        "The server cannot tell who is calling: its rate limit is not set up correctly."
    }
}

impl fmt::Debug for Denial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Denial");
        debug.field("code", &self.code()).field("retry_after", &self.retry_after()).finish_non_exhaustive()
    }
}
