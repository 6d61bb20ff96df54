//! A document as a tree that contains the line of every value. An alias refers to the original node and not
//! to a copy, so that a tree is never larger than its text.

use std::borrow::Cow;

use super::super::problem::{FieldPath, PathStep};
use super::scalar::Scalar;
use crate::rules::compile::MAX_ID_BYTES;

/// The values of a document.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// The outermost value; `None` for an empty text.
    pub(super) root: Option<NodeRef>,
    pub(super) format: Format,
}

/// The format that a tree was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Every value has a line. Plain text such as `5` is a number or a text, depending on the target type.
    Yaml,
    /// Values have no lines. A number is never a text.
    Typed,
}

/// The index of a node in its tree.
pub(super) type NodeId = usize;

/// A value.
#[derive(Debug)]
pub(super) enum Node<'a> {
    Scalar(Scalar<'a>),
    List(Vec<NodeRef>),
    Mapping(Vec<MappingEntry<'a>>),
}

/// An occurrence of a value: the value itself or an alias of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeRef {
    /// In a list, the line of the value or alias. In a mapping, the line of the field's name. 0 if the format
    /// has no lines.
    pub(super) line: u64,
    pub(super) node: NodeId,
}

/// A field of a mapping.
#[derive(Debug)]
pub(super) struct MappingEntry<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) item: NodeRef,
}

impl Node<'_> {
    /// Whether the value is null.
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(scalar) if scalar.is_null())
    }
}

impl<'a> Tree<'a> {
    /// Returns the first line; 0 if the format has no lines.
    pub(super) fn first_line(&self) -> u64 {
        u64::from(self.format == Format::Yaml)
    }

    /// Returns the line of a field, or that of the innermost existing field around it.
    pub(super) fn line_of(&self, field: &FieldPath) -> Option<u64> {
        self.path_to(field).last().map(|item| item.line).filter(|line| *line > 0)
    }

    /// Whether the document has this field.
    pub(super) fn has(&self, field: &FieldPath) -> bool {
        self.node_of(field).is_some()
    }

    /// Returns the indexes on the path to a field, as far as the field exists. Sorted by them, fields are in
    /// the order of the document.
    pub(super) fn position_of(&self, field: &FieldPath) -> Vec<usize> {
        let nodes = self.path_to(field).filter_map(|item| self.nodes.get(item.node));
        nodes.zip(&field.steps).map_while(|(node, step)| index_of(node, step)).collect()
    }

    /// Returns the id of the rule that contains a field, or whose override does.
    pub(super) fn rule_of(&self, field: &FieldPath) -> Option<String> {
        let [PathStep::Name(list), PathStep::Index(index), ..] = field.steps.as_slice() else { return None };
        let id = match list.as_str() {
            "rules" => "id",
            "overrides" => "rule",
            _ => return None,
        };
        match self.node_of(&FieldPath::of(list).at(*index).then(id))? {
            Node::Scalar(scalar) if !scalar.is_null() => {
                Some(scalar.text.chars().take(MAX_ID_BYTES).collect())
            }
            _ => None,
        }
    }

    fn node_of(&self, field: &FieldPath) -> Option<&Node<'a>> {
        // Index 0 is the root, which comes before the first step.
        let item = self.path_to(field).nth(field.steps.len())?;
        self.nodes.get(item.node)
    }

    /// Returns the values on the path to a field, as far as they exist.
    fn path_to(&self, field: &FieldPath) -> impl Iterator<Item = NodeRef> {
        let mut steps = field.steps.iter();
        std::iter::successors(self.root, move |item| self.step(self.nodes.get(item.node)?, steps.next()?))
    }

    fn step(&self, node: &Node<'a>, step: &PathStep) -> Option<NodeRef> {
        let index = index_of(node, step)?;
        match node {
            Node::List(items) => items.get(index).copied(),
            Node::Mapping(entries) => entries.get(index).map(|entry| entry.item),
            Node::Scalar(_) => None,
        }
    }
}

/// Returns the index of a field or an element, if it exists.
fn index_of(node: &Node<'_>, step: &PathStep) -> Option<usize> {
    match (node, step) {
        (Node::List(items), PathStep::Index(index)) => (*index < items.len()).then_some(*index),
        (Node::Mapping(entries), PathStep::Name(name)) => {
            entries.iter().position(|entry| entry.name == *name)
        }
        _ => None,
    }
}
