//! The numbers of the absolute strategy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InvalidNumber, StrategyNumbers};
use crate::rules::compile::Compiler;
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::strategy::AbsoluteLimit;
use crate::units::RateGroupSizeMs;

/// The numbers of the absolute strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowNumbers {
    /// The most units in a window.
    pub limit: u64,
    /// The length of the window.
    pub window: Period,
    /// The resolution: requests within this time of an earlier one may be counted together with it. Defaults
    /// to 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Period>,
}

impl StrategyNumbers for WindowNumbers {
    type Limit = AbsoluteLimit;

    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<AbsoluteLimit> {
        let limit = compiler.made_of_two((self.limit, self.window.0), field, AbsoluteLimit::per_window);
        match self.group {
            Some(given) => {
                let group = compiler.made(group_size(given), field);
                Some(limit?.grouped(group?))
            }
            None => limit,
        }
    }
}

fn group_size(Period(group): Period) -> Result<RateGroupSizeMs, InvalidNumber> {
    if group.subsec_nanos() % 1_000_000 != 0 {
        return Err(("group", "a group is a whole number of milliseconds".to_owned()));
    }
    let group_ms = u64::try_from(group.as_millis()).unwrap_or(u64::MAX);
    RateGroupSizeMs::try_from(group_ms).map_err(|error| ("group", error.to_string()))
}
