//! Deserialization errors with their locations.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use super::tree::Node;
use crate::rules::problem::{FieldPath, RuleProblem};

/// The most characters of an invalid text that an error repeats.
const SHOWN_CHARACTERS: usize = 40;

/// The reason of a problem with a field that is required and not there.
pub(super) const MISSING: &str = "missing";

/// A value that does not have the required type. The location is added while the error propagates outwards.
#[derive(Debug)]
pub(super) struct DeserializeError {
    reason: String,
    /// The name of the missing field, if that is the problem.
    missing: Option<&'static str>,
    location: Option<ErrorLocation>,
    /// Whether reading has to stop here.
    pub(super) is_fatal: bool,
    /// Whether the name of a field is the problem, and not its value.
    pub(super) is_in_name: bool,
}

#[derive(Debug)]
struct ErrorLocation {
    field: FieldPath,
    line: u64,
}

/// The path to a value, linked from the value to the root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Location<'p> {
    pub(super) around: Option<&'p Location<'p>>,
    pub(super) step: LocationStep<'p>,
    pub(super) line: u64,
    /// The number of steps from the root.
    pub(super) depth: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum LocationStep<'p> {
    Whole,
    Name(&'p str),
    Index(usize),
}

impl<'p> Location<'p> {
    /// The outermost value of a document without lines.
    pub(super) const ROOT: Self = Self::root(0);

    pub(super) const fn root(line: u64) -> Self {
        Self { around: None, step: LocationStep::Whole, line, depth: 0 }
    }

    /// Returns the location of a field or element of this value.
    pub(super) fn inside(&'p self, step: LocationStep<'p>, line: u64) -> Self {
        Self { around: Some(self), step, line, depth: self.depth + 1 }
    }

    pub(super) fn field(&self) -> FieldPath {
        let around = self.around.map_or_else(FieldPath::default, Location::field);
        match self.step {
            LocationStep::Whole => around,
            LocationStep::Name(name) => around.then(name),
            LocationStep::Index(index) => around.at(index),
        }
    }
}

impl DeserializeError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), missing: None, location: None, is_fatal: false, is_in_name: false }
    }

    /// Creates an error after which nothing more is read.
    pub(super) fn fatal(reason: impl Into<String>) -> Self {
        Self { is_fatal: true, ..Self::new(reason) }
    }

    /// Creates an error: `what` is required, and `written` is something else.
    pub(super) fn need(what: impl fmt::Display, written: &Node<'_>) -> Self {
        Self::new(format!("need {what}, not {}", shown(written)))
    }

    /// Creates the error of a field that is none of `fields`.
    pub(super) fn unknown(fields: &[&str]) -> Self {
        Self::new(format!("unknown field: need one of {}", fields.join(", ")))
    }

    pub(super) fn in_name(self) -> Self {
        Self { is_in_name: true, ..self }
    }

    /// Adds the location, unless the error already has one further in.
    pub(super) fn at(mut self, location: &Location<'_>) -> Self {
        if self.location.is_none() {
            let around = location.field();
            let field = self.missing.map(|name| around.then(name)).unwrap_or(around);
            self.location = Some(ErrorLocation { field, line: location.line });
        }
        self
    }

    pub(super) fn into_problem(self) -> RuleProblem {
        let (field, line) = self
            .location
            .map_or_else(|| (FieldPath::default(), 1), |location| (location.field, location.line));
        RuleProblem::new(field, self.reason).in_line(line)
    }
}

/// Describes a value in a few words.
fn shown(written: &Node<'_>) -> String {
    let scalar = match written {
        Node::List(_) => return "a list".to_owned(),
        Node::Mapping(entries) if entries.is_empty() => return "an empty mapping".to_owned(),
        Node::Mapping(_) => return "a mapping".to_owned(),
        Node::Scalar(scalar) => scalar,
    };
    if scalar.is_null() {
        return "nothing".to_owned();
    }
    let text: String = scalar.text.chars().take(SHOWN_CHARACTERS).collect();
    match text.parse::<f64>() {
        Ok(_) if scalar.is_plain => text,
        Ok(_) => format!("the text {text:?}"),
        Err(_) => format!("{text:?}"),
    }
}

impl fmt::Display for DeserializeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for DeserializeError {}

impl Error for DeserializeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let given = match unexpected {
            Unexpected::Unit => "nothing".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a mapping".to_owned(),
            Unexpected::Bool(value) => value.to_string(),
            Unexpected::Signed(value) => value.to_string(),
            Unexpected::Float(value) => format!("{value:?}"),
            other => other.to_string(),
        };
        Self::new(format!("need {expected}, not {given}"))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::unknown(expected)
    }

    fn missing_field(name: &'static str) -> Self {
        Self { missing: Some(name), ..Self::new(MISSING) }
    }
}
