//! Reads rules from YAML files, and reports the line of every problem.
//!
//! A file contains one document: a mapping with the key `rules`, which may be an empty list. Aliases are
//! supported, and bounded: an aliased value counts each time it is read. Merge keys, tags and duplicate
//! fields are refused.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::definition::Rules;
use super::document::{Document, MAX_BYTES, refuse_large};
use super::problem::{FieldPath, InvalidRules, Problems, RuleProblem};
use super::set::RuleSet;

impl Rules {
    /// Parses rules without validating them: a limit of 0, for example, is accepted.
    ///
    /// ```
    /// use trypema::rules::Rules;
    ///
    /// let rules = Rules::from_yaml("
    /// rules:
    ///   - id: search
    ///     scope: user
    ///     endpoints: [/search]
    ///     strategy:
    ///       token_bucket: { limit: 10, window: 1s }
    /// ")?;
    /// assert_eq!(rules.rules[0].id, "search");
    ///
    /// let error = Rules::from_yaml("rules:\n  - id: search\n    scope: everybody\n").unwrap_err();
    /// let problems: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
    /// assert_eq!(problems[0], r#"rules[0].strategy (rule "search"): missing"#);
    /// assert_eq!(error.problems()[1].line(), Some(3));
    /// # Ok::<(), trypema::rules::InvalidRules>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The text is not YAML, or does not have the structure of rules. The error contains all problems with
    /// the structure.
    pub fn from_yaml(text: &str) -> Result<Self, InvalidRules> {
        Document::from_yaml(text)?.rules()
    }
}

impl RuleSet {
    /// Parses and compiles rules. `file` is the name of the source, and is reported with the line of each
    /// problem.
    ///
    /// ```
    /// use trypema::rules::RuleSet;
    ///
    /// let text = "
    /// rules:
    ///   - id: search
    ///     scope: user
    ///     strategy:
    ///       fixed_window: { limit: 0, window: 1m }
    /// ";
    /// let error = RuleSet::from_yaml(text, "rules.yaml").unwrap_err();
    /// assert!(error.to_string().starts_with("rules.yaml:6: rules[0].strategy.fixed_window.limit"));
    /// ```
    ///
    /// # Errors
    ///
    /// All problems of the rules. If the text is not valid YAML, the problems up to the first syntax error.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, InvalidRules> {
        let set = Document::from_yaml(text).and_then(|document| document.rule_set());
        set.map_err(|invalid| InvalidRules { file: Some(file.to_owned()), ..invalid })
    }

    /// Reads and compiles a file of at most 16 MiB.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or [`from_yaml`](Self::from_yaml) fails.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, InvalidRules> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = text_of(path);
        let text = text.map_err(|invalid| InvalidRules { file: Some(file.clone()), ..invalid })?;
        Self::from_yaml(&text, &file)
    }
}

fn text_of(path: &Path) -> Result<String, InvalidRules> {
    let unreadable = |error| only(RuleProblem::new(FieldPath::default(), format!("cannot be read: {error}")));
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than allowed shows that the file is too large.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    refuse_large(bytes.len())?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count() as u64;
        only(RuleProblem::new(FieldPath::default(), "not valid UTF-8").in_line(line))
    })
}

fn only(problem: RuleProblem) -> InvalidRules {
    let mut problems = Problems::default();
    problems.push(problem);
    problems.into_error(None)
}
