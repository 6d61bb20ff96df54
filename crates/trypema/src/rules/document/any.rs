//! Builds a tree from any format that has a serde deserializer, such as JSON.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::scalar::Scalar;
use super::tree::{Format, MappingEntry, Node, NodeRef, Tree};
use super::yaml::{MAX_DEPTH, MAX_VALUES};
use super::{Document, Problems};
use crate::rules::problem::{FieldPath, RuleProblem};

impl<'de> Deserialize<'de> for Document<'static> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let builder = RefCell::default();
        let root =
            deserializer.deserialize_any(NodeVisitor { builder: &builder, field: FieldPath::default() })?;
        let TreeBuilder { nodes, problems } = builder.into_inner();
        Ok(Self { tree: Tree { nodes, root: Some(root), format: Format::Typed }, problems })
    }
}

/// The nodes of a tree that is being built.
#[derive(Default)]
struct TreeBuilder {
    nodes: Vec<Node<'static>>,
    problems: Problems,
}

/// Reads one value into the tree.
struct NodeVisitor<'g> {
    builder: &'g RefCell<TreeBuilder>,
    field: FieldPath,
}

impl NodeVisitor<'_> {
    fn keep<E: Error>(&self, node: Node<'static>) -> Result<NodeRef, E> {
        let nodes = &mut self.builder.borrow_mut().nodes;
        let id = nodes.len();
        if id >= MAX_VALUES {
            return Err(E::custom(format_args!("more than {MAX_VALUES} values")));
        }
        nodes.push(node);
        Ok(NodeRef { line: 0, node: id })
    }

    fn scalar<E: Error>(&self, text: impl Into<Cow<'static, str>>) -> Result<NodeRef, E> {
        self.keep(Node::Scalar(Scalar { text: text.into(), is_plain: true }))
    }

    fn inside<E: Error>(&self, field: FieldPath) -> Result<NodeVisitor<'_>, E> {
        if field.steps.len() > MAX_DEPTH {
            return Err(E::custom(format_args!("values more than {MAX_DEPTH} levels deep")));
        }
        Ok(NodeVisitor { builder: self.builder, field })
    }
}

impl<'de> DeserializeSeed<'de> for NodeVisitor<'_> {
    type Value = NodeRef;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<NodeRef, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeVisitor<'_> {
    type Value = NodeRef;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<NodeRef, E> {
        self.scalar(if truth { "true" } else { "false" })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<NodeRef, E> {
        self.scalar(number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<NodeRef, E> {
        self.scalar(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<NodeRef, E> {
        self.scalar(format!("{number:?}"))
    }

    fn visit_unit<E: Error>(self) -> Result<NodeRef, E> {
        self.scalar("null")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NodeRef, E> {
        self.keep(Node::Scalar(Scalar { text: text.to_owned().into(), is_plain: false }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NodeRef, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self.inside(self.field.at(items.len()))?)? {
            items.push(item);
        }
        self.keep(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<NodeRef, A::Error> {
        let (mut entries, mut names) = (Vec::new(), BTreeSet::new());
        while let Some(name) = mapping.next_key::<String>()? {
            let field = self.field.then(&name);
            let item = mapping.next_value_seed(self.inside(field.clone())?)?;
            if names.insert(name.clone()) {
                entries.push(MappingEntry { name: name.into(), item });
            } else {
                self.builder.borrow_mut().problems.push(RuleProblem::new(field, "written twice"));
            }
        }
        self.keep(Node::Mapping(entries))
    }
}
