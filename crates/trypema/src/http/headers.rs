//! What is left, and when to come back, as header fields.

use std::time::Duration;

use ::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::policy::{Policy, tightest};
use super::text::{MAX_NAME, policy_name};
use crate::decision::Decision;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The greatest integer of a structured field (RFC 9651); greater numbers are shown as this one.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Policies that are listed before those that allowed the call are left out.
const MAX_LISTED: usize = 12;

/// Policies that are listed at most, so that a line stays below the 4 KiB that proxies commonly give to the head of
/// a response.
pub(super) const MAX_DENIALS_LISTED: usize = 24;

/// An item of either list with an ordinary name and numbers.
const USUAL_ITEM: usize = 40;

// Every character of the longest name may need a backslash.
const _: () = assert!(MAX_DENIALS_LISTED * (2 * MAX_NAME + USUAL_ITEM) < 4096);

/// How clients are told what is left. Independent of it, a denial has `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// They are not.
    None,
    /// `RateLimit-Policy` and `RateLimit` of the IETF draft `draft-ietf-httpapi-ratelimit-headers-10`, listing the
    /// first 12 policies and, up to 24 in all, those that denied the call.
    ///
    /// `q` is the quota and `w` its window, `r` what remains and `t` the seconds until more is available: the wait
    /// of a call that was denied, else the time until all of the quota is. Windows and waits are whole seconds,
    /// rounded up; a window is at least one. Added to what is there already: lists may be split over lines.
    #[default]
    Standard,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` of the tightest policy: one that denied, else the one with the
    /// smallest share left, else the one with the longest wait.
    ///
    /// `-Reset` counts seconds from now, rounded up; it is not a time of day, which clients whose clock is wrong
    /// could not use. If the fields are there already they stay, as whoever wrote them stood closer to the route.
    XRateLimit,
}

impl HeaderStyle {
    /// Writes what `policies` decided into `headers`; without a policy, nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::HeaderMap;
    /// use trypema::http::{HeaderStyle, Policy};
    /// use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let limits = TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(60))?);
    /// let decision = rl.local().token_bucket().take("ann", &limits, 3).core();
    /// let policy = Policy { name: "burst", quota: 10, window: Some(Duration::from_secs(60)), decision: &decision };
    ///
    /// let mut headers = HeaderMap::new();
    /// HeaderStyle::Standard.write([policy], &mut headers);
    /// assert_eq!(headers["ratelimit-policy"], "\"burst\";q=10;w=60");
    /// assert_eq!(headers["ratelimit"], "\"burst\";r=7;t=18");
    ///
    /// HeaderStyle::XRateLimit.write([policy], &mut headers);
    /// assert_eq!(headers["x-ratelimit-remaining"], "7");
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn write<'a>(self, policies: impl IntoIterator<Item = Policy<'a>>, headers: &mut HeaderMap) {
        match self {
            Self::None => {}
            Self::Standard => write_standard(policies, headers),
            Self::XRateLimit => write_x_ratelimit(policies, headers),
        }
    }
}

/// `wait` in whole seconds as `Retry-After` counts them: rounded up, so that nobody comes back too early, and at
/// least one, as clients take zero for "at once".
///
/// ```
/// use std::time::Duration;
/// use trypema::http::whole_seconds;
///
/// assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
/// assert_eq!(whole_seconds(Duration::from_secs(1)), 1);
/// assert_eq!(whole_seconds(Duration::from_micros(1_000_001)), 2);
/// ```
pub fn whole_seconds(wait: Duration) -> u64 {
    rounded_up(wait).max(1)
}

/// The `Retry-After` of a denial; `None` for a call that was allowed and for one that can never be.
pub fn retry_after_seconds(decision: &Decision) -> Option<u64> {
    if decision.is_allowed() { None } else { decision.retry_after().map(whole_seconds) }
}

/// Sets `Retry-After` to `seconds`.
pub fn write_retry_after(seconds: u64, headers: &mut HeaderMap) {
    set(headers, RETRY_AFTER, HeaderValue::from(seconds));
}

/// A map that is full keeps what it has.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = headers.try_insert(name, value);
}

fn rounded_up(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn write_standard<'a>(policies: impl IntoIterator<Item = Policy<'a>>, headers: &mut HeaderMap) {
    let (mut limits, mut left) = (FieldList::default(), FieldList::default());
    let mut listed = 0;
    for policy in policies {
        let most = if policy.decision.is_allowed() { MAX_LISTED } else { MAX_DENIALS_LISTED };
        if listed >= most {
            continue;
        }
        listed += 1;
        let name = policy_name(policy.name);
        limits.push_item(&name);
        limits.push_parameter(";q=", policy.quota);
        if let Some(window) = policy.window {
            limits.push_parameter(";w=", whole_seconds(window));
        }
        left.push_item(&name);
        left.push_parameter(";r=", policy.decision.remaining());
        left.push_parameter(";t=", rounded_up(policy.reset_after()));
    }
    limits.append_to(headers, RATELIMIT_POLICY);
    left.append_to(headers, RATELIMIT);
}

fn write_x_ratelimit<'a>(policies: impl IntoIterator<Item = Policy<'a>>, headers: &mut HeaderMap) {
    let Some(policy) = tightest(policies).filter(|_| !headers.contains_key(X_RATELIMIT_LIMIT)) else {
        return;
    };
    set(headers, X_RATELIMIT_LIMIT, HeaderValue::from(policy.quota));
    set(headers, X_RATELIMIT_REMAINING, HeaderValue::from(policy.decision.remaining()));
    set(headers, X_RATELIMIT_RESET, HeaderValue::from(rounded_up(policy.reset_after())));
}

/// A structured field that is a list of strings with integer parameters.
#[derive(Debug, Default)]
struct FieldList(String);

impl FieldList {
    fn push_item(&mut self, name: &str) {
        self.0.reserve(USUAL_ITEM.max(name.len() + USUAL_ITEM / 2));
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        self.0.push('"');
        for part in name.split_inclusive(['"', '\\']) {
            match part.strip_suffix(['"', '\\']) {
                Some(start) => self.0.extend([start, "\\", &part[start.len()..]]),
                None => self.0.push_str(part),
            }
        }
        self.0.push('"');
    }

    fn push_parameter(&mut self, key: &str, value: u64) {
        self.0.push_str(key);
        push_number(&mut self.0, value.min(MAX_INTEGER));
    }

    fn append_to(self, headers: &mut HeaderMap, name: HeaderName) {
        if self.0.is_empty() {
            return;
        }
        // Printable ASCII is always a value.
        if let Ok(value) = HeaderValue::try_from(self.0) {
            let _ = headers.try_append(name, value);
        }
    }
}

/// The machinery of `write!` costs more than the digits.
fn push_number(text: &mut String, number: u64) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    // A remainder of ten is a digit.
    text.push(char::from(b'0' + (number % 10) as u8));
}
