//! The local provider for rules and middleware. It answers immediately, and never fails.

use super::provider::LocalRateLimiterProvider;
use super::together::Holds;
use crate::check::{Check, CheckResult, Deadline, Receipts, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::provider::{Answer, Counting, Provider, Receipt, Record, Refund, Refunded, Taken};
use crate::strategy::{Limit, Strategy, with_strategy};

impl Provider for LocalRateLimiterProvider {
    fn deadline(&self) -> Deadline {
        Deadline::NEVER
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn take_all<'a>(&'a self, request: TakeRequest<'a>) -> Answer<'a, Taken> {
        let taken = match request.receipts {
            Receipts::Unwanted => Self::take_all(self, request.together),
            Receipts::Wanted => Self::reserve_all(self, request.together),
        };
        Answer::Now(taken.map(|taken| {
            let alone = request.alone.iter().map(|check| Ok(self.take_one(check))).collect();
            TakeResponse { alone, ..TakeResponse::from(taken).map_receipts(Receipt::Local) }
        }))
    }

    fn peek_all<'a>(&'a self, checks: &'a [Check<'a>], _deadline: Deadline) -> Answer<'a, Vec<CheckResult>> {
        Answer::Now(checks.iter().map(|check| Ok(self.peek_one(check))).collect())
    }

    fn record_all<'a>(
        &'a self,
        records: &'a [Record<'a>],
        _deadline: Deadline,
    ) -> Answer<'a, Vec<CheckResult>> {
        let record = |record: &Record<'_>| match record.counting {
            Counting::Take => Ok(self.take_one(&record.check)),
            Counting::Forgo => self.forgo_one(&record.check),
        };
        Answer::Now(records.iter().map(record).collect())
    }

    fn refund_all<'a>(&'a self, refunds: &'a [Refund<'a>], _deadline: Deadline) -> Answer<'a, Vec<Refunded>> {
        Answer::Now(refunds.iter().map(|refund| Ok(self.refund_one(refund))).collect())
    }

    fn reset<'a>(&'a self, check: Check<'a>, _deadline: Deadline) -> Answer<'a, Result<bool, TrypemaError>> {
        let was_known = with_strategy!(check.limit, |S, _limit| Holds::<S>::limiter(self).reset(check.key));
        Answer::Now(Ok(was_known))
    }
}

impl LocalRateLimiterProvider {
    fn take_one(&self, check: &Check<'_>) -> Decision {
        with_strategy!(check.limit, |S, limit| {
            S::core(&Holds::<S>::limiter(self).take(check.key, limit, check.cost))
        })
    }

    fn peek_one(&self, check: &Check<'_>) -> Decision {
        with_strategy!(check.limit, |S, limit| {
            S::core(&Holds::<S>::limiter(self).peek(check.key, limit, check.cost))
        })
    }

    /// Records a check of a request that another check denies. A denial counts as always. An admission counts
    /// only for a strategy that observes every request.
    fn forgo_one(&self, check: &Check<'_>) -> CheckResult {
        let peeked = self.peek_one(check);
        if !peeked.is_allowed() {
            return Ok(self.take_one(check));
        }
        if matches!(check.limit, Limit::Suppressed(_)) {
            let checks = std::slice::from_ref(check);
            let reserved = self.reserve_all(checks)?;
            self.refund_all(checks, &reserved.receipts);
        }
        Ok(peeked)
    }

    fn refund_one(&self, refund: &Refund<'_>) -> u64 {
        let check = &refund.check;
        with_strategy!(check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            match refund.receipt {
                Some(Receipt::Local(receipt)) => limiter.refund(check.key, limit, receipt),
                None => limiter.refund_units(check.key, limit, check.cost),
                Some(_) => 0,
            }
        })
    }
}
