//! The numbers of the sliding-window counter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StrategyNumbers;
use crate::rules::compile::Compiler;
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::strategy::SlidingWindowLimit;

/// The numbers of the sliding-window counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterNumbers {
    /// The most units in a window.
    pub limit: u64,
    /// The length of the window.
    pub window: Period,
}

impl StrategyNumbers for CounterNumbers {
    type Limit = SlidingWindowLimit;

    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<SlidingWindowLimit> {
        compiler.made_of_two((self.limit, self.window.0), field, SlidingWindowLimit::new)
    }
}
