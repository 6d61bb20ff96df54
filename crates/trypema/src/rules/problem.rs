//! Problems with rules, and their locations.

use std::fmt;

use thiserror::Error;

/// The error for rules that cannot be used, with a list of all problems.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct InvalidRules {
    /// The file that the rules are from, if any.
    pub(super) file: Option<String>,
    pub(super) problems: Vec<Problem>,
    /// The number of problems that are not list_match.
    pub(super) untold: usize,
}

impl InvalidRules {
    /// Returns the problems, in the order of the rules.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
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
        match self.untold {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// One problem with a set of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub(super) field: Field,
    pub(super) rule: Option<String>,
    pub(super) reason: String,
    pub(super) line: Option<u64>,
}

impl Problem {
    pub(super) fn new(field: Field, reason: impl Into<String>) -> Self {
        Self { field, rule: None, reason: reason.into(), line: None }
    }

    /// Returns the location of the problem, such as `rules[3].strategy.token_bucket.burst`.
    pub fn field(&self) -> &Field {
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

impl fmt::Display for Problem {
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Field {
    pub(super) steps: Vec<Step>,
}

/// One step of the path to a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Name(String),
    Index(usize),
}

impl Field {
    /// Returns the path to a top-level field.
    pub(super) fn of(name: &str) -> Self {
        Self::default().then(name)
    }

    /// Returns the path to a field of this one.
    pub(super) fn then(&self, name: &str) -> Self {
        self.step(Step::Name(name.to_owned()))
    }

    /// Returns the path to an element of this list.
    pub(super) fn at(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Self { steps }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                Step::Index(at) => write!(f, "[{at}]")?,
                Step::Name(name) if index == 0 => write!(f, "{}", name.escape_debug())?,
                Step::Name(name) => write!(f, ".{}", name.escape_debug())?,
            }
        }
        Ok(())
    }
}
