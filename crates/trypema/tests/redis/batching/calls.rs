//! Random calls of any strategy and operation, on the Redis provider and on the local one.

use std::time::Duration;

use trypema::strategy::{Strategy, Wire, for_each_strategy};
use trypema::{RateLimiter, local, redis};
use trypema_testkit::blocking::key;
use trypema_testkit::random::Random;

use crate::strategies::Limits;

const NAMES: [&str; 4] = ["ann", "bob", "c}d", "{"];

/// One call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    strategy: u64,
    verb: Verb,
    name: &'static str,
    /// The index of the limit.
    limit: usize,
    cost: u64,
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Take,
    Peek,
    UpTo,
    Reserve,
    Postpaid,
    Debit,
    RefundUnits,
    Reset,
}

/// The result of a call.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    /// The number of granted or refunded units.
    number: u64,
    decided: Option<Decided>,
}

#[derive(Debug, PartialEq)]
struct Decided {
    is_allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after: Option<Duration>,
    reset_after: Duration,
}

fn decided<S: Strategy>(decision: &S::Decision<'_>) -> Option<Decided> {
    let core = S::core(decision);
    Some(Decided {
        is_allowed: core.is_allowed(),
        limit: core.limit(),
        remaining: core.remaining(),
        retry_after: core.retry_after(),
        reset_after: core.reset_after(),
    })
}

macro_rules! dispatch {
    ($($number:literal $type:ident $name:ident $limit:ident;)+) => {
        const STRATEGIES: u64 = [$($number),+].len() as u64;

        impl Call {
            pub(crate) async fn on_redis(self, rl: &RateLimiter, limits: &[Limits; 2]) -> Told {
                let (redis, limits) = (rl.redis(), &limits[self.limit]);
                match self.strategy + 1 {
                    $($number => self.ask_redis(redis.$name(), &limits.$name).await,)+
                    _ => unreachable!("no such strategy"),
                }
            }

            pub(crate) fn on_local(self, rl: &RateLimiter, limits: &[Limits; 2]) -> Told {
                let (local, limits) = (rl.local(), &limits[self.limit]);
                match self.strategy + 1 {
                    $($number => self.ask_local(local.$name(), &limits.$name),)+
                    _ => unreachable!("no such strategy"),
                }
            }
        }
    };
}
for_each_strategy! { [dispatch] }

impl Call {
    /// Half of the calls repeat the previous one, as in production, where many callers share a limit.
    pub(crate) fn random(random: &mut Random, last: Option<Self>) -> Self {
        if let Some(last) = last.filter(|_| random.once_in(2)) {
            return last;
        }
        let verb = match random.below(14) {
            0 => Verb::Peek,
            1 => Verb::UpTo,
            2 => Verb::Reserve,
            3 => Verb::RefundUnits,
            4 => Verb::Reset,
            5 => Verb::Postpaid,
            6 => Verb::Debit,
            _ => Verb::Take,
        };
        Self {
            strategy: random.below(STRATEGIES),
            verb,
            name: random.pick(&NAMES),
            limit: random.below(2) as usize,
            cost: random.pick(&[0, 1, 1, 1, 2, 3, 7, 10, 25]),
        }
    }

    async fn ask_redis<S: Wire>(self, limiter: &redis::RedisLimiter<S>, limit: &S::Limit) -> Told {
        let name = &key(self.name);
        match self.verb {
            Verb::Take => told(0, decided::<S>(&limiter.take(name, limit, self.cost).await.unwrap())),
            Verb::Peek => told(0, decided::<S>(&limiter.peek(name, limit, self.cost).await.unwrap())),
            Verb::UpTo => {
                let granted = limiter.take_up_to(name, limit, self.cost).await.unwrap();
                told(granted.units, decided::<S>(&granted.decision))
            }
            Verb::Reserve => {
                let reserved = limiter.take_with_receipt(name, limit, self.cost).await.unwrap();
                told(reserved.receipt.map_or(0, |receipt| receipt.units()), decided::<S>(&reserved.decision))
            }
            Verb::Postpaid => {
                told(0, decided::<S>(&limiter.take_postpaid(name, limit, self.cost).await.unwrap()))
            }
            Verb::Debit => told(0, decided::<S>(&limiter.debit(name, limit, self.cost).await.unwrap())),
            Verb::RefundUnits => told(limiter.refund_units(name, limit, self.cost).await.unwrap(), None),
            Verb::Reset => told(u64::from(limiter.reset(name).await.is_err()), None),
        }
    }

    fn ask_local<S: Strategy>(self, limiter: &local::LocalLimiter<S>, limit: &S::Limit) -> Told {
        match self.verb {
            Verb::Take => told(0, decided::<S>(&limiter.take(self.name, limit, self.cost))),
            Verb::Peek => told(0, decided::<S>(&limiter.peek(self.name, limit, self.cost))),
            Verb::UpTo => {
                let granted = limiter.take_up_to(self.name, limit, self.cost);
                told(granted.units, decided::<S>(&granted.decision))
            }
            Verb::Reserve => {
                let reserved = limiter.take_with_receipt(self.name, limit, self.cost);
                told(reserved.receipt.map_or(0, |receipt| receipt.units()), decided::<S>(&reserved.decision))
            }
            Verb::Postpaid => told(0, decided::<S>(&limiter.take_postpaid(self.name, limit, self.cost))),
            Verb::Debit => told(0, decided::<S>(&limiter.debit(self.name, limit, self.cost))),
            Verb::RefundUnits => told(limiter.refund_units(self.name, limit, self.cost), None),
            // The result of a reset is ignored: providers differ in whether an expired state still exists.
            Verb::Reset => {
                limiter.reset(self.name);
                told(0, None)
            }
        }
    }
}

fn told(number: u64, decided: Option<Decided>) -> Told {
    Told { number, decided }
}
