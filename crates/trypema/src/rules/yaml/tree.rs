//! YAML as a tree that knows the line of every value. An alias is the value it names, not a copy of it, so a tree is
//! never larger than its text.

use std::borrow::Cow;

use super::super::problem::{Field, Step};

/// The values of a text.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// Where the outermost value is; an empty text has none.
    pub(super) root: Option<NodeId>,
}

/// Where a value is among the nodes of its tree.
pub(super) type NodeId = usize;

/// A value and where it was written.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) line: u64,
    pub(super) content: Content<'a>,
}

#[derive(Debug)]
pub(super) enum Content<'a> {
    Scalar(Scalar<'a>),
    List(Vec<NodeId>),
    Mapping(Vec<Entry<'a>>),
}

/// Text, or a number, or nothing: that depends on what is asked for.
#[derive(Debug)]
pub(super) struct Scalar<'a> {
    pub(super) text: Cow<'a, str>,
    /// Written without quotes. What has quotes is text, whatever it looks like.
    pub(super) is_plain: bool,
}

/// A field of a mapping.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) line: u64,
    pub(super) value: NodeId,
}

impl Scalar<'_> {
    /// Whether it is YAML's way to write nothing.
    pub(super) fn is_null(&self) -> bool {
        self.is_plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

impl Node<'_> {
    /// Whether nothing was written.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar(scalar) if scalar.is_null())
    }
}

impl<'a> Tree<'a> {
    /// The line of a field, or of the nearest one around it that was written.
    pub(super) fn line_of(&self, field: &Field) -> u64 {
        let mut place = self.root.and_then(|root| self.nodes.get(root));
        let mut line = place.map_or(1, |root| root.line);
        for step in &field.steps {
            let Some(found) = place.and_then(|node| self.step(node, step)) else { break };
            line = found.line;
            place = self.nodes.get(found.value);
        }
        line
    }

    /// The id of the rule that a field belongs to, if it has one.
    pub(super) fn rule_of(&self, field: &Field) -> Option<String> {
        let [Step::Name(rules), Step::Index(index), ..] = field.steps.as_slice() else { return None };
        if rules != "rules" {
            return None;
        }
        let id = Field::of("rules").at(*index).then("id");
        match &self.node_at(&id)?.content {
            Content::Scalar(scalar) if !scalar.is_null() => Some(scalar.text.clone().into_owned()),
            _ => None,
        }
    }

    /// Whether the outermost mapping has this field.
    pub(super) fn has(&self, name: &str) -> bool {
        self.node_at(&Field::of(name)).is_some()
    }

    fn node_at(&self, field: &Field) -> Option<&Node<'a>> {
        let root = self.nodes.get(self.root?)?;
        field.steps.iter().try_fold(root, |node, step| self.nodes.get(self.step(node, step)?.value))
    }

    fn step(&self, node: &Node<'a>, step: &Step) -> Option<Written> {
        match (&node.content, step) {
            (Content::List(items), Step::Index(index)) => {
                let value = *items.get(*index)?;
                Some(Written { line: self.nodes.get(value)?.line, value })
            }
            (Content::Mapping(entries), Step::Name(name)) => {
                let entry = entries.iter().find(|entry| entry.key == *name)?;
                Some(Written { line: entry.line, value: entry.value })
            }
            _ => None,
        }
    }
}

/// A field that was found: the line of its name, or of the value in a list, and its value.
struct Written {
    line: u64,
    value: NodeId,
}
