//! The mode of a request, which every front end accepts and metrics count by.

/// How a request affects counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Asks all rules that apply, and spends on all of them if all let the request pass.
    #[default]
    Check,
    /// Asks without spending; abuse rules are only asked whether they block.
    Look,
    /// Counts what has happened on every rule that applies, whatever each says.
    Record,
}
