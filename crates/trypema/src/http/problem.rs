//! Denials and failures as `application/problem+json` (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use ::http::{Response, StatusCode};
use serde::Serialize;

use super::error_code::ErrorCode;
use super::headers::{MAX_DENIALS_LISTED, whole_seconds};
use super::policy::Policy;
use super::response_parts::{ResponseParts, STORE_RETRY_SECONDS, try_again_in};
use super::text::{html_safe_json, policy_name};
use crate::error::TrypemaError;

/// A denial or a failure as `application/problem+json` (RFC 9457), with the problem types of the IETF draft
/// that defines the `RateLimit` fields.
///
/// ```
/// use trypema::http::{ErrorCode, Problem};
///
/// let problem = Problem::new(ErrorCode::RateLimited).with_violated_policies(["daily"]).with_retry_after(30);
/// assert_eq!(
///     problem.to_json(),
///     r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"detail":"Try again in 30 seconds.","violated-policies":["daily"],"retry_after":30}"#,
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Cow<'static, str>>,
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_ends_after: Option<u64>,
    #[serde(skip)]
    code: ErrorCode,
}

impl Problem {
    /// Creates the problem for `code`.
    ///
    /// Its type is `quota-exceeded`, except `abnormal-usage-detected` for [`ErrorCode::TooManyAttempts`],
    /// `temporary-reduced-capacity` for [`ErrorCode::ServiceUnavailable`], and `about:blank` for
    /// [`ErrorCode::Blocked`], [`ErrorCode::BadRequest`] and [`ErrorCode::InternalServerError`].
    pub fn new(code: ErrorCode) -> Self {
        let kind = match code {
            ErrorCode::RateLimited => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            ErrorCode::TooManyAttempts => {
                "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
            }
            ErrorCode::ServiceUnavailable => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            ErrorCode::Blocked | ErrorCode::BadRequest | ErrorCode::InternalServerError => "about:blank",
        };
        Self {
            kind,
            title: code.phrase(),
            status: code.status().as_u16(),
            detail: None,
            violated_policies: Vec::new(),
            retry_after: None,
            block_ends_after: None,
            code,
        }
    }

    /// Creates the problem of a request that at least one of `policies` denied; `None` if all of them allowed
    /// it.
    ///
    /// Names the policies whose limit is reached, and the time after which all would allow the request,
    /// unless one never will. The status is 429 if a limit is reached. It is 503 if the failure policy made
    /// all denials because the store failed; then no policy is violated.
    pub fn denied<'a>(policies: impl IntoIterator<Item = Policy<'a>>) -> Option<Self> {
        let (mut code, mut names, mut wait) = (None, Vec::new(), Some(Duration::ZERO));
        let mut block_ends_after = None;
        for Policy { name, decision, .. } in policies {
            if decision.is_allowed() {
                continue;
            }
            match ErrorCode::of_denial(decision) {
                ErrorCode::ServiceUnavailable => code = code.or(Some(ErrorCode::ServiceUnavailable)),
                by_limit => {
                    code = Some(by_limit);
                    names.push(name);
                }
            }
            wait = wait.zip(decision.retry_after()).map(|(longest, wait)| longest.max(wait));
            block_ends_after = block_ends_after.max(decision.block_ends_after());
        }
        let problem = Self::new(code?)
            .with_violated_policies(names)
            .with_block_end(block_ends_after.map(whole_seconds));
        Some(match wait {
            Some(wait) => problem.with_retry_after(whole_seconds(wait)),
            None => problem.with_detail("The cost of the request exceeds the limit."),
        })
    }

    /// Adds the names of the violated policies, as in header fields. Keeps the first 23.
    #[must_use]
    pub fn with_violated_policies<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().take(MAX_DENIALS_LISTED);
        Self { violated_policies: names.map(|name| policy_name(name).into_owned()).collect(), ..self }
    }

    /// Adds the wait: to the header `Retry-After`, to `retry_after` and, if there is no detail yet, to the
    /// detail.
    #[must_use]
    pub fn with_retry_after(self, seconds: u64) -> Self {
        let detail = self.detail.or_else(|| Some(Cow::Owned(try_again_in(seconds))));
        Self { retry_after: Some(seconds), detail, ..self }
    }

    /// Adds the seconds until the block of an abuse limit ends, to `block_ends_after`.
    pub(super) fn with_block_end(self, seconds: Option<u64>) -> Self {
        Self { block_ends_after: seconds, ..self }
    }

    /// Sets the detail, a sentence for people.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// Replaces the status, for example for a proxy that only supports 403.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status: status.as_u16(), ..self }
    }

    /// Returns the error code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Returns the names of the violated policies.
    pub fn violated_policies(&self) -> &[String] {
        &self.violated_policies
    }

    /// Returns the number of seconds to wait before a retry. `None` if it is unknown, or if a retry cannot
    /// succeed.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Returns the problem as JSON. `<`, `>` and `&` are escaped, so that the JSON stays text inside an HTML
    /// page.
    pub fn to_json(&self) -> String {
        html_safe_json(self)
    }

    /// Returns the response: the status, `Content-Type`, `Retry-After` if there is a wait, and the JSON.
    pub fn into_http_response<B: From<String>>(self) -> Response<B> {
        ResponseParts {
            status: StatusCode::from_u16(self.status).unwrap_or(self.code.status()),
            content_type: "application/problem+json",
            retry_after: self.retry_after,
            body: self.to_json(),
        }
        .into_http_response()
    }
}

