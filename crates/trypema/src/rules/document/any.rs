//! Builds a tree from any format that has a serde deserializer, such as JSON.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::scalar::Scalar;
use super::tree::{Entry, Format, Item, Node, Tree};
use super::yaml::{MAX_DEPTH, MAX_VALUES};
use super::{Document, Problems};
use crate::rules::problem::{Field, Problem};

impl<'de> Deserialize<'de> for Document<'static> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let growth = RefCell::default();
        let root = deserializer.deserialize_any(Branch { growth: &growth, field: Field::default() })?;
        let Growth { nodes, problems } = growth.into_inner();
        Ok(Self { tree: Tree { nodes, root: Some(root), format: Format::Typed }, problems })
    }
}

/// The nodes of a tree that is being built.
#[derive(Default)]
struct Growth {
    nodes: Vec<Node<'static>>,
    problems: Problems,
}

/// Reads one value into the tree.
struct Branch<'g> {
    growth: &'g RefCell<Growth>,
    field: Field,
}

impl Branch<'_> {
    fn keep<E: Error>(&self, node: Node<'static>) -> Result<Item, E> {
        let nodes = &mut self.growth.borrow_mut().nodes;
        let id = nodes.len();
        if id >= MAX_VALUES {
            return Err(E::custom(format_args!("more than {MAX_VALUES} values")));
        }
        nodes.push(node);
        Ok(Item { line: 0, node: id })
    }

    fn scalar<E: Error>(&self, text: impl Into<Cow<'static, str>>) -> Result<Item, E> {
        self.keep(Node::Scalar(Scalar { text: text.into(), is_plain: true }))
    }

    fn inside<E: Error>(&self, field: Field) -> Result<Branch<'_>, E> {
        if field.steps.len() > MAX_DEPTH {
            return Err(E::custom(format_args!("values more than {MAX_DEPTH} levels deep")));
        }
        Ok(Branch { growth: self.growth, field })
    }
}

impl<'de> DeserializeSeed<'de> for Branch<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Branch<'_> {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Item, E> {
        self.scalar(if truth { "true" } else { "false" })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Item, E> {
        self.scalar(number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Item, E> {
        self.scalar(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Item, E> {
        self.scalar(format!("{number:?}"))
    }

    fn visit_unit<E: Error>(self) -> Result<Item, E> {
        self.scalar("null")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
        self.keep(Node::Scalar(Scalar { text: text.to_owned().into(), is_plain: false }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Item, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self.inside(self.field.at(items.len()))?)? {
            items.push(item);
        }
        self.keep(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<Item, A::Error> {
        let (mut entries, mut names) = (Vec::new(), BTreeSet::new());
        while let Some(name) = mapping.next_key::<String>()? {
            let field = self.field.then(&name);
            let item = mapping.next_value_seed(self.inside(field.clone())?)?;
            if names.insert(name.clone()) {
                entries.push(Entry { name: name.into(), item });
            } else {
                self.growth.borrow_mut().problems.push(Problem::new(field, "written twice"));
            }
        }
        self.keep(Node::Mapping(entries))
    }
}
