//! The numbers of strategies, as rules have them, and how each becomes a limit.

mod absolute;
mod abuse;
mod concurrency;
mod fixed_window;
mod sliding_window;
mod suppressed;
mod token_bucket;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use absolute::WindowNumbers;
pub use abuse::{AbuseNumbers, TierNumbers, WhileBlocked};
pub use concurrency::ConcurrencyNumbers;
pub use fixed_window::{CalendarPeriod, FixedWindowNumbers};
pub use sliding_window::CounterNumbers;
pub use suppressed::SuppressedNumbers;
pub use token_bucket::{BucketLimit, BucketNumbers};

use super::compile::Compiler;
use super::problem::FieldPath;
use crate::error::TrypemaError;
use crate::strategy::{self, Limit, Strategy, for_each_strategy};

/// A strategy and its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// A strict sliding window: at most `limit` in any window.
    Absolute(WindowNumbers),
    /// A sliding window that sheds load gradually: about `limit` per window, and at most `hard_limit_factor`
    /// times that.
    Suppressed(SuppressedNumbers),
    /// A token bucket: a burst, then a steady rate.
    TokenBucket(BucketNumbers),
    /// A sliding-window counter: about `limit` in any window, estimated from two counters.
    SlidingWindow(CounterNumbers),
    /// A fixed window: at most `limit` in each window, which is aligned to the clock or to a calendar.
    FixedWindow(FixedWindowNumbers),
    /// Counts attempts, and blocks the key after too many of them.
    Abuse(AbuseNumbers),
    /// A number of units that requests may hold at the same time: at most `limit` requests in flight.
    Concurrency(ConcurrencyNumbers),
}

/// The numbers of one strategy.
trait StrategyNumbers {
    /// The limit of the strategy.
    type Limit: Into<Limit>;

    /// Returns the limit that the numbers describe. `field` is their location, for error messages.
    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<Self::Limit>;
}

macro_rules! numbers {
    ($($number:literal $type:ident $name:ident $limit:ident;)+) => {
        impl Numbers {
            /// Returns the limit that the numbers describe. `field` is their location, for error messages.
            pub(super) fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<Limit> {
                match self {
                    $(Self::$type(numbers) => {
                        numbers.compile(compiler, &field.then(stringify!($name))).map(Limit::from)
                    })+
                }
            }

            /// Returns the reason why a rule with this strategy cannot be postpaid, if it cannot.
            pub(super) fn against_postpaid(&self) -> Option<&'static str> {
                match self {
                    $(Self::$type(_) => strategy::$type::AGAINST_POSTPAID,)+
                }
            }
        }
    };
}
for_each_strategy! { [numbers] }

/// The name of the invalid field, and the reason why it is invalid.
type InvalidNumber = (&'static str, String);

/// A valid window for trying a limit. A limit that is invalid with this window is invalid with any.
const SECOND: Duration = Duration::from_secs(1);

impl Compiler<'_> {
    fn made<T>(&mut self, made: Result<T, InvalidNumber>, field: &FieldPath) -> Option<T> {
        made.map_err(|(name, reason)| self.refuse(&field.then(name), reason)).ok()
    }

    /// Makes a limit from a number of units and a length of time. Each is first tried alone, together with a valid
    /// second one, so that the problems of both are reported.
    fn made_of_two<T>(
        &mut self,
        (limit, window): (u64, Duration),
        field: &FieldPath,
        make: impl Fn(u64, Duration) -> Result<T, TrypemaError>,
    ) -> Option<T> {
        let limit_alone = self.made(make(limit, SECOND).map_err(about), field);
        let window_alone = self.made(make(1, window).map_err(about), field);
        limit_alone.and(window_alone)?;
        self.made(make(limit, window).map_err(about), field)
    }
}

/// Adds the name of the field that an error is about.
fn about(error: TrypemaError) -> InvalidNumber {
    let name = match error {
        TrypemaError::InvalidWindow { .. } => "window",
        TrypemaError::InvalidThreshold { .. } => "threshold",
        TrypemaError::InvalidHold { .. } => "hold",
        _ => "limit",
    };
    (name, error.to_string())
}
