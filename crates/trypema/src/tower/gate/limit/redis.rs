//! Counters in Redis, which have to be waited for.

use std::sync::Arc;

use super::{Counting, Finding, Found, LimitGate, Settled, Terms, Trouble};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::redis::{Holds, Receipt, RedisKey, Reservation};
use crate::strategy::{Strategy, with_strategy};

impl LimitGate {
    pub(super) async fn ask_redis(self: Arc<Self>, counter: String, terms: Terms) -> Result<Found, Trouble> {
        let Terms { cost, counting, .. } = terms;
        let key = RedisKey::try_from(counter)?;
        Ok(match counting {
            Counting::Before => Found::settled(self.finding(self.take_on_redis(&key, cost).await?)),
            Counting::Reserving => {
                let Reservation { decision, receipt } = self.reserve_on_redis(&key, cost).await?;
                Found::new(self.finding(decision), move || match receipt {
                    Some(receipt) => Settled::Later(Box::pin(self.refund_on_redis(key, receipt))),
                    None => Settled::Now(None),
                })
            }
            Counting::After => {
                let decision = self.peek_on_redis(&key, self.looking(cost)).await?;
                Found::new(self.finding(decision), move || {
                    Settled::Later(Box::pin(self.charge_on_redis(key, cost)))
                })
            }
        })
    }

    async fn take_on_redis(&self, key: &RedisKey, cost: u64) -> Result<Decision, TrypemaError> {
        with_strategy!(&self.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self.limiter.redis());
            limiter.take(key, limit, cost).await.map(|decision| S::core(&decision))
        })
    }

    async fn peek_on_redis(&self, key: &RedisKey, cost: u64) -> Result<Decision, TrypemaError> {
        with_strategy!(&self.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self.limiter.redis());
            limiter.peek(key, limit, cost).await.map(|decision| S::core(&decision))
        })
    }

    async fn reserve_on_redis(
        &self,
        key: &RedisKey,
        cost: u64,
    ) -> Result<Reservation<Decision>, TrypemaError> {
        with_strategy!(&self.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self.limiter.redis());
            let Reservation { decision, receipt } = limiter.reserve(key, limit, cost).await?;
            Ok(Reservation { decision: S::core(&decision), receipt })
        })
    }

    /// The observer knows of a failure; what cannot be given back stays spent.
    async fn refund_on_redis(self: Arc<Self>, key: RedisKey, receipt: Receipt) -> Option<Finding> {
        with_strategy!(&self.limit, |S, limit| {
            let _ = Holds::<S>::limiter(self.limiter.redis()).refund(&key, limit, &receipt).await;
        });
        None
    }

    /// The response is made, so a denial or a failure changes nothing for it.
    async fn charge_on_redis(self: Arc<Self>, key: RedisKey, cost: u64) -> Option<Finding> {
        self.take_on_redis(&key, cost).await.ok().map(|decision| self.finding(decision))
    }
}
