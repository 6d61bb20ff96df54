//! Counters in Redis, which have to be waited for.

use std::sync::Arc;

use super::{Counting, Finding, Found, LimitGate, Settled, Terms, Trouble, with_limiter};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::redis::{Limiter, Receipt, RedisKey, Reservation};
use crate::strategy::Wire;

impl LimitGate {
    pub(super) async fn ask_redis(self: Arc<Self>, counter: String, terms: Terms) -> Result<Found, Trouble> {
        let Terms { cost, counting, .. } = terms;
        let key = RedisKey::try_from(counter)?;
        Ok(match counting {
            Counting::Before => Found::settled(self.take_on_redis(&key, cost).await?),
            Counting::Reserving => {
                let Reservation { decision, receipt } = self.reserve_on_redis(&key, cost).await?;
                Found::new(decision, move || match receipt {
                    Some(receipt) => Settled::Later(Box::pin(self.refund_on_redis(key, receipt))),
                    None => Settled::Now(None),
                })
            }
            Counting::After => {
                let decision = self.peek_on_redis(&key, self.looking(cost)).await?;
                Found::new(decision, move || Settled::Later(Box::pin(self.charge_on_redis(key, cost))))
            }
        })
    }

    async fn take_on_redis(&self, key: &RedisKey, cost: u64) -> Result<Decision, TrypemaError> {
        async fn core<S: Wire>(
            limiter: &Limiter<S>,
            limit: &S::Limit,
            (key, cost): (&RedisKey, u64),
        ) -> Result<Decision, TrypemaError> {
            Ok(S::core(&limiter.take(key, limit, cost).await?))
        }
        with_limiter!(self.limiter.redis(), &self.limit, |limiter, limit| {
            core(limiter, limit, (key, cost)).await
        })
    }

    async fn peek_on_redis(&self, key: &RedisKey, cost: u64) -> Result<Decision, TrypemaError> {
        async fn core<S: Wire>(
            limiter: &Limiter<S>,
            limit: &S::Limit,
            (key, cost): (&RedisKey, u64),
        ) -> Result<Decision, TrypemaError> {
            Ok(S::core(&limiter.peek(key, limit, cost).await?))
        }
        with_limiter!(self.limiter.redis(), &self.limit, |limiter, limit| {
            core(limiter, limit, (key, cost)).await
        })
    }

    async fn reserve_on_redis(
        &self,
        key: &RedisKey,
        cost: u64,
    ) -> Result<Reservation<Decision>, TrypemaError> {
        async fn core<S: Wire>(
            limiter: &Limiter<S>,
            limit: &S::Limit,
            (key, cost): (&RedisKey, u64),
        ) -> Result<Reservation<Decision>, TrypemaError> {
            let Reservation { decision, receipt } = limiter.reserve(key, limit, cost).await?;
            Ok(Reservation { decision: S::core(&decision), receipt })
        }
        with_limiter!(self.limiter.redis(), &self.limit, |limiter, limit| {
            core(limiter, limit, (key, cost)).await
        })
    }

    /// The observer knows of a failure; what cannot be given back stays spent.
    async fn refund_on_redis(self: Arc<Self>, key: RedisKey, receipt: Receipt) -> Option<Finding> {
        with_limiter!(self.limiter.redis(), &self.limit, |limiter, limit| {
            let _ = limiter.refund(&key, limit, &receipt).await;
        });
        None
    }

    /// The response is made, so a denial or a failure changes nothing for it.
    async fn charge_on_redis(self: Arc<Self>, key: RedisKey, cost: u64) -> Option<Finding> {
        self.take_on_redis(&key, cost).await.ok().map(Finding::from)
    }
}
