//! What the table of strategies makes: limits whose strategy is chosen at run time, and a value for each strategy.

use std::time::Duration;

use super::{Call, Limit, Strategy, for_each_strategy};
use crate::clock::Timestamp;

/// Runs `$body` with `$strategy` as the strategy type of `$limit`, and `$inner` as the limit of that
/// strategy.
#[cfg_attr(feature = "unstable-testkit", doc(hidden), macro_export)]
macro_rules! with_strategy {
    ($limit:expr, |$strategy:ident, $inner:ident| $body:expr) => {
        $crate::strategy::for_each_strategy! { [$crate::strategy::with_strategy] ($limit, $strategy, $inner, $body) }
    };
    (($limit:expr, $strategy:ident, $inner:ident, $body:expr)
     $($number:literal $type:ident $name:ident $limit_type:ident;)+) => {
        match $limit {
            $($crate::strategy::Limit::$type($inner) => {
                type $strategy = $crate::strategy::$type;
                $body
            })+
        }
    };
}
#[cfg(not(feature = "unstable-testkit"))]
pub(crate) use with_strategy;
#[cfg(feature = "unstable-testkit")]
pub use with_strategy;

impl Limit {
    /// Returns the strategy's name.
    pub fn strategy(&self) -> &'static str {
        with_strategy!(self, |S, _limit| S::NAME)
    }

    /// Returns the largest cost that is certain to be admitted on a fresh key. For a token bucket with
    /// several limits, this is the smallest capacity.
    pub fn quota(&self) -> u64 {
        let call = Call::new(Timestamp::default(), u64::MAX);
        with_strategy!(self, |S, limit| S::available(limit, &Default::default(), call))
    }

    /// Returns the period that [`Limit::quota`] refers to. For a token bucket, this is the refill time of the
    /// limit with the smallest capacity. For two tiers of attempts, it is the window of the tier with the
    /// lower threshold. For a calendar, it is the usual length of its windows: 31 days for months. For a
    /// concurrency limit, it is the longest time for which a holder keeps its units without a renewal.
    pub fn window(&self) -> Duration {
        with_strategy!(self, |_S, limit| limit.window())
    }

    /// Returns the limit if its units are held, see [`Strategy::IS_HELD`].
    #[cfg(feature = "rules")]
    pub(crate) fn held(&self) -> Option<&super::ConcurrencyLimit> {
        super::Concurrency::limit_of(self)
    }

    /// Whether its units are held, see [`Strategy::IS_HELD`].
    pub(crate) fn is_held(&self) -> bool {
        with_strategy!(self, |S, _limit| S::IS_HELD)
    }

    /// Whether it counts attempts, see [`Strategy::COUNTS_ATTEMPTS`].
    #[cfg(any(feature = "_redis", feature = "rules"))]
    pub(crate) fn counts_attempts(&self) -> bool {
        with_strategy!(self, |S, _limit| S::COUNTS_ATTEMPTS)
    }

    /// Whether it records admitted calls that another limit denies, see [`Strategy::COUNTS_DENIED_ELSEWHERE`].
    #[cfg(any(feature = "_redis", feature = "rules"))]
    pub(crate) fn counts_denied_elsewhere(&self) -> bool {
        with_strategy!(self, |S, _limit| S::COUNTS_DENIED_ELSEWHERE)
    }
}

/// The row of a strategy in the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub number: u8,
    pub name: &'static str,
}

/// A type of the table. Only these implement [`Strategy`].
pub trait Sealed: Sized + std::fmt::Debug {
    const ROW: Row;
}

#[cfg(feature = "_redis")]
use super::Leasable as OnEveryProvider;
#[cfg(not(feature = "_redis"))]
use super::Strategy as OnEveryProvider;

/// A strategy of the table, for code that finds the limit or the limiter of a strategy by its type.
pub trait Listed: OnEveryProvider {
    /// Returns the limit, if it belongs to this strategy.
    fn limit_of(limit: &Limit) -> Option<&Self::Limit>;

    /// Returns the value of this strategy.
    fn find<F: Family>(all: &PerStrategy<F>) -> &F::Of<Self>;
}

/// A type for each strategy, such as its limiter on one provider.
pub trait Family: std::fmt::Debug + 'static {
    /// The type for the strategy `S`.
    type Of<S: Listed>: std::fmt::Debug;
}

/// Makes the value of each strategy.
pub(crate) trait Make<F: Family> {
    fn make<S: Listed>(&self) -> F::Of<S>;
}

/// A family whose values have something in common, such as a number of keys.
pub trait InCommon: Family {
    type Common<'a>;

    fn common<S: Listed>(one: &Self::Of<S>) -> Self::Common<'_>;
}

macro_rules! list {
    ($($number:literal $type:ident $name:ident $limit:ident;)+) => {
        /// The number of strategies.
        pub(crate) const STRATEGIES: usize = [$($number),+].len();

        /// A value for each strategy.
        #[derive(Debug)]
        pub struct PerStrategy<F: Family> {
            $($name: F::Of<super::$type>,)+
        }

        impl<F: Family> PerStrategy<F> {
            pub(crate) fn new(maker: &impl Make<F>) -> Self {
                Self { $($name: maker.make::<super::$type>(),)+ }
            }

            /// Returns the value of the strategy `S`.
            #[inline(always)]
            pub(crate) fn get<S: Listed>(&self) -> &F::Of<S> {
                S::find(self)
            }
        }

        impl<F: InCommon> PerStrategy<F> {
            /// Returns what the values have in common.
            pub(crate) fn each(&self) -> [F::Common<'_>; STRATEGIES] {
                [$(F::common::<super::$type>(&self.$name)),+]
            }
        }

        $(
            impl Sealed for super::$type {
                const ROW: Row = Row { number: $number, name: stringify!($name) };
            }

            impl Listed for super::$type {
                #[inline]
                fn limit_of(limit: &Limit) -> Option<&super::$limit> {
                    match limit {
                        Limit::$type(limit) => Some(limit),
                        _ => None,
                    }
                }

                #[inline(always)]
                fn find<F: Family>(all: &PerStrategy<F>) -> &F::Of<Self> {
                    &all.$name
                }
            }

            impl From<super::$limit> for Limit {
                fn from(limit: super::$limit) -> Self {
                    Self::$type(limit)
                }
            }
        )+
    };
}
for_each_strategy! { [list] }
