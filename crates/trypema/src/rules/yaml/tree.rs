//! A YAML document as a tree that contains the line of every value. An alias refers to the original node and
//! not to a copy, so that a tree is never larger than its text.

use std::borrow::Cow;

use super::super::problem::{Field, Step};
use super::scalar::Scalar;

/// The values of a document.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// The outermost value; `None` for an empty text.
    pub(super) root: Option<Item>,
}

/// The index of a node in its tree.
pub(super) type NodeId = usize;

/// A value.
#[derive(Debug)]
pub(super) enum Node<'a> {
    Scalar(Scalar<'a>),
    List(Vec<Item>),
    Mapping(Vec<Entry<'a>>),
}

/// An occurrence of a value: the value itself or an alias of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// In a list, the line of the value or alias. In a mapping, the line of the field's name.
    pub(super) line: u64,
    pub(super) node: NodeId,
}

/// A field of a mapping.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) item: Item,
}

impl Node<'_> {
    /// Whether the value is null.
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(scalar) if scalar.is_null())
    }
}

impl<'a> Tree<'a> {
    /// Returns the line of a field, or that of the innermost existing field around it.
    pub(super) fn line_of(&self, field: &Field) -> u64 {
        self.way_to(field).last().map_or(1, |item| item.line)
    }

    /// Returns the id of the rule that contains a field, if the rule has one.
    pub(super) fn rule_of(&self, field: &Field) -> Option<String> {
        let [Step::Name(rules), Step::Index(index), ..] = field.steps.as_slice() else { return None };
        if rules != "rules" {
            return None;
        }
        match self.node_of(&Field::of("rules").at(*index).then("id"))? {
            Node::Scalar(scalar) if !scalar.is_null() => Some(scalar.text.clone().into_owned()),
            _ => None,
        }
    }

    /// Whether the outermost mapping has this field.
    pub(super) fn has(&self, name: &str) -> bool {
        self.node_of(&Field::of(name)).is_some()
    }

    fn node_of(&self, field: &Field) -> Option<&Node<'a>> {
        // Index 0 is the root, which comes before the first step.
        let item = self.way_to(field).nth(field.steps.len())?;
        self.nodes.get(item.node)
    }

    /// Returns the values on the path to a field, as far as they exist.
    fn way_to(&self, field: &Field) -> impl Iterator<Item = Item> {
        let mut steps = field.steps.iter();
        std::iter::successors(self.root, move |item| self.step(self.nodes.get(item.node)?, steps.next()?))
    }

    fn step(&self, node: &Node<'a>, step: &Step) -> Option<Item> {
        match (node, step) {
            (Node::List(items), Step::Index(index)) => items.get(*index).copied(),
            (Node::Mapping(entries), Step::Name(name)) => {
                entries.iter().find(|entry| entry.name == *name).map(|entry| entry.item)
            }
            _ => None,
        }
    }
}
