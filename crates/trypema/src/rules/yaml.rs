//! Reads rules from YAML, and reports the line of every problem.
//!
//! A file contains one document: a mapping with the key `rules`, which may be an empty list. Aliases are
//! supported, and bounded: an aliased value counts each time it is read. Merge keys, tags and duplicate
//! fields are refused.

mod fault;
mod parse;
mod scalar;
mod tree;
mod value;
mod variant;

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use super::definition::Rules;
use super::problem::{Field, InvalidRules, Problem};
use super::set::RuleSet;
use fault::Fault;
use tree::Tree;
use value::Value;

/// The largest file: enough for fifty thousand rules, and small enough to read at once.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

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
    /// assert_eq!(error.problems()[0].line(), Some(3));
    /// # Ok::<(), trypema::rules::InvalidRules>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first problem, if the text is not YAML or does not have the structure of rules.
    pub fn from_yaml(text: &str) -> Result<Self, InvalidRules> {
        read(text).map(|written| written.rules).map_err(|problem| only(problem, None))
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
    /// The first problem, if the text is not YAML or does not have the structure of rules; otherwise all
    /// problems of the rules.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, InvalidRules> {
        let Written { rules, tree } = read(text).map_err(|problem| only(problem, Some(file)))?;
        Self::compile(&rules).map_err(|mut invalid| {
            invalid.file = Some(file.to_owned());
            for problem in &mut invalid.problems {
                problem.line = Some(tree.line_of(&problem.field));
            }
            invalid
        })
    }

    /// Reads and compiles a file of at most 16 MiB.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or [`from_yaml`](Self::from_yaml) fails.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, InvalidRules> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = text_of(path).map_err(|problem| only(problem, Some(&file)))?;
        Self::from_yaml(&text, &file)
    }
}

/// Creates a problem at a line.
fn in_line(line: u64, field: Field, reason: impl Into<String>) -> Problem {
    Problem { line: Some(line), ..Problem::new(field, reason) }
}

fn only(problem: Problem, file: Option<&str>) -> InvalidRules {
    InvalidRules { file: file.map(str::to_owned), problems: vec![problem], untold: 0 }
}

fn text_of(path: &Path) -> Result<String, Problem> {
    let unreadable = |error| Problem::new(Field::default(), format!("cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than allowed shows that the file is too large.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    refuse_large(bytes.len())?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count() as u64;
        in_line(line, Field::default(), "not valid UTF-8")
    })
}

fn refuse_large(bytes: usize) -> Result<(), Problem> {
    if bytes as u64 > MAX_FILE_BYTES {
        let reason = format!("too large: need at most {MAX_FILE_BYTES} bytes");
        return Err(Problem::new(Field::default(), reason));
    }
    Ok(())
}

/// Parsed rules, and the tree with the line of each value.
struct Written<'a> {
    rules: Rules,
    tree: Tree<'a>,
}

fn read(text: &str) -> Result<Written<'_>, Problem> {
    refuse_large(text.len())?;
    let tree = parse::parse(text)?;
    let rules =
        interpret(&tree).map_err(|problem| Problem { rule: tree.rule_of(&problem.field), ..problem })?;
    Ok(Written { rules, tree })
}

fn interpret(tree: &Tree<'_>) -> Result<Rules, Problem> {
    let count = Cell::new(0);
    let root = Value::root(tree, &count).filter(|root| !root.node().is_null());
    let Some(root) = root else {
        return Err(in_line(1, Field::default(), "empty: write `rules: []` for no rules"));
    };
    let rules = Rules::deserialize(root).map_err(Fault::into_problem)?;
    if !tree.has("rules") {
        let line = tree.line_of(&Field::default());
        return Err(in_line(line, Field::of("rules"), "missing: write `rules: []` for no rules"));
    }
    Ok(rules)
}
