//! Rules from a file, or the built-in ones.

use std::fmt;

use trypema::rules::{InvalidRules, RuleSet, RulesFile};

/// The rules of a server without configured rules.
const DEMONSTRATION: &str = include_str!("../demo.yaml");

/// A rules file, or the demonstration rules (`None`), which never change.
#[derive(Debug, Clone)]
pub(crate) struct FileRules(pub(crate) Option<RulesFile>);

/// Formats the name of the source.
impl fmt::Display for FileRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("the built-in rules"),
            Some(file) => write!(f, "{}", file.path().display()),
        }
    }
}

/// The reason for reading a file again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadTrigger {
    /// The poll interval has passed; the file may have changed.
    Poll,
    /// An operator requested a reload.
    Requested,
}

impl FileRules {
    /// Reads and compiles the rules.
    ///
    /// # Errors
    ///
    /// The rules are invalid; the error names the lines.
    pub(crate) fn read(&mut self) -> Result<RuleSet, InvalidRules> {
        match &mut self.0 {
            None => RuleSet::from_yaml(DEMONSTRATION, "the built-in rules"),
            Some(file) => file.read(),
        }
    }

    /// Reads the rules again. Returns `None` for a poll of a file that has not changed.
    pub(crate) fn read_for(&mut self, trigger: ReloadTrigger) -> Option<Result<RuleSet, InvalidRules>> {
        match trigger {
            ReloadTrigger::Poll => self.0.as_mut()?.poll(),
            ReloadTrigger::Requested => Some(self.read()),
        }
    }
}
