//! The numbers of the suppressed strategy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{StrategyNumbers, WindowNumbers};
use crate::rules::compile::Compiler;
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::strategy::SuppressedLimit;
use crate::units::HardLimitFactor;

/// The numbers of the suppressed strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuppressedNumbers {
    /// The number of units in a window above which the strategy sheds load.
    pub limit: u64,
    /// The length of the window.
    pub window: Period,
    /// The resolution: requests within this time of an earlier one may be counted together with it. Defaults
    /// to 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Period>,
    /// The hard limit as a multiple of `limit`: above it every request is denied. Defaults to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_limit_factor: Option<f64>,
}

impl StrategyNumbers for SuppressedNumbers {
    type Limit = SuppressedLimit;

    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<SuppressedLimit> {
        let Self { limit, window, group, hard_limit_factor } = *self;
        let window = WindowNumbers { limit, window, group }.compile(compiler, field);
        let factor = hard_limit_factor.map_or(Ok(HardLimitFactor::default()), HardLimitFactor::try_from);
        let factor = compiler.made(factor.map_err(|error| ("hard_limit_factor", error.to_string())), field);
        Some(SuppressedLimit::above(window?, factor?))
    }
}
