//! A call that was turned away, as `application/problem+json` (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use ::http::{Response, StatusCode};
use serde::Serialize;

use super::answer::{Answer, STORE_RETRY_SECONDS, try_again_in};
use super::error_code::ErrorCode;
use super::headers::{MAX_DENIALS_LISTED, whole_seconds};
use super::policy::Policy;
use super::text::{html_safe_json, policy_name};
use crate::error::TrypemaError;

/// Why a call was turned away, for programs: `application/problem+json` (RFC 9457), with the problem types of
/// the IETF draft that the `RateLimit` fields come from.
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
    #[serde(skip)]
    code: ErrorCode,
}

impl Problem {
    /// The problem that goes with `code`.
    ///
    /// Its type is `quota-exceeded`; `abnormal-usage-detected` for [`ErrorCode::TooManyAttempts`],
    /// `temporary-reduced-capacity` for [`ErrorCode::ServiceUnavailable`], and none for
    /// [`ErrorCode::BadRequest`] and [`ErrorCode::InternalServerError`].
    pub fn new(code: ErrorCode) -> Self {
        let kind = match code {
            ErrorCode::RateLimited => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            ErrorCode::TooManyAttempts => {
                "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
            }
            ErrorCode::ServiceUnavailable => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            ErrorCode::BadRequest | ErrorCode::InternalServerError => "about:blank",
        };
        Self {
            kind,
            title: code.phrase(),
            status: code.status().as_u16(),
            detail: None,
            violated_policies: Vec::new(),
            retry_after: None,
            code,
        }
    }

    /// The problem of a call that at least one of `policies` denied; `None` if all allowed it.
    ///
    /// Names the policies whose limit was reached, and the wait after which all would allow the call, unless one
    /// never does. It is 429 if a limit was reached, and 503 if all denials were made in place of a store that
    /// could not be asked: those violate nothing.
    pub fn denied<'a>(policies: impl IntoIterator<Item = Policy<'a>>) -> Option<Self> {
        let (mut code, mut names, mut wait) = (None, Vec::new(), Some(Duration::ZERO));
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
        }
        let problem = Self::new(code?).with_violated_policies(names);
        Some(match wait {
            Some(wait) => problem.with_retry_after(whole_seconds(wait)),
            None => problem.with_detail("The call asks for more than the limit ever allows."),
        })
    }

    /// The same problem, naming the policies that were violated as header fields name them; the first 24.
    #[must_use]
    pub fn with_violated_policies<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().take(MAX_DENIALS_LISTED);
        Self { violated_policies: names.map(|name| policy_name(name).into_owned()).collect(), ..self }
    }

    /// The same problem, saying when to try again: in the header, in `retry_after`, and in the detail if that is
    /// not given.
    #[must_use]
    pub fn with_retry_after(self, seconds: u64) -> Self {
        let detail = self.detail.or_else(|| Some(Cow::Owned(try_again_in(seconds))));
        Self { retry_after: Some(seconds), detail, ..self }
    }

    /// The same problem with a sentence for people.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The same problem under another status, for whoever asks for one: a proxy that only understands 403, say.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status: status.as_u16(), ..self }
    }

    /// Why the call was turned away.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The names of the policies that were violated.
    pub fn violated_policies(&self) -> &[String] {
        &self.violated_policies
    }

    /// Seconds after which to try again, if that is known and helps.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// The problem as JSON; `<`, `>` and `&` are escaped, so that it stays text inside an HTML page.
    pub fn to_json(&self) -> String {
        html_safe_json(self)
    }

    /// The response: status, `Content-Type`, `Retry-After` if there is a wait, and the JSON.
    pub fn into_http_response<B: From<String>>(self) -> Response<B> {
        Answer {
            status: StatusCode::from_u16(self.status).unwrap_or(self.code.status()),
            content_type: "application/problem+json",
            retry_after: self.retry_after,
            body: self.to_json(),
        }
        .into_http_response()
    }
}

/// Says nothing of what failed, which may name hosts and keys, but for an attribute that the request lacks.
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
    use crate::decision::{Decision, When};
    use crate::redis::{RedisFailure, RedisFailureKind};

    /// A denial by a limit until ten seconds after the epoch, or in place of a store that could not be asked.
    fn denied(when: When) -> Decision {
        let end = Timestamp::from_micros(10_000_000);
        Decision {
            is_allowed: false,
            attempts: None,
            limit: 1,
            remaining: 0,
            not_before: end,
            resets_at: end,
            when,
        }
    }

    #[test]
    fn only_a_limit_that_was_reached_is_429() {
        let epoch = When::exactly(Timestamp::default());
        let (by_limit, in_place) = (denied(epoch), denied(epoch.uncounted()));
        let policy = |decision| Policy { name: "any", quota: 1, window: None, decision };
        let both = [policy(&by_limit), policy(&in_place)];
        let unavailable =
            Problem::denied([policy(&in_place), policy(&in_place)]).map(|problem| problem.status);
        assert_eq!(unavailable, Some(503));
        assert_eq!(Problem::denied(both).map(|problem| problem.status), Some(429));
        assert_eq!(Problem::denied(both.into_iter().rev()).map(|problem| problem.status), Some(429));
    }

    #[test]
    fn who_could_not_be_asked_is_not_violated() {
        let epoch = When::exactly(Timestamp::default());
        let (by_limit, in_place) = (denied(epoch), denied(epoch.uncounted()));
        let named = |name, decision| Policy { name, quota: 1, window: None, decision };
        let violated =
            |policies: &[Policy<'_>]| Problem::denied(policies.iter().copied()).map(|p| p.violated_policies);
        assert_eq!(violated(&[named("away", &in_place)]), Some(vec![]));
        let both = [named("away", &in_place), named("reached", &by_limit)];
        assert_eq!(violated(&both), Some(vec!["reached".to_owned()]));
    }

    #[test]
    fn a_cost_that_never_fits_is_429_whoever_says_so() {
        let when = When::exactly(Timestamp::default()).uncounted();
        let never = Decision { not_before: crate::decision::NEVER, ..denied(when) };
        let problem = Problem::denied([Policy { name: "any", quota: 1, window: None, decision: &never }]);
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
