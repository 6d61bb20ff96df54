//! The Redis provider behind the trait that the cases of `all_or_nothing/` use.

use std::sync::Arc;

use trypema::redis::RedisReceipt;
use trypema::{Limit, MultiDecision, RateLimiter};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::Control;

use crate::all_or_nothing::asked::{Asked, checks};
use crate::all_or_nothing::provider::{Answer, Provider, Stored};

/// A limiter on Redis.
pub(crate) struct OnRedis<'s> {
    pub(crate) rl: Arc<RateLimiter>,
    /// Connects to the server that stores a key.
    pub(crate) control: Box<dyn Fn(&str) -> Control + 's>,
}

/// The Redis key of a check's state. The keys of the tests need no escaping.
pub(crate) fn state_name(asked: &Asked) -> String {
    let suffix = match asked.limit {
        Limit::TokenBucket(_) => "tokens",
        _ => asked.limit.strategy(),
    };
    format!("trypema:{{{}}}:{suffix}", asked.key)
}

impl Provider for OnRedis<'_> {
    type Receipt = RedisReceipt;

    fn take_all(&self, asked: &[Asked]) -> Answer<RedisReceipt> {
        wait_for(self.rl.redis().take_all(&checks(asked)))
    }

    fn take_all_with_receipts(&self, asked: &[Asked]) -> Answer<RedisReceipt> {
        wait_for(self.rl.redis().take_all_with_receipts(&checks(asked)))
    }

    fn peek_all(&self, asked: &[Asked]) -> Answer<RedisReceipt> {
        wait_for(self.rl.redis().peek_all(&checks(asked)))
    }

    fn refund_all(&self, asked: &[Asked], receipts: &[Option<RedisReceipt>]) {
        wait_for(self.rl.redis().refund_all(&checks(asked), receipts)).unwrap();
    }

    fn units(receipt: &RedisReceipt) -> u64 {
        receipt.units()
    }

    fn reset(&self, asked: &Asked) -> bool {
        let (redis, key) = (self.rl.redis(), key(&asked.key));
        wait_for(async {
            match asked.limit {
                Limit::Absolute(_) => redis.absolute().reset(&key).await,
                Limit::Suppressed(_) => redis.suppressed().reset(&key).await,
                Limit::TokenBucket(_) => redis.token_bucket().reset(&key).await,
                Limit::SlidingWindow(_) => redis.sliding_window().reset(&key).await,
                Limit::FixedWindow(_) => redis.fixed_window().reset(&key).await,
                Limit::Abuse(_) => redis.abuse().reset(&key).await,
                Limit::Concurrency(_) => redis.concurrency().reset(&key).await,
            }
        })
        .unwrap()
    }

    fn take_all_at_once(&self, callers: &[Vec<Asked>]) -> Vec<MultiDecision<RedisReceipt>> {
        let take = |asked: &Vec<Asked>| {
            let (rl, asked) = (Arc::clone(&self.rl), asked.clone());
            runtime().spawn(async move { rl.redis().take_all(&checks(&asked)).await.unwrap() })
        };
        let callers: Vec<_> = callers.iter().map(take).collect();
        callers.into_iter().map(|caller| wait_for(caller).unwrap()).collect()
    }

    fn factor(&self, asked: &Asked) -> Option<f64> {
        let Limit::Suppressed(limit) = &asked.limit else { return None };
        let peeked = wait_for(self.rl.redis().suppressed().peek(&key(&asked.key), limit, asked.cost));
        peeked.unwrap().suppression_factor()
    }

    fn stored(&self, asked: &Asked) -> Option<Stored> {
        let (name, mut control) = (state_name(asked), (self.control)(&asked.key));
        let bytes = control.command(&["DUMP", &name]).unwrap().bytes().to_vec();
        assert!(!bytes.is_empty(), "nothing is stored as {name}");
        let expires_at_ms = control.command(&["PEXPIRETIME", &name]).unwrap().integer();
        Some(Stored { bytes, expires_at_ms })
    }
}
