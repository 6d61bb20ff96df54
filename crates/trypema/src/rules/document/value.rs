//! A serde deserializer for the tree.
//!
//! The target type decides how a scalar is read: a string takes its text as written. Only plain (unquoted)
//! scalars can be numbers, booleans or null. A required list or mapping must be present.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::error::{DeserializeError, Location, LocationStep, MISSING};
use super::placeholder::PlaceholderDeserializer;
use super::scalar::{Scalar, ScalarValue};
use super::tree::{Format, MappingEntry, Node, NodeRef, Tree};
use super::variant::{ContentVariant, UnitVariant};
use super::yaml::{MAX_DEPTH, MAX_VALUES, too_deep};
use crate::rules::problem::{FieldPath, PathStep, Problems};

/// One attempt to read a value.
#[derive(Debug)]
pub(super) struct ReadContext<'p> {
    pub(super) tree: &'p Tree<'p>,
    /// The number of values read so far. A value is read once per alias, so this can exceed the number of
    /// values in the tree.
    pub(super) count: Cell<usize>,
    /// Problems after which reading continued.
    pub(super) problems: RefCell<Problems>,
    /// The fields that earlier attempts could not read.
    pub(super) placeholders: &'p BTreeSet<FieldPath>,
    /// The fields whose names earlier attempts could not read.
    pub(super) skipped: &'p BTreeSet<FieldPath>,
}

impl ReadContext<'_> {
    fn has_placeholder(&self, location: &Location<'_>) -> bool {
        !self.placeholders.is_empty() && self.placeholders.contains(&location.field())
    }

    /// Returns the names of the missing fields of a mapping that have placeholders.
    fn missing(&self, mapping: &Location<'_>, entries: &[MappingEntry<'_>]) -> Vec<String> {
        if self.placeholders.is_empty() {
            return Vec::new();
        }
        let around = mapping.field();
        let inside = self.placeholders.iter().filter(|field| field.is_within(&around));
        let names = inside.filter_map(|field| match field.steps.get(around.steps.len()..) {
            Some([PathStep::Name(name)]) => Some(name.clone()),
            _ => None,
        });
        names.filter(|name| entries.iter().all(|entry| entry.name != *name)).collect()
    }
}

/// The error of a document whose reading takes too long.
pub(super) fn too_many_values() -> DeserializeError {
    DeserializeError::fatal(format!("aliases or problems make more than {MAX_VALUES} values to read"))
}

/// A value that is being deserialized.
#[derive(Clone, Copy)]
pub(super) struct NodeDeserializer<'p> {
    node: &'p Node<'p>,
    location: Location<'p>,
    context: &'p ReadContext<'p>,
}

impl<'p> NodeDeserializer<'p> {
    pub(super) fn new(node: &'p Node<'p>, location: Location<'p>, context: &'p ReadContext<'p>) -> Self {
        Self { node, location, context }
    }

    pub(super) fn node(&self) -> &'p Node<'p> {
        self.node
    }

