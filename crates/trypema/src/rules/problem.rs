//! Problems with rules, and their locations.

use std::fmt;

use thiserror::Error;

/// The error for rules that cannot be used, with a list of all problems.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct InvalidRules {
    /// The file that the rules are from, if any.
    pub(super) file: Option<String>,
    pub(super) problems: Vec<RuleProblem>,
    /// The number of problems that are not listed.
    pub(super) more: usize,
}

impl InvalidRules {
    /// Returns the problems, at most 100. Those of a file or a [`Document`](super::Document) are in its
    /// order.
    pub fn problems(&self) -> &[RuleProblem] {
        &self.problems
    }

    /// Returns the number of problems that [`problems`](Self::problems) leaves out.
    pub fn more(&self) -> usize {
        self.more
    }
}

impl fmt::Display for InvalidRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            if let Some(file) = &self.file {
                write!(f, "{file}:")?;
            }
            if let Some(line) = problem.line {
                write!(f, "{line}:")?;
            }
            if self.file.is_some() || problem.line.is_some() {
                f.write_str(" ")?;
            }
            write!(f, "{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            1 => f.write_str("\nand 1 more problem"),
            more => write!(f, "\nand {more} more problems"),
        }
    }
}

/// The most problems that an error lists: nobody corrects more at once. Any further ones are only counted.
const MAX_PROBLEMS: usize = 100;

/// A bounded list of problems.
#[derive(Debug, Clone, Default)]
pub(super) struct Problems {
    listed: Vec<RuleProblem>,
    /// The number of problems, including those that are not listed.
    found: usize,
}

impl Problems {
    pub(super) fn push(&mut self, problem: RuleProblem) {
        self.push_with(|| problem);
    }

    /// Adds the problem that `problem` returns, or only counts it if the list is full.
    pub(super) fn push_with(&mut self, problem: impl FnOnce() -> RuleProblem) {
        self.found += 1;
        if !self.is_full() {
            self.listed.push(problem());
        }
    }

    /// Counts a problem that is not listed.
    pub(super) fn count_unlisted(&mut self) {
        self.found += 1;
    }

    /// Whether no more problems are listed.
    pub(super) fn is_full(&self) -> bool {
        self.listed.len() >= MAX_PROBLEMS
    }

    pub(super) fn append(&mut self, others: Self) {
        let unlisted = others.found - others.listed.len();
        others.listed.into_iter().for_each(|problem| self.push(problem));
        self.found += unlisted;
    }

    /// Keeps only those of the listed problems that satisfy `is_kept`.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&RuleProblem) -> bool) {
        let before = self.listed.len();
        self.listed.retain(is_kept);
        self.found -= before - self.listed.len();
    }

    /// Returns the number of problems, including those that are not listed.
    pub(super) fn count(&self) -> usize {
        self.found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found == 0
    }

    pub(super) fn is_complete(&self) -> bool {
        self.found == self.listed.len()
    }

    pub(super) fn listed(&self) -> &[RuleProblem] {
        &self.listed
    }

    pub(super) fn listed_mut(&mut self) -> &mut [RuleProblem] {
        &mut self.listed
    }

    /// Returns `value` if there are no problems.
    pub(super) fn or<T>(self, value: T) -> Result<T, InvalidRules> {
        if self.is_empty() { Ok(value) } else { Err(self.into_error(None)) }
    }

    pub(super) fn into_error(self, file: Option<&str>) -> InvalidRules {
        let more = self.found - self.listed.len();
        InvalidRules { file: file.map(str::to_owned), problems: self.listed, more }
    }
}

/// One problem with a set of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProblem {
    pub(super) field: FieldPath,
    pub(super) rule: Option<String>,
    pub(super) reason: String,
    pub(super) line: Option<u64>,
}

impl RuleProblem {
    pub(super) fn new(field: FieldPath, reason: impl Into<String>) -> Self {
        Self { field, rule: None, reason: reason.into(), line: None }
    }

    /// Sets the line; 0 means that it is unknown.
    pub(super) fn in_line(self, line: u64) -> Self {
        Self { line: Some(line).filter(|line| *line > 0), ..self }
    }

    /// Returns the location of the problem, such as `rules[3].strategy.token_bucket.burst`.
    pub fn field(&self) -> &FieldPath {
        &self.field
    }

    /// Returns the id of the rule that has the problem, if any.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Returns what is wrong and what is allowed.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the line in the file, counted from 1.
    pub fn line(&self) -> Option<u64> {
        self.line
    }
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.steps.is_empty() {
            write!(f, "{}", self.field)?;
            if let Some(rule) = &self.rule {
                write!(f, " (rule {rule:?})")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.reason)
    }
}

/// The path to a field of the written rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FieldPath {
    pub(super) steps: Vec<PathStep>,
}

/// One step of the path to a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathStep {
    Name(String),
    Index(usize),
}

impl FieldPath {
    /// Returns the path to a top-level field.
    pub(super) fn of(name: &str) -> Self {
        Self::default().then(name)
    }

    /// Returns the path to a field of this one.
    pub(super) fn then(&self, name: &str) -> Self {
        self.step(PathStep::Name(name.to_owned()))
    }

    /// Returns the path to an element of this list.
    pub(super) fn at(&self, index: usize) -> Self {
        self.step(PathStep::Index(index))
    }

    /// Returns the path to the field around this one.
    pub(super) fn parent(&self) -> Option<Self> {
        let (_, around) = self.steps.split_last()?;
        Some(Self { steps: around.to_vec() })
    }

    /// Whether this path is `outer`, or leads to a field inside of `outer`.
    pub(super) fn is_within(&self, outer: &Self) -> bool {
        self.steps.starts_with(&outer.steps)
    }

    fn step(&self, step: PathStep) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Self { steps }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                PathStep::Index(at) => write!(f, "[{at}]")?,
                PathStep::Name(name) if index == 0 => write!(f, "{}", name.escape_debug())?,
                PathStep::Name(name) => write!(f, ".{}", name.escape_debug())?,
            }
        }
        Ok(())
    }
}
