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

/// Generates one test per model, which calls `law` with its type.
macro_rules! for_every_strategy {
    ($law:ident) => {
        trypema_testkit::for_each_model! { [super::for_every_strategy] $law }
    };
    ($law:ident $($name:ident $model:ty;)+) => {
        mod $law {
            $(#[test]
            fn $name() {
                super::$law::<$model>();
            })+
        }
    };
}
pub(crate) use for_every_strategy;
