//! Checks of several limits in one request, and their results.

#[cfg(any(feature = "_redis", feature = "rules"))]
mod multi;

use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::strategy::{Limit, Payment, Spend};

#[cfg(any(feature = "_redis", feature = "rules"))]
pub(crate) use multi::{CheckResult, Deadline, DecideRequest, Failed, Receipts, TakeRequest, TakeResponse};

/// A cost to take from the limit of one key.
///
/// A key has one state per strategy, so one request cannot contain two checks of the same key and strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Check<'a> {
    /// The key.
    pub key: &'a str,
    /// The limit that applies to the key.
    pub limit: &'a Limit,
    /// The units to take.
    pub cost: u64,
    /// Whether one free unit is enough, see [`Check::postpaid`].
    pub is_postpaid: bool,
}

impl<'a> Check<'a> {
    /// Returns a check that takes `cost` if all of it fits.
    pub const fn new(key: &'a str, limit: &'a Limit, cost: u64) -> Self {
        Self { key, limit, cost, is_postpaid: false }
    }

    /// Whether a reservation of this check has an entry. A slot of no units is no slot, but a reservation of no
    /// units of another limit may be settled at more.
    #[cfg(feature = "rules")]
    pub(crate) fn is_reservable(&self) -> bool {
        self.cost > 0 || !self.limit.is_held()
    }

    /// Returns the same check, postpaid: it is admitted if at least one unit is free, even if its cost is 0. A
    /// cost that does not fit is recorded all the same, and later calls wait until the overdraft is paid. An abuse
    /// limit counts an attempt as usual.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::{Check, FixedWindowLimit, Limit, RateLimiter};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let limit = Limit::from(FixedWindowLimit::new(100, Duration::from_secs(3600))?);
    /// let check = Check::new("ann", &limit, 250).postpaid();
    /// assert!(rl.local().take_all(&[check])?.is_allowed);
    /// assert!(!rl.local().take_all(&[check])?.is_allowed);
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    #[must_use]
    pub const fn postpaid(self) -> Self {
        Self { is_postpaid: true, ..self }
    }

    /// Returns a check of the same counter that costs nothing, and whose decision says what is left.
    #[cfg(any(feature = "_redis", feature = "rules"))]
    pub(crate) const fn usage(self) -> Self {
        Self { cost: 0, is_postpaid: false, ..self }
    }

    pub(crate) fn payment(&self) -> Payment {
        if self.is_postpaid { Payment::Postpaid } else { Payment::Prepaid }
    }

    pub(crate) fn spend(&self) -> Spend {
        Spend { cost: self.cost, payment: self.payment() }
    }
}

/// The result of several checks in one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultiDecision<R> {
    /// Whether all checks were admitted. If not, nothing was spent, but strategies that count denials have
    /// counted them.
    pub is_allowed: bool,
    /// The decision on each check, in the order of the checks: whether the check alone would be admitted. A take
    /// that is denied spends nothing, so the other decisions say what is left without it.
    pub decisions: Vec<Decision>,
    /// The receipt of each take, in the order of the checks. Empty unless receipts were requested and all
    /// checks were admitted.
    pub receipts: Vec<Option<R>>,
}

/// The largest number of checks in one request: more than any set of rules applies to one request, and few
/// enough to bound the work of a call.
pub(crate) const MAX_CHECKS: usize = 64;

/// Rejects checks that cannot be taken in one request.
pub(crate) fn validate_take(checks: &[Check<'_>]) -> Result<(), TrypemaError> {
    if checks.iter().any(|check| check.limit.is_held()) {
        let reason = "a concurrency limit cannot be taken together with other limits: reserve it by a rule, or take \
                      it on its own";
        return Err(TrypemaError::InvalidChecks { reason: reason.to_owned() });
    }
    validate(checks)
}

/// Rejects checks that cannot be in one request.
pub(crate) fn validate(checks: &[Check<'_>]) -> Result<(), TrypemaError> {
    let invalid = |reason: String| Err(TrypemaError::InvalidChecks { reason });
    if checks.len() > MAX_CHECKS {
        return invalid(format!("{} checks in one request: at most {MAX_CHECKS} are allowed", checks.len()));
    }
    let is_repeated = |(index, check): (usize, &Check<'_>)| {
        let is_same = |other: &Check<'_>| {
            other.key == check.key
                && std::mem::discriminant(other.limit) == std::mem::discriminant(check.limit)
        };
        checks[..index].iter().any(is_same)
    };
    if checks.iter().enumerate().any(is_repeated) {
        return invalid("two checks use the same key and strategy".to_owned());
    }
    Ok(())
}
