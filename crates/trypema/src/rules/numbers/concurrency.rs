//! The numbers of the concurrency strategy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StrategyNumbers;
use crate::rules::compile::Compiler;
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::strategy::ConcurrencyLimit;

/// The numbers of the concurrency strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyNumbers {
    /// The most units that may be held at the same time.
    pub limit: u64,
    /// The time after which a holder loses its units unless it renews them: at most an hour. Holders that died
    /// keep their units this long.
    pub hold: Period,
}

impl StrategyNumbers for ConcurrencyNumbers {
    type Limit = ConcurrencyLimit;

    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<ConcurrencyLimit> {
        compiler.made_of_two((self.limit, self.hold.0), field, ConcurrencyLimit::new)
    }
}
