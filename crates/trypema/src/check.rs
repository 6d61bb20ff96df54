//! Several limits asked at once: what is asked, and what became of it.

#[cfg(any(feature = "_redis", feature = "rules"))]
mod multi;

use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::strategy::Limit;

#[cfg(any(feature = "_redis", feature = "rules"))]
pub(crate) use multi::{CheckResult, Deadline, Failed, IfUnreachable, Receipts, TakeRequest, TakeResponse};

/// So much of one key's limit.
///
/// A key has one state per strategy: two checks of one strategy on one key cannot be asked together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Check<'a> {
    /// Whose limit it is.
    pub key: &'a str,
    /// What applies.
    pub limit: &'a Limit,
    /// What is asked for.
    pub cost: u64,
}

/// What became of checks that were asked together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Together<R> {
    /// Whether all were admitted. If not, none was spent; what strategies count of denials was counted.
    pub is_allowed: bool,
    /// What each check was answered, in their order, as if it had been the only one.
    pub decisions: Vec<Decision>,
    /// Where receipts were asked for and all were admitted: what names each take, in their order.
    pub receipts: Vec<Option<R>>,
}

/// More checks than any set of rules applies to one request, few enough to bound the work of a call.
pub(crate) const MAX_CHECKS: usize = 64;

/// Refuses checks that cannot be asked together.
pub(crate) fn validate(checks: &[Check<'_>]) -> Result<(), TrypemaError> {
    let invalid = |reason: String| Err(TrypemaError::InvalidChecks { reason });
    if checks.len() > MAX_CHECKS {
        return invalid(format!("{} of them: at most {MAX_CHECKS} can be asked together", checks.len()));
    }
    let is_repeated = |(index, check): (usize, &Check<'_>)| {
        let is_same = |other: &Check<'_>| {
            other.key == check.key
                && std::mem::discriminant(other.limit) == std::mem::discriminant(check.limit)
        };
        checks[..index].iter().any(is_same)
    };
    if checks.iter().enumerate().any(is_repeated) {
        return invalid("a key is asked for twice by one strategy".to_owned());
    }
    Ok(())
}
