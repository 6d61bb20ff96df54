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

    /// Reads the rules again if the file has changed.
    pub(crate) fn poll(&mut self) -> Option<Result<RuleSet, InvalidRules>> {
        self.0.as_mut()?.poll()
    }
}
