//! Documents: reads YAML, and other formats such as JSON, and reports all problems of a document at once.
//!
//! A document is read into a tree first. Deserializing a value from the tree continues after a problem, with
//! a placeholder instead of the value that cannot be read:
//!
//! - A value of the wrong type, or an unknown field, is recorded, and reading continues.
//! - A missing field, or a text that its type refuses, ends the attempt. The next attempt puts a placeholder
//!   there. Each rule is read separately, so that an attempt is usually short. All attempts together read a
//!   bounded number of values.

mod any;
mod error;
mod placeholder;
mod scalar;
mod tree;
mod value;
mod variant;
mod yaml;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::compile::compile_partly;
use super::definition::Rules;
use super::problem::{FieldPath, InvalidRules, Problems, RuleProblem};
use super::set::RuleSet;
use error::{DeserializeError, Location, LocationStep, MISSING};
use placeholder::PlaceholderDeserializer;
use tree::{Format, MappingEntry, Node, NodeRef, Tree};
use value::{NodeDeserializer, ReadContext, too_many_values};
use yaml::MAX_VALUES;

/// The largest document: enough for fifty thousand rules, and small enough to read at once.
pub(super) const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The most attempts to read one value. Each attempt but the last finds one problem.
const MAX_ATTEMPTS: usize = 100;

/// The fields of a document with rules.
const FIELDS: [&str; 5] = ["units", "rules", "overrides", "allow", "block"];

/// A document in YAML or another format, which reports all of its problems when it is read.
///
/// `Document` implements `Deserialize`, so that it can be made of JSON. Such a document has no lines.
///
/// ```
/// use trypema::rules::Document;
///
/// let document: Document<'_> = serde_json::from_str(r#"{
///     "rules": [{"id": "search", "scope": "everybody", "strategy": {"fixed_window": {"limit": 0, "window": 60}}}]
/// }"#)?;
/// let invalid = document.rule_set().unwrap_err();
/// let fields: Vec<String> = invalid.problems().iter().map(|problem| problem.field().to_string()).collect();
/// assert_eq!(fields, [
///     "rules[0].scope",
///     "rules[0].strategy.fixed_window.limit",
///     "rules[0].strategy.fixed_window.window",
/// ]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub struct Document<'a> {
    tree: Tree<'a>,
    /// Problems after which parsing continued.
    problems: Problems,
}

/// A value that was read from a [`Document`], and its problems.
#[derive(Debug)]
#[non_exhaustive]
pub struct Parsed<T> {
    /// The value. If there are problems, it contains placeholders; `None` if no placeholder fits.
    pub value: Option<T>,
    /// The problems, if there are any.
    pub invalid: Option<InvalidRules>,
}

impl<'a> Document<'a> {
    /// Parses YAML of at most 16 MiB.
    ///
    /// # Errors
    ///
    /// The text is not YAML, or exceeds a bound, such as that of nested values.
    pub fn from_yaml(text: &'a str) -> Result<Self, InvalidRules> {
        refuse_large(text.len())?;
        let parsed = yaml::parse(text).map_err(|problems| problems.into_error(None))?;
        Ok(Self { tree: parsed.tree, problems: parsed.problems })
    }

    /// Whether the document contains nothing, or nothing but comments.
    pub fn is_empty(&self) -> bool {
        self.root().is_none()
    }

    /// Returns the line of a field, given as the names on its path. Returns `None` if the document has no
    /// such field, or no lines.
    pub fn line_of<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Option<u64> {
        let field = names.into_iter().fold(FieldPath::default(), |field, name| field.then(name));
        self.tree.line_of(&field).filter(|_| self.tree.has(&field))
    }

    /// Reads a value of any type, and reports all problems.
    pub fn read<T: DeserializeOwned>(&self) -> Parsed<T> {
        let mut reader = Reader::new(self);
        let value = match self.root() {
            Some((item, _)) => reader.value(item, Location::root(item.line)),
            None => {
                let line = self.tree.first_line();
                reader.problems.push(RuleProblem::new(FieldPath::default(), "empty").in_line(line));
                None
            }
        };
        let problems = self.sorted(reader.problems());
        Parsed { value, invalid: (!problems.is_empty()).then(|| problems.into_error(None)) }
    }

