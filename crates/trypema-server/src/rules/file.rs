//! Rules from a file, or those that are built in.

use trypema::rules::{InvalidRules, RuleSet, RulesFile};

/// The rules of a service that was given none.
const DEMONSTRATION: &str = include_str!("../demo.yaml");

/// Where rules are read: a file, or the demonstration rules, which never change.
#[derive(Debug, Clone)]
pub(crate) struct Source(pub(crate) Option<RulesFile>);

/// Why a file is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It may have changed.
    Poll,
    /// An operator asked for it.
    Asked,
}

impl Source {
    /// Reads and compiles the rules.
    ///
    /// # Errors
    ///
    /// What is wrong with them, and in which line.
    pub(crate) fn read(&mut self) -> Result<RuleSet, InvalidRules> {
        match &mut self.0 {
            None => RuleSet::from_yaml(DEMONSTRATION, "the built-in rules"),
            Some(file) => file.read(),
        }
    }

    /// Reads the rules again; `None` for a poll of a file that has not changed.
    pub(crate) fn read_for(&mut self, reason: Reason) -> Option<Result<RuleSet, InvalidRules>> {
        match reason {
            Reason::Poll => self.0.as_mut()?.poll(),
            Reason::Asked => Some(self.read()),
        }
    }
}
