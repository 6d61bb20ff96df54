//! YAML as a tree that knows the line of every value. An alias is the value it names, not a copy of it, so a tree is
//! never larger than its text.

use std::borrow::Cow;

use super::super::problem::{Field, Step};
use super::scalar::Scalar;

/// The values of a text.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// The outermost value; an empty text has none.
    pub(super) root: Option<Item>,
}

/// Where a value is among the nodes of its tree.
pub(super) type NodeId = usize;

/// A value.
#[derive(Debug)]
pub(super) enum Node<'a> {
    Scalar(Scalar<'a>),
    List(Vec<Item>),
    Mapping(Vec<Entry<'a>>),
}

/// A place that a value was written at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// In a list the line of the value or its alias, in a mapping the line of its name.
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
    /// Whether nothing was written.
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(scalar) if scalar.is_null())
    }
}

impl<'a> Tree<'a> {
    /// The line of a field, or of the nearest one around it that was written.
    pub(super) fn line_of(&self, field: &Field) -> u64 {
        self.way_to(field).last().map_or(1, |item| item.line)
    }

    /// The id of the rule that a field belongs to, if it has one.
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
        // The whole comes before the steps.
        let item = self.way_to(field).nth(field.steps.len())?;
        self.nodes.get(item.node)
    }

    /// The places on the way to a field, as far as they were written.
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
