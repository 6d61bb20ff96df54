//! Every strategy, each with a limit of the same size.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::time::Duration;

use trypema::RateLimiter;
use trypema::redis::RedisLimiter;
use trypema::strategy::{Leasable, Strategy, for_each_strategy};
use trypema_testkit::subject::Modelled;

/// An action on one strategy.
pub(crate) trait Visit {
    fn visit<S: Leasable + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit);
}

macro_rules! limits {
    ($($number:literal $type:ident $name:ident $limit:ident;)+) => {
        /// One limit of each strategy.
        pub(crate) struct Limits {
            $(pub(crate) $name: <trypema::strategy::$type as Strategy>::Limit,)+
        }

        impl Limits {
            /// Limits that admit `capacity` units per `window`.
            pub(crate) fn of(capacity: u64, window: Duration) -> Self {
                Self { $($name: trypema::strategy::$type::sized(capacity, window).unwrap(),)+ }
            }
        }

        /// Calls `visitor` with every strategy.
        pub(crate) fn each(rl: &RateLimiter, limits: &Limits, visitor: &mut impl Visit) {
            $(visitor.visit(rl.redis().limiter::<trypema::strategy::$type>(), &limits.$name);)+
        }
    };
}
for_each_strategy! { [limits] }