    pub(super) fn location(&self) -> &Location<'p> {
        &self.location
    }

    /// Reads the value of a field.
    pub(super) fn read_field<'de, S: DeserializeSeed<'de>>(
        &self,
        entry: &MappingEntry<'_>,
        seed: S,
    ) -> Result<S::Value, DeserializeError> {
        self.read_inside(entry.item, LocationStep::Name(&entry.name), seed)
    }

    fn read_inside<'de, S: DeserializeSeed<'de>>(
        &self,
        item: NodeRef,
        step: LocationStep<'_>,
        seed: S,
    ) -> Result<S::Value, DeserializeError> {
        let location = self.location.inside(step, item.line);
        let context = self.context;
        if location.depth > MAX_DEPTH {
            return Err(DeserializeError::fatal(too_deep()).at(&location));
        }
        context.count.set(context.count.get() + 1);
        if context.count.get() > MAX_VALUES {
            return Err(too_many_values().at(&location));
        }
        if context.has_placeholder(&location) {
            return seed.deserialize(PlaceholderDeserializer).map_err(|error| error.at(&location));
        }
        let node =
            context.tree.nodes.get(item.node).ok_or_else(|| DeserializeError::new(MISSING).at(&location))?;
        seed.deserialize(NodeDeserializer { node, location, context })
    }

    fn scalar(&self) -> Option<&'p Scalar<'p>> {
        match self.node {
            Node::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    fn need(&self, what: impl Display) -> DeserializeError {
        DeserializeError::need(what, self.node)
    }

    /// Adds the location of this value to an error.
    fn located<T>(&self, result: Result<T, DeserializeError>) -> Result<T, DeserializeError> {
        result.map_err(|error| error.at(&self.location))
    }

    /// Records a problem of this value and returns a placeholder for it.
    fn replaced(&self, error: DeserializeError) -> PlaceholderDeserializer {
        self.context.problems.borrow_mut().push(error.at(&self.location).into_problem());
        PlaceholderDeserializer
    }

    fn visit_list<'de, V: Visitor<'de>>(
        &self,
        items: &[NodeRef],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        visitor.visit_seq(ListItems { list: self, items, next: 0 })
    }

    fn visit_mapping<'de, V: Visitor<'de>>(
        &self,
        entries: &[MappingEntry<'_>],
        known: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        let missing = self.context.missing(&self.location, entries);
        visitor.visit_map(MappingFields {
            mapping: self,
            entries: entries.iter(),
            missing,
            known,
            current: None,
        })
    }

    /// Returns the value of an integer, or a placeholder if the value is not an integer in `range`.
    fn integer<'de, N: FromStr + Display, V: Visitor<'de>>(
        &self,
        range: std::ops::RangeInclusive<N>,
        visitor: V,
        visit: impl FnOnce(V, N) -> Result<V::Value, DeserializeError>,
        placeholder: impl FnOnce(PlaceholderDeserializer, V) -> Result<V::Value, DeserializeError>,
    ) -> Result<V::Value, DeserializeError> {
        match self.scalar().and_then(Scalar::as_integer) {
            Some(number) => self.located(visit(visitor, number)),
            None => {
                let what = format!("a whole number from {} to {}", range.start(), range.end());
                placeholder(self.replaced(self.need(what)), visitor)
            }
        }
    }
}

macro_rules! integers {
    ($($deserialize:ident $visit:ident $type:ty),* $(,)?) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
            let range = <$type>::MIN..=<$type>::MAX;
            self.integer(range, visitor, V::$visit, |placeholder, visitor| placeholder.$deserialize(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DeserializeError;

    integers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.located(match self.node {
            Node::List(items) => self.visit_list(items, visitor),
            Node::Mapping(entries) => self.visit_mapping(entries, None, visitor),
            Node::Scalar(scalar) => match scalar.value() {
                ScalarValue::Null => visitor.visit_unit(),
                ScalarValue::Bool(truth) => visitor.visit_bool(truth),
                ScalarValue::Unsigned(number) => visitor.visit_u64(number),
                ScalarValue::Signed(number) => visitor.visit_i64(number),
                ScalarValue::Float(number) => visitor.visit_f64(number),
                ScalarValue::Text(text) => visitor.visit_str(text),
            },
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match self.scalar().and_then(Scalar::as_bool) {
            Some(truth) => self.located(visitor.visit_bool(truth)),
            None => self.replaced(self.need("true or false")).deserialize_bool(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match self.scalar().and_then(Scalar::as_float) {
            Some(number) => self.located(visitor.visit_f64(number)),
            None => self.replaced(self.need("a number")).deserialize_f64(visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let is_text = |scalar: &Scalar<'_>| match self.context.tree.format {
            Format::Yaml => !scalar.is_null(),
            Format::Typed => !scalar.is_plain,
        };
        match self.scalar().filter(|scalar| is_text(scalar)) {
            Some(scalar) => self.located(visitor.visit_str(&scalar.text)),
            None => self.replaced(self.need("text")).deserialize_str(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match self.node {
            Node::List(items) => self.located(self.visit_list(items, visitor)),
            _ => self.replaced(self.need("a list")).deserialize_seq(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match self.node {
            Node::Mapping(entries) => self.located(self.visit_mapping(entries, None, visitor)),
            _ => self.replaced(self.need("a mapping")).deserialize_map(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        match self.node {
            Node::Mapping(entries) => self.located(self.visit_mapping(entries, Some(fields), visitor)),
            _ => self.replaced(self.need("a mapping")).deserialize_struct(name, fields, visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        let error = match self.node {
            Node::Scalar(scalar) if variants.contains(&&*scalar.text) => {
                return self.located(visitor.visit_enum(UnitVariant { name: &scalar.text }));
            }
            Node::Mapping(entries) if !entries.is_empty() => {
                match ContentVariant::new(&self, entries, variants) {
                    Ok(tagged) => return self.located(visitor.visit_enum(tagged)),
                    Err(error) => error,
                }
            }
            _ => self.need(format_args!("one of {}", variants.join(", "))),
        };
        self.replaced(error).deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// Iterates over the values of a list.
struct ListItems<'p> {
    list: &'p NodeDeserializer<'p>,
    items: &'p [NodeRef],
    next: usize,
}

impl<'de> SeqAccess<'de> for ListItems<'_> {
    type Error = DeserializeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DeserializeError> {
        let Some(item) = self.items.get(self.next) else { return Ok(None) };
        let step = LocationStep::Index(self.next);
        self.next += 1;
        self.list.read_inside(*item, step, seed).map(Some)
    }
}

/// Iterates over the fields of a mapping: first those that are written, then placeholders for missing ones.
struct MappingFields<'p> {
    mapping: &'p NodeDeserializer<'p>,
    entries: std::slice::Iter<'p, MappingEntry<'p>>,
    /// The missing fields that have placeholders.
    missing: Vec<String>,
    /// The fields of the struct, if the target type is a struct. Any other field in the mapping is a problem.
    known: Option<&'static [&'static str]>,
    /// The field whose value is next; `None` for a placeholder.
    current: Option<&'p MappingEntry<'p>>,
}

impl<'p> MappingFields<'p> {
    /// Returns the next field that the struct has, and records the ones before it as problems.
    fn next_known(&mut self) -> Option<&'p MappingEntry<'p>> {
        loop {
            let entry = self.entries.next()?;
            match self.known {
                Some(known) if !known.contains(&&*entry.name) => {
                    let error = DeserializeError::unknown(known).at(&self.location_of(entry));
                    self.mapping.context.problems.borrow_mut().push(error.into_problem());
                }
                _ if self.is_skipped(entry) => {}
                _ => return Some(entry),
            }
        }
    }

    fn is_skipped(&self, entry: &MappingEntry<'_>) -> bool {
        let skipped = self.mapping.context.skipped;
        !skipped.is_empty() && skipped.contains(&self.location_of(entry).field())
    }

    fn location_of<'q>(&'q self, entry: &'q MappingEntry<'q>) -> Location<'q> {
        self.mapping.location().inside(LocationStep::Name(&entry.name), entry.item.line)
    }
}

impl<'de> MapAccess<'de> for MappingFields<'_> {
    type Error = DeserializeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DeserializeError> {
        self.current = self.next_known();
        let Some(entry) = self.current else {
            let Some(missing) = self.missing.pop() else { return Ok(None) };
            let name: StrDeserializer<'_, DeserializeError> = missing.as_str().into_deserializer();
            return seed.deserialize(name).map(Some);
        };
        let name: StrDeserializer<'_, DeserializeError> = (&*entry.name).into_deserializer();
        seed.deserialize(name).map(Some).map_err(|error| error.in_name().at(&self.location_of(entry)))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DeserializeError> {
        match self.current.take() {
            Some(entry) => self.mapping.read_field(entry, seed),
            None => seed.deserialize(PlaceholderDeserializer),
        }
    }
}
