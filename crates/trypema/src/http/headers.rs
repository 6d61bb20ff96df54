//! Header fields for the remaining quota and for the wait.

use std::time::Duration;

use ::http::header::{Entry, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::digits::header_value;
use super::field_list::{FieldList, MAX_INTEGER, Parameter};
use super::policy::{Policy, QuotaUnit, tightest};
use super::text::{MAX_NAME, policy_name};
use crate::decision::Decision;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Once a list has this many policies, only those that denied the request are added.
const MAX_LISTED: usize = 12;

/// The most policies in a list. It keeps a line below 4 KiB, which is a common limit of proxies for response
/// headers.
pub(super) const MAX_DENIALS_LISTED: usize = 23;

/// The most digits of a number.
const MAX_DIGITS: usize = MAX_INTEGER.ilog10() as usize + 1;

/// The parameter of a quota of concurrent requests, which has no window.
const CONCURRENT_REQUESTS: &str = r#";qu="concurrent-requests""#;

/// The longest item of either list, without its name: one with `qu`, which is longer than any window.
const MAX_BESIDE_NAME: usize = r#", "";q="#.len() + MAX_DIGITS + CONCURRENT_REQUESTS.len();

const _: () = assert!(CONCURRENT_REQUESTS.len() >= ";w=".len() + MAX_DIGITS);

// Every character of the longest name may need a backslash.
const _: () = assert!(MAX_DENIALS_LISTED * (2 * MAX_NAME + MAX_BESIDE_NAME) < 4096);

/// The header fields that report the remaining quota. Independently of the style, a denial has `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// No header fields.
    None,
    /// `RateLimit-Policy` and `RateLimit` of the IETF draft `draft-ietf-httpapi-ratelimit-headers-10`. Lists
    /// the first 12 policies and, up to 23 in total, those that denied the request.
    ///
    /// `q` is the quota and `w` its window. `r` is the remaining quota and `t` the time until more is
    /// available: for a denied request its wait, otherwise the time until the full quota is available. Times
    /// are whole seconds, rounded up; a window is at least one second. A key that is blocked forever has no
    /// `t`. The fields are appended to existing ones, because lists may span several lines.
    ///
    /// A limit on requests in flight has `qu="concurrent-requests"` and no `w`. It has a `t` only on a denial,
    /// because nobody knows when holders release their units.
    #[default]
    Standard,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` of the tightest policy: one that denied the request;
    /// otherwise the one with the smallest share left; otherwise the one with the longest wait.
    ///
    /// `-Reset` is in seconds from now, rounded up. It is not a time of day, because a client's clock may be
    /// wrong. For a limit on requests in flight it is the wait: 0 for an allowed request. Existing fields are
    /// kept, because a layer closer to the route wrote them.
    XRateLimit,
}

impl HeaderStyle {
    /// Writes the results of `policies` to `headers`. Writes nothing if there are no policies.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::HeaderMap;
    /// use trypema::http::{HeaderStyle, Policy, QuotaUnit};
    /// use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let limits = TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(60))?);
    /// let decision = rl.local().token_bucket().take("ann", &limits, 3).core();
    /// let (window, unit) = (Some(Duration::from_secs(60)), QuotaUnit::Spent);
    /// let policy = Policy { name: "burst", quota: 10, window, unit, decision: &decision };
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
            Self::XRateLimit => {
                if let Some(policy) = tightest(policies) {
                    write_x_ratelimit(&policy, || header_value(policy.quota), headers);
                }
            }
        }
    }

    /// The same as [`HeaderStyle::write`] for one policy, with the precomputed values in `static_headers`.
    #[cfg(feature = "tower")]
    pub(crate) fn write_one(
        self,
        policy: &Policy<'_>,
        static_headers: &StaticHeaders,
        headers: &mut HeaderMap,
    ) {
        match self {
            Self::None => {}
            Self::Standard => {
                let mut left = FieldList::default();
                push_left(&mut left, &policy_name(policy.name), policy);
                append(headers, RATELIMIT_POLICY, static_headers.policy.clone());
                append(headers, RATELIMIT, left.into_value());
            }
            Self::XRateLimit => write_x_ratelimit(policy, || static_headers.quota.clone(), headers),
        }
    }
}

/// The header values of a policy that are the same in all responses, computed once.
#[cfg(feature = "tower")]
#[derive(Debug)]
pub(crate) struct StaticHeaders {
    policy: Option<HeaderValue>,
    quota: HeaderValue,
}

#[cfg(feature = "tower")]
impl StaticHeaders {
    pub(crate) fn new(name: &str, quota: Quota) -> Self {
        let mut limits = FieldList::default();
        push_limit(&mut limits, &policy_name(name), quota);
        Self { policy: limits.into_value(), quota: header_value(quota.units) }
    }
}

/// Converts `wait` to whole seconds for `Retry-After`: rounded up, so that clients do not retry too early,
/// and at least one, because clients interpret zero as "at once".
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

/// Returns the `Retry-After` of a denial in seconds. `None` if the request was allowed, or if it can never be
/// allowed.
pub fn retry_after_seconds(decision: &Decision) -> Option<u64> {
    if decision.is_allowed() { None } else { decision.retry_after().map(whole_seconds) }
}

/// Sets `Retry-After` to `seconds`.
pub fn write_retry_after(seconds: u64, headers: &mut HeaderMap) {
    set(headers, RETRY_AFTER, header_value(seconds));
}

/// Inserts a header. If the map has reached its maximum size, it stays unchanged.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = headers.try_insert(name, value);
}

/// Converts `wait` to whole seconds, rounded up.
pub(super) fn rounded_up(wait: Duration) -> u64 {
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
        push_limit(&mut limits, &name, Quota::of(&policy));
        push_left(&mut left, &name, &policy);
    }
    append(headers, RATELIMIT_POLICY, limits.into_value());
    append(headers, RATELIMIT, left.into_value());
}

/// The units of a policy, their window and their meaning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota {
    pub(crate) units: u64,
    pub(crate) window: Option<Duration>,
    pub(crate) unit: QuotaUnit,
}

impl Quota {
    fn of(policy: &Policy<'_>) -> Self {
        Self { units: policy.quota, window: policy.window, unit: policy.unit }
    }
}

fn push_limit(limits: &mut FieldList, name: &str, quota: Quota) {
    let Quota { units, window, unit } = quota;
    let quota = Parameter::number(";q=", units);
    match (unit, window) {
        (QuotaUnit::ConcurrentRequests, _) => {
            limits.push(name, &[quota, Parameter::constant(CONCURRENT_REQUESTS)]);
        }
        (_, Some(window)) => limits.push(name, &[quota, Parameter::number(";w=", whole_seconds(window))]),
        (_, None) => limits.push(name, &[quota]),
    }
}

fn push_left(left: &mut FieldList, name: &str, policy: &Policy<'_>) {
    let remaining = Parameter::number(";r=", policy.decision.remaining());
    match policy.reset_seconds() {
        Some(seconds) => left.push(name, &[remaining, Parameter::number(";t=", seconds)]),
        None => left.push(name, &[remaining]),
    }
}

/// Appends a header line. If the map has reached its maximum size, it stays unchanged.
fn append(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        let _ = headers.try_append(name, value);
    }
}

fn write_x_ratelimit(policy: &Policy<'_>, quota: impl FnOnce() -> HeaderValue, headers: &mut HeaderMap) {
    let Ok(Entry::Vacant(limit)) = headers.try_entry(X_RATELIMIT_LIMIT) else { return };
    let _ = limit.try_insert(quota());
    set(headers, X_RATELIMIT_REMAINING, header_value(policy.decision.remaining()));
    if let Some(seconds) = policy.wait_or_reset_seconds() {
        set(headers, X_RATELIMIT_RESET, header_value(seconds));
    }
}
