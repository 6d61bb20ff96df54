//! The mode of a request. Every front end accepts it, and metrics distinguish it.

/// The effect of a request on counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Checks all rules that apply, and spends the cost on each of them if all of them allow the request.
    #[default]
    Check,
    /// Checks without spending. An abuse rule only reports whether it blocks the key.
    Peek,
    /// Counts an event that has already happened on every rule that applies, regardless of each rule's
    /// decision.
    Record,
}

impl Mode {
    /// Returns the name that requests use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Record => "record",
        }
    }
}
