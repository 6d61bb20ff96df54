//! The numbers of the toy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StrategyNumbers;
use crate::rules::compile::Compiler;
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::strategy::ToyWindowLimit;

/// The numbers of the toy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToyNumbers {
    /// The most units in a window.
    pub limit: u64,
    /// The length of the window.
    pub window: Period,
}

impl StrategyNumbers for ToyNumbers {
    type Limit = ToyWindowLimit;

    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<ToyWindowLimit> {
        compiler.made_of_two((self.limit, self.window.0), field, ToyWindowLimit::new)
    }
}