    /// Reads rules without validating them: a limit of 0, for example, is accepted.
    ///
    /// # Errors
    ///
    /// All problems with the structure of the document.
    pub fn rules(&self) -> Result<Rules, InvalidRules> {
        let (rules, problems, _) = self.rules_with_problems();
        self.sorted(problems).or(rules)
    }

    /// Reads and compiles rules.
    ///
    /// # Errors
    ///
    /// All problems of the document and of the rules.
    pub fn rule_set(&self) -> Result<RuleSet, InvalidRules> {
        let (rules, mut problems, is_whole) = self.rules_with_problems();
        let set = if is_whole && problems.is_complete() {
            let replaced: Vec<&FieldPath> = problems.listed().iter().map(RuleProblem::field).collect();
            let (set, more) = compile_partly(&rules, &replaced);
            problems.append(more);
            set
        } else {
            // The compiler would report the consequences of rules that were not read.
            RuleSet::default()
        };
        self.sorted(problems).or(set)
    }

    /// Returns the rules, their problems, and whether all rules were read.
    fn rules_with_problems(&self) -> (Rules, Problems, bool) {
        let mut reader = Reader::new(self);
        let rules = reader.rules();
        let is_whole = !reader.is_ended;
        (rules, reader.problems(), is_whole)
    }

    /// Returns the outermost value, unless it is null.
    fn root(&self) -> Option<(NodeRef, &Node<'a>)> {
        let item = self.tree.root?;
        let node = self.tree.nodes.get(item.node)?;
        (!node.is_null()).then_some((item, node))
    }

    /// Adds lines and rules to problems, and sorts them in the order of the document.
    fn sorted(&self, mut problems: Problems) -> Problems {
        for problem in problems.listed_mut() {
            problem.line = problem.line.or_else(|| self.tree.line_of(&problem.field));
            if problem.rule.is_none() {
                problem.rule = self.tree.rule_of(&problem.field);
            }
        }
        problems.listed_mut().sort_by_cached_key(|problem| self.tree.position_of(&problem.field));
        problems
    }
}

/// Refuses a document that is too large.
pub(super) fn refuse_large(bytes: usize) -> Result<(), InvalidRules> {
    let mut problems = Problems::default();
    if bytes as u64 > MAX_BYTES {
        problems.push(RuleProblem::new(
            FieldPath::default(),
            format!("too large: need at most {MAX_BYTES} bytes"),
        ));
    }
    problems.or(())
}

/// Reads values of a document and collects their problems.
struct Reader<'d> {
    document: &'d Document<'d>,
    problems: Problems,
    /// The number of values read so far.
    count: usize,
    /// Whether a bound was exceeded, so that nothing more is read.
    is_ended: bool,
}

impl<'d> Reader<'d> {
    fn new(document: &'d Document<'_>) -> Self {
        Self { document, problems: Problems::default(), count: 0, is_ended: false }
    }

    /// Returns the problems of the document and those of its values.
    fn problems(self) -> Problems {
        let mut problems = self.document.problems.clone();
        // A value that the parser left out may be the only reason why something is missing.
        let mut others = self.problems;
        others.retain(|problem| {
            let is_around = |known: &RuleProblem| problem.field.is_within(&known.field);
            problem.reason != MISSING || !problems.listed().iter().any(is_around)
        });
        problems.append(others);
        problems
    }

