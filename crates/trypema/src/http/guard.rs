//! Converts denials to errors, for handlers that return early.

use super::error_code::ErrorCode;
use super::error_response::ErrorResponse;
use super::headers::retry_after_seconds;
use super::response_parts::try_again_in;
use super::text::one_line;
use crate::decision::Decision;
#[cfg(feature = "_redis")]
use crate::hybrid;
use crate::local;
#[cfg(feature = "_redis")]
use crate::redis::{self, RedisKey};
use crate::strategy::{Abuse, AbuseLimit};

/// The longest name of an action in a message, in characters. A message is one short line.
const MAX_ACTION: usize = 100;

/// Converts a denial to an error that names the action: [`ErrorCode::RateLimited`], or
/// [`ErrorCode::ServiceUnavailable`] if the failure policy denied the request because the store failed. Works
/// for all strategies.
///
/// ```
/// use std::time::Duration;
/// use trypema::http::{ErrorResponse, guard};
/// use trypema::{FixedWindowLimit, RateLimiter};
///
/// fn export(rl: &RateLimiter, limit: &FixedWindowLimit) -> Result<String, ErrorResponse> {
///     guard(&rl.local().fixed_window().take("ann", limit, 1), "exports")?;
///     Ok("a,b,c".to_owned())
/// }
///
/// let rl = RateLimiter::builder().build()?;
/// let limit = FixedWindowLimit::new(1, Duration::from_secs(3600))?;
/// assert!(export(&rl, &limit).is_ok());
/// let error = export(&rl, &limit).unwrap_err();
/// assert!(error.message().starts_with("Too many requests for exports. Try again in "));
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
pub fn guard(decision: &Decision, action: &str) -> Result<(), ErrorResponse> {
    unless_allowed(decision, ErrorCode::RateLimited, action)
}

impl local::LocalLimiter<Abuse> {
    /// Records an attempt. If the key is blocked, returns an error that names the action and the wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::{AbuseLimit, AbuseTier, RateLimiter};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let limit = AbuseLimit::new(
    ///     AbuseTier::new(Duration::from_secs(60), 2, Duration::from_secs(600))?,
    ///     AbuseTier::new(Duration::from_secs(3600), 10, Duration::from_secs(86_400))?,
    /// );
    /// assert!(rl.local().abuse().limiter("ann", &limit, "verification code").is_ok());
    /// let error = rl.local().abuse().limiter("ann", &limit, "verification code").unwrap_err();
    /// assert_eq!(error.to_string(), "Too many attempts for verification code. Try again in 600 seconds.");
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn limiter(&self, key: &str, limit: &AbuseLimit, action: &str) -> Result<(), ErrorResponse> {
        unless_allowed(&self.take(key, limit, 1), ErrorCode::TooManyAttempts, action)
    }
}

#[cfg(feature = "_redis")]
impl redis::RedisLimiter<Abuse> {
    /// Records an attempt. If the key is blocked, returns an error that names the action and the wait. A
    /// failure of Redis is also an error: [`ErrorCode::ServiceUnavailable`] or
    /// [`ErrorCode::InternalServerError`].
    pub async fn limiter(
        &self,
        key: &RedisKey,
        limit: &AbuseLimit,
        action: &str,
    ) -> Result<(), ErrorResponse> {
        let decision = self.take(key, limit, 1).await?;
        unless_allowed(&decision, ErrorCode::TooManyAttempts, action)
    }
}

#[cfg(feature = "_redis")]
impl hybrid::HybridLimiter<Abuse> {
    /// Records an attempt. If the key is blocked, returns an error that names the action and the wait. A
    /// block that this instance knows of is decided in this process. A failure of Redis is also an error, as
    /// for [`redis::RedisLimiter`](redis::RedisLimiter#method.limiter).
    ///
    /// ```no_run
    /// use trypema::http::ErrorResponse;
    /// use trypema::redis::RedisKey;
    /// use trypema::{AbuseLimit, RateLimiter};
    ///
    /// async fn send_code(rl: &RateLimiter, limit: &AbuseLimit, phone: &str) -> Result<(), ErrorResponse> {
    ///     rl.hybrid().abuse().limiter(&RedisKey::encode(phone), limit, "verification code").await?;
    ///     Ok(()) // send it
    /// }
    /// ```
    pub async fn limiter(
        &self,
        key: &RedisKey,
        limit: &AbuseLimit,
        action: &str,
    ) -> Result<(), ErrorResponse> {
        let decision = self.take(key, limit, 1).await?;
        unless_allowed(&decision, ErrorCode::TooManyAttempts, action)
    }
}

fn unless_allowed(decision: &Decision, code: ErrorCode, action: &str) -> Result<(), ErrorResponse> {
    if decision.is_allowed() {
        return Ok(());
    }
    let code = match ErrorCode::of_denial(decision) {
        ErrorCode::ServiceUnavailable => ErrorCode::ServiceUnavailable,
        _ => code,
    };
    let wait = retry_after_seconds(decision);
    let error = ErrorResponse::new(code).with_message(message(code, action, wait));
    Err(match wait {
        Some(seconds) => error.with_retry_after(seconds),
        None => error,
    })
}

fn message(code: ErrorCode, action: &str, wait: Option<u64>) -> String {
    let mut message = code.phrase().to_owned();
    let is_about_the_action = matches!(code, ErrorCode::TooManyAttempts | ErrorCode::RateLimited);
    if is_about_the_action && !action.is_empty() {
        message.push_str(" for ");
        message.push_str(&one_line(action, MAX_ACTION));
    }
    message.push('.');
    if let Some(seconds) = wait {
        message.push(' ');
        message.push_str(&try_again_in(seconds));
    }
    message
}

#[cfg(all(test, feature = "_redis"))]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::decision::DecisionTime;

    #[test]
    fn a_denial_in_place_of_a_store_is_not_the_callers_fault() {
        let now = Timestamp::default();
        let denied = Decision {
            is_allowed: false,
            attempts: None,
            limit: 1,
            remaining: 0,
            not_before: now,
            resets_at: now,
            decided_at: DecisionTime::exactly(now).uncounted(),
        };
        for code in [ErrorCode::RateLimited, ErrorCode::TooManyAttempts] {
            let error = unless_allowed(&denied, code, "login").map_err(|error| error.to_string());
            let message = "The service is temporarily unavailable. Try again in 1 second.";
            assert_eq!(error, Err(message.to_owned()));
        }
    }
}
