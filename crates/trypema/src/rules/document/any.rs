//! Builds a tree from any format that has a serde deserializer, such as JSON.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::error::{Location, LocationStep};
use super::scalar::Scalar;
use super::tree::{Format, MappingEntry, Node, NodeRef, Tree};
use super::yaml::{MAX_DEPTH, MAX_FIELDS, MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_VALUES};
use super::{Document, Problems};
use crate::rules::problem::RuleProblem;

impl<'de> Deserialize<'de> for Document<'static> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let builder = RefCell::default();
        let root =
            deserializer.deserialize_any(NodeVisitor { builder: &builder, location: Location::ROOT })?;
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
    location: Location<'g>,
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

    fn inside<'v, E: Error>(&'v self, step: LocationStep<'v>) -> Result<NodeVisitor<'v>, E> {
        let location = self.location.inside(step, 0);
        if location.depth > MAX_DEPTH {
            return Err(E::custom(format_args!("values more than {MAX_DEPTH} levels deep")));
        }
        Ok(NodeVisitor { builder: self.builder, location })
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
        if text.len() > MAX_TEXT_BYTES {
            let bytes = text.len();
            return Err(E::custom(format_args!("text of {bytes} bytes: need at most {MAX_TEXT_BYTES}")));
        }
        self.keep(Node::Scalar(Scalar { text: text.to_owned().into(), is_plain: false }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NodeRef, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self.inside(LocationStep::Index(items.len()))?)? {
            items.push(item);
        }
        self.keep(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<NodeRef, A::Error> {
        let (mut entries, mut names) = (Vec::new(), BTreeSet::new());
        while let Some(name) = mapping.next_key::<String>()? {
            if name.len() > MAX_NAME_BYTES {
                let bytes = name.len();
                let reason = format_args!("a field's name of {bytes} bytes: need at most {MAX_NAME_BYTES}");
                return Err(A::Error::custom(reason));
            }
            if entries.len() >= MAX_FIELDS {
                return Err(A::Error::custom(format_args!("more than {MAX_FIELDS} fields in one mapping")));
            }
            let inside = self.inside(LocationStep::Name(&name))?;
            let field = inside.location;
            let item = mapping.next_value_seed(inside)?;
            if names.insert(name.clone()) {
                entries.push(MappingEntry { name: name.into(), item });
            } else {
                let problem = || RuleProblem::new(field.field(), "written twice");
                self.builder.borrow_mut().problems.push_with(problem);
            }
        }
        self.keep(Node::Mapping(entries))
    }
}