    /// Reads one value, with placeholders where it cannot be read.
    fn value<T: DeserializeOwned>(&mut self, item: NodeRef, location: Location<'_>) -> Option<T> {
        let tree = &self.document.tree;
        let node = tree.nodes.get(item.node).filter(|_| !self.is_ended)?;
        let (mut placeholders, mut skipped) = (BTreeSet::new(), BTreeSet::new());
        self.count += 1;
        loop {
            if self.count > MAX_VALUES {
                self.problems.push(too_many_values().at(&location).into_problem());
                self.is_ended = true;
                return None;
            }
            let count = Cell::new(self.count);
            let problems = RefCell::default();
            let context =
                ReadContext { tree, count, problems, placeholders: &placeholders, skipped: &skipped };
            let read = if placeholders.contains(&location.field()) {
                T::deserialize(PlaceholderDeserializer)
            } else {
                T::deserialize(NodeDeserializer::new(node, location, &context))
            };
            let found = context.problems.into_inner();
            // Failed attempts count as well: they bound the work for a document with many problems.
            self.count = context.count.get();
            let error = match read {
                Ok(value) => {
                    self.problems.append(found);
                    return Some(value);
                }
                Err(error) => error,
            };
            let is_fatal = error.is_fatal;
            let replaced = if error.is_in_name { &mut skipped } else { &mut placeholders };
            let problem = error.into_problem();
            let field = problem.field.clone();
            let mut is_new = replaced.insert(field.clone());
            if is_new {
                self.problems.push(problem);
            }
            // The type refuses the placeholder, too: replace the value around it.
            let mut around = field.parent();
            while let Some(field) = around.filter(|_| !is_new) {
                around = field.parent();
                is_new = placeholders.insert(field);
            }
            if is_fatal || !is_new || placeholders.len() + skipped.len() > MAX_ATTEMPTS {
                self.problems.append(found);
                self.is_ended |= is_fatal;
                return None;
            }
        }
    }

    fn rules(&mut self) -> Rules {
        let document = self.document;
        let mut rules = Rules::default();
        let Some((root, node)) = document.root() else {
            let reason = "empty: write `rules: []` for no rules";
            let line = document.tree.first_line();
            self.problems.push(RuleProblem::new(FieldPath::default(), reason).in_line(line));
            return rules;
        };
        let location = Location::root(root.line);
        let Node::Mapping(entries) = node else {
            self.problems.push(DeserializeError::need("a mapping", node).at(&location).into_problem());
            return rules;
        };
        for MappingEntry { name, item } in entries {
            let location = location.inside(LocationStep::Name(name), item.line);
            match &**name {
                "units" => rules.units = self.value(*item, location).unwrap_or_default(),
                "rules" => rules.rules = self.elements(*item, location),
                "overrides" => rules.overrides = self.elements(*item, location),
                "allow" => rules.allow = self.value(*item, location).unwrap_or_default(),
                "block" => rules.block = self.value(*item, location).unwrap_or_default(),
                _ => self.problems.push(DeserializeError::unknown(&FIELDS).at(&location).into_problem()),
            }
        }
        let is_required = document.tree.format == Format::Yaml;
        if is_required && !document.tree.has(&FieldPath::of("rules")) {
            let problem = RuleProblem::new(FieldPath::of("rules"), "missing: write `rules: []` for no rules");
            self.problems.push(problem.in_line(root.line));
        }
        rules
    }

    /// Reads the elements of a list, each separately.
    fn elements<T: DeserializeOwned>(&mut self, item: NodeRef, location: Location<'_>) -> Vec<T> {
        let node = self.document.tree.nodes.get(item.node);
        let Some(Node::List(items)) = node else {
            if let Some(node) = node {
                self.problems.push(DeserializeError::need("a list", node).at(&location).into_problem());
            }
            return Vec::new();
        };
        let mut elements = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let location = location.inside(LocationStep::Index(index), item.line);
            // An element that cannot be read has a placeholder, so that the indexes of the others stay.
            let element =
                self.value(*item, location).or_else(|| T::deserialize(PlaceholderDeserializer).ok());
            // Nothing compiles rules with more problems than are listed, so nothing needs them.
            if self.problems.is_complete() {
                elements.extend(element);
            }
            if self.is_ended {
                break;
            }
        }
        elements
    }
}
