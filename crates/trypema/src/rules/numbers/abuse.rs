//! The numbers of the abuse strategy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SECOND, StrategyNumbers, about};
use crate::rules::compile::Compiler;
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::strategy::{AbuseLimit, AbuseTier};

/// The numbers of the abuse strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AbuseNumbers {
    /// The short window, with its block.
    pub temp: TierNumbers,
    /// The long window, with its block.
    pub long: TierNumbers,
    /// The effect of attempts during a block.
    #[serde(default)]
    pub while_blocked: WhileBlocked,
}

/// The effect of attempts during a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhileBlocked {
    /// They count but do not extend the block. Reaching the threshold of the other window starts that
    /// window's block.
    #[default]
    Count,
    /// They count, and reaching a threshold again extends the block.
    Lengthen,
    /// They do not count.
    Ignore,
}

/// A window of the abuse strategy, with its block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierNumbers {
    /// The length of the window.
    pub window: Period,
    /// The number of attempts in the window that starts a block. The attempt that reaches it is denied.
    pub threshold: u64,
    /// The length of the block.
    pub block: Period,
}

impl StrategyNumbers for AbuseNumbers {
    type Limit = AbuseLimit;

    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<AbuseLimit> {
        let temp = self.temp.compile(compiler, &field.then("temp"));
        let long = self.long.compile(compiler, &field.then("long"));
        let limit = AbuseLimit::new(temp?, long?);
        Some(match self.while_blocked {
            WhileBlocked::Count => limit,
            WhileBlocked::Lengthen => limit.lengthening_blocks(),
            WhileBlocked::Ignore => limit.ignoring_attempts_while_blocked(),
        })
    }
}

impl TierNumbers {
    /// Makes a tier from three numbers. Each number is first tried alone, together with valid values for the
    /// others, so that the problems of all three are reported.
    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<AbuseTier> {
        let TierNumbers { window, threshold, block } = self;
        let window_alone = compiler.made(AbuseTier::new(window.0, 1, SECOND).map_err(about), field);
        let threshold_alone = compiler.made(AbuseTier::new(SECOND, *threshold, SECOND).map_err(about), field);
        let block_alone = AbuseTier::new(SECOND, 1, block.0).map_err(|error| ("block", error.to_string()));
        let block_alone = compiler.made(block_alone, field);
        window_alone.and(threshold_alone).and(block_alone)?;
        compiler.made(AbuseTier::new(window.0, *threshold, block.0).map_err(about), field)
    }
}