/// Does not include the cause, which may contain host names and keys, except for a missing attribute.
impl From<&TrypemaError> for Problem {
    fn from(error: &TrypemaError) -> Self {
        match ErrorCode::from(error) {
            ErrorCode::ServiceUnavailable => {
                Self::new(ErrorCode::ServiceUnavailable).with_retry_after(STORE_RETRY_SECONDS)
            }
            ErrorCode::BadRequest => Self::new(ErrorCode::BadRequest).with_detail(error.to_string()),
            code => Self::new(code),
        }
    }
}

#[cfg(all(test, feature = "_redis"))]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::decision::{Decision, DecisionTime};
    use crate::http::QuotaUnit;
    use crate::redis::{RedisFailure, RedisFailureKind};

    /// A denial until ten seconds after the epoch, either by a limit or by the failure policy.
    fn denied(decided_at: DecisionTime) -> Decision {
        let end = Timestamp::from_micros(10_000_000);
        Decision {
            is_allowed: false,
            attempts: None,
            limit: 1,
            remaining: 0,
            not_before: end,
            resets_at: end,
            decided_at,
        }
    }

    #[test]
    fn only_a_limit_that_was_reached_is_429() {
        let epoch = DecisionTime::exactly(Timestamp::default());
        let (by_limit, in_place) = (denied(epoch), denied(epoch.uncounted()));
        let policy =
            |decision| Policy { name: "any", quota: 1, window: None, unit: QuotaUnit::Spent, decision };
        let both = [policy(&by_limit), policy(&in_place)];
        let unavailable =
            Problem::denied([policy(&in_place), policy(&in_place)]).map(|problem| problem.status);
        assert_eq!(unavailable, Some(503));
        assert_eq!(Problem::denied(both).map(|problem| problem.status), Some(429));
        assert_eq!(Problem::denied(both.into_iter().rev()).map(|problem| problem.status), Some(429));
    }

    #[test]
    fn who_could_not_be_asked_is_not_violated() {
        let epoch = DecisionTime::exactly(Timestamp::default());
        let (by_limit, in_place) = (denied(epoch), denied(epoch.uncounted()));
        let named =
            |name, decision| Policy { name, quota: 1, window: None, unit: QuotaUnit::Spent, decision };
        let violated =
            |policies: &[Policy<'_>]| Problem::denied(policies.iter().copied()).map(|p| p.violated_policies);
        assert_eq!(violated(&[named("away", &in_place)]), Some(vec![]));
        let both = [named("away", &in_place), named("reached", &by_limit)];
        assert_eq!(violated(&both), Some(vec!["reached".to_owned()]));
    }

    #[test]
    fn a_cost_that_never_fits_is_429_whoever_says_so() {
        let decided_at = DecisionTime::exactly(Timestamp::default()).uncounted();
        let never = Decision { not_before: crate::decision::NEVER, ..denied(decided_at) };
        let problem = Problem::denied([Policy {
            name: "any",
            quota: 1,
            window: None,
            unit: QuotaUnit::Spent,
            decision: &never,
        }]);
        let problem = problem.map(|problem| (problem.status, problem.retry_after, problem.violated_policies));
        assert_eq!(problem, Some((429, None, vec!["any".to_owned()])));
    }

    #[test]
    fn a_failure_has_a_wait_and_names_nothing() {
        let failure = RedisFailure::new(RedisFailureKind::Unavailable, "10.1.2.3 is away");
        let problem = Problem::from(&TrypemaError::RedisError(failure));
        assert_eq!((problem.code(), problem.retry_after()), (ErrorCode::ServiceUnavailable, Some(1)));
        assert!(!problem.to_json().contains("10.1.2.3"));
    }
}
