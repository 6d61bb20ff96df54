//! A serde deserializer for the tree.
//!
//! The target type decides how a scalar is read: a string takes its text as written. Only plain (unquoted)
//! scalars can be numbers, booleans or null. A required list or mapping must be present.

use std::cell::Cell;
use std::fmt::Display;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::fault::{Fault, Place, PlaceStep};
use super::parse::MAX_VALUES;
use super::scalar::{Meaning, Scalar};
use super::tree::{Entry, Item, Node, Tree};
use super::variant::{Named, Tagged};

/// A value that is being deserialized.
#[derive(Clone, Copy)]
pub(super) struct Value<'p> {
    tree: &'p Tree<'p>,
    node: &'p Node<'p>,
    place: Place<'p>,
    /// The number of values read so far. A value is read once per alias, so this can exceed the number of
    /// values in the tree.
    count: &'p Cell<usize>,
}

impl<'p> Value<'p> {
    /// Returns the outermost value.
    pub(super) fn root(tree: &'p Tree<'p>, count: &'p Cell<usize>) -> Option<Self> {
        let Item { line, node } = tree.root?;
        let place = Place { around: None, step: PlaceStep::Whole, line };
        Some(Self { tree, node: tree.nodes.get(node)?, place, count })
    }

    pub(super) fn node(&self) -> &'p Node<'p> {
        self.node
    }

    pub(super) fn place(&self) -> &Place<'p> {
        &self.place
    }

    /// Returns the value of a field.
    pub(super) fn field<'q>(&'q self, entry: &'q Entry<'q>) -> Result<Value<'q>, Fault> {
        self.inside(entry.item, PlaceStep::Name(&entry.name))
    }

    fn inside<'q>(&'q self, item: Item, step: PlaceStep<'q>) -> Result<Value<'q>, Fault> {
        let place = Place { around: Some(&self.place), step, line: item.line };
        self.count.set(self.count.get() + 1);
        if self.count.get() > MAX_VALUES {
            return Err(Fault::new(format!("aliases make more than {MAX_VALUES} values")).at(&place));
        }
        let node = self.tree.nodes.get(item.node).ok_or_else(|| Fault::new("missing").at(&place))?;
        Ok(Value { tree: self.tree, node, place, count: self.count })
    }

    fn scalar(&self) -> Option<&'p Scalar<'p>> {
        match self.node {
            Node::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    fn need(&self, what: impl Display) -> Fault {
        Fault::need(what, self.node)
    }

    /// Adds the location of this value to an error.
    fn placed<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| fault.at(&self.place))
    }

    fn visit_list<'de, V: Visitor<'de>>(&self, items: &[Item], visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Items { list: self, items, next: 0 })
    }

    fn visit_mapping<'de, V: Visitor<'de>>(
        &self,
        entries: &[Entry<'_>],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_map(Fields { mapping: self, entries: entries.iter(), current: None })
    }
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.placed(match self.node {
            Node::List(items) => self.visit_list(items, visitor),
            Node::Mapping(entries) => self.visit_mapping(entries, visitor),
            Node::Scalar(scalar) => match scalar.meaning() {
                Meaning::Nothing => visitor.visit_unit(),
                Meaning::Truth(truth) => visitor.visit_bool(truth),
                Meaning::Whole(number) => visitor.visit_u64(number),
                Meaning::Negative(number) => visitor.visit_i64(number),
                Meaning::Number(number) => visitor.visit_f64(number),
                Meaning::Text(text) => visitor.visit_str(text),
            },
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let truth = self.scalar().and_then(Scalar::truth).ok_or_else(|| self.need("true or false"));
        self.placed(truth.and_then(|truth| visitor.visit_bool(truth)))
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let what = "a whole number from 0 to 18446744073709551615";
        let number = self.scalar().and_then(Scalar::whole).ok_or_else(|| self.need(what));
        self.placed(number.and_then(|number| visitor.visit_u64(number)))
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let what = "a whole number from -2147483648 to 2147483647";
        let number = self.scalar().and_then(Scalar::whole).ok_or_else(|| self.need(what));
        self.placed(number.and_then(|number| visitor.visit_i32(number)))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let number = self.scalar().and_then(Scalar::number).ok_or_else(|| self.need("a number"));
        self.placed(number.and_then(|number| visitor.visit_f64(number)))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.placed(match self.node {
            Node::Scalar(scalar) if !scalar.is_null() => visitor.visit_str(&scalar.text),
            _ => Err(self.need("text")),
        })
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.placed(match self.node {
            Node::List(items) => self.visit_list(items, visitor),
            _ => Err(self.need("a list")),
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.placed(match self.node {
            Node::Mapping(entries) => self.visit_mapping(entries, visitor),
            _ => Err(self.need("a mapping")),
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.placed(match self.node {
            Node::Scalar(scalar) if variants.contains(&&*scalar.text) => {
                visitor.visit_enum(Named { name: &scalar.text })
            }
            Node::Mapping(entries) if !entries.is_empty() => {
                Tagged::new(&self, entries, variants).and_then(|tagged| visitor.visit_enum(tagged))
            }
            _ => Err(self.need(format_args!("one of {}", variants.join(", ")))),
        })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i64 i128 u8 u16 u32 u128 f32 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct
        identifier
    }
}

/// Iterates over the values of a list.
struct Items<'p> {
    list: &'p Value<'p>,
    items: &'p [Item],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(item) = self.items.get(self.next) else { return Ok(None) };
        let step = PlaceStep::Index(self.next);
        self.next += 1;
        seed.deserialize(self.list.inside(*item, step)?).map(Some)
    }
}

/// Iterates over the fields of a mapping.
struct Fields<'p> {
    mapping: &'p Value<'p>,
    entries: std::slice::Iter<'p, Entry<'p>>,
    current: Option<&'p Entry<'p>>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.current = self.entries.next();
        let Some(entry) = self.current else { return Ok(None) };
        let name: StrDeserializer<'_, Fault> = (&*entry.name).into_deserializer();
        let around = Some(self.mapping.place());
        let place = Place { around, step: PlaceStep::Name(&entry.name), line: entry.item.line };
        seed.deserialize(name).map(Some).map_err(|fault| fault.at(&place))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let entry = self.current.take().ok_or_else(|| Fault::new("missing"))?;
        seed.deserialize(self.mapping.field(entry)?)
    }
}
