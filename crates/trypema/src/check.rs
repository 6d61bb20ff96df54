//! Several limits asked at once: what is asked, and what became of it.

use crate::decision::Decision;
use crate::strategy::Limit;

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

/// What is wrong with checks, if they cannot be asked together.
pub(crate) fn problem_with(checks: &[Check<'_>]) -> Option<String> {
    if checks.len() > MAX_CHECKS {
        return Some(format!("{} of them: at most {MAX_CHECKS} can be asked together", checks.len()));
    }
    let is_repeated = |(index, check): (usize, &Check<'_>)| {
        let is_same = |other: &Check<'_>| {
            other.key == check.key
                && std::mem::discriminant(other.limit) == std::mem::discriminant(check.limit)
        };
        checks[..index].iter().any(is_same)
    };
    let is_any_repeated = checks.iter().enumerate().any(is_repeated);
    is_any_repeated.then(|| "a key is asked for twice by one strategy".to_owned())
}
