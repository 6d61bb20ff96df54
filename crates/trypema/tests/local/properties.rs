//! Property tests: equality with the slow models, and laws that need no model. The number of traces is
//! bounded; `cargo xtask soak` runs the same traces by the million.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod bounds;
mod denials;
mod differential;
mod forgetting;
mod leases;
mod postpaid;
mod receipts;

/// Generates one test per strategy, which calls `law` with the type of its model.
macro_rules! for_every_strategy {
    ($law:ident) => {
        for_every_strategy!($law: absolute AbsoluteModel, suppressed SuppressedModel, token_bucket TokenBucketModel,
            sliding_window SlidingWindowModel, fixed_window FixedWindowModel, calendar_window CalendarModel,
            abuse AbuseModel, concurrency ConcurrencyModel);
    };
    ($law:ident: $($name:ident $model:ident),+) => {
        mod $law {
            $(#[test]
            fn $name() {
                super::$law::<trypema_testkit::model::$model>();
            })+
        }
    };
}
pub(crate) use for_every_strategy;
