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

use super::fault::{Fault, Place, PlaceStep};
use super::placeholder::Placeholder;
use super::scalar::{Meaning, Scalar};
use super::tree::{Entry, Format, Item, Node, Tree};
use super::variant::{Named, Tagged};
use super::yaml::MAX_VALUES;
use crate::rules::problem::{Field, Problems, Step};

/// One attempt at reading a value.
#[derive(Debug)]
pub(super) struct Reading<'p> {
    pub(super) tree: &'p Tree<'p>,
    /// The number of values read so far. A value is read once per alias, so this can exceed the number of
    /// values in the tree.
    pub(super) count: Cell<usize>,
    /// Problems after which reading continued.
    pub(super) problems: RefCell<Problems>,
    /// The fields that earlier attempts could not read.
    pub(super) placeholders: &'p BTreeSet<Field>,
    /// The fields whose names earlier attempts could not read.
    pub(super) skipped: &'p BTreeSet<Field>,
}

impl Reading<'_> {
    fn has_placeholder(&self, place: &Place<'_>) -> bool {
        !self.placeholders.is_empty() && self.placeholders.contains(&place.field())
    }

    /// Returns the names of the missing fields of a mapping that have placeholders.
    fn missing(&self, mapping: &Place<'_>, entries: &[Entry<'_>]) -> Vec<String> {
        if self.placeholders.is_empty() {
            return Vec::new();
        }
        let around = mapping.field();
        let inside = self.placeholders.iter().filter(|field| field.is_within(&around));
        let names = inside.filter_map(|field| match field.steps.get(around.steps.len()..) {
            Some([Step::Name(name)]) => Some(name.clone()),
            _ => None,
        });
        names.filter(|name| entries.iter().all(|entry| entry.name != *name)).collect()
    }
}

/// A value that is being deserialized.
#[derive(Clone, Copy)]
pub(super) struct Value<'p> {
    node: &'p Node<'p>,
    place: Place<'p>,
    reading: &'p Reading<'p>,
}

impl<'p> Value<'p> {
    pub(super) fn new(node: &'p Node<'p>, place: Place<'p>, reading: &'p Reading<'p>) -> Self {
        Self { node, place, reading }
    }

    pub(super) fn node(&self) -> &'p Node<'p> {
        self.node
    }

    pub(super) fn place(&self) -> &Place<'p> {
        &self.place
    }

    /// Reads the value of a field.
    pub(super) fn read_field<'de, S: DeserializeSeed<'de>>(
        &self,
        entry: &Entry<'_>,
        seed: S,
    ) -> Result<S::Value, Fault> {
        self.read_inside(entry.item, PlaceStep::Name(&entry.name), seed)
    }

    fn read_inside<'de, S: DeserializeSeed<'de>>(
        &self,
        item: Item,
        step: PlaceStep<'_>,
        seed: S,
    ) -> Result<S::Value, Fault> {
        let place = Place { around: Some(&self.place), step, line: item.line };
        let reading = self.reading;
        reading.count.set(reading.count.get() + 1);
        if reading.count.get() > MAX_VALUES {
            let reason = format!("aliases make more than {MAX_VALUES} values");
            return Err(Fault::fatal(reason).at(&place));
        }
        if reading.has_placeholder(&place) {
            return seed.deserialize(Placeholder).map_err(|fault| fault.at(&place));
        }
        let node = reading.tree.nodes.get(item.node).ok_or_else(|| Fault::new("missing").at(&place))?;
        seed.deserialize(Value { node, place, reading })
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

    /// Records a problem of this value and returns a placeholder for it.
    fn replaced(&self, fault: Fault) -> Placeholder {
        self.reading.problems.borrow_mut().push(fault.at(&self.place).into_problem());
        Placeholder
    }

    fn visit_list<'de, V: Visitor<'de>>(&self, items: &[Item], visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Items { list: self, items, next: 0 })
    }

    fn visit_mapping<'de, V: Visitor<'de>>(
        &self,
        entries: &[Entry<'_>],
        known: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let missing = self.reading.missing(&self.place, entries);
        visitor.visit_map(Fields { mapping: self, entries: entries.iter(), missing, known, current: None })
    }

    /// Returns the value of an integer, or a placeholder if it is none of the range.
    fn integer<'de, N: FromStr + Display, V: Visitor<'de>>(
        &self,
        range: std::ops::RangeInclusive<N>,
        visitor: V,
        visit: impl FnOnce(V, N) -> Result<V::Value, Fault>,
        placeholder: impl FnOnce(Placeholder, V) -> Result<V::Value, Fault>,
    ) -> Result<V::Value, Fault> {
        match self.scalar().and_then(Scalar::whole) {
            Some(number) => self.placed(visit(visitor, number)),
            None => {
                let what = format!("a whole number from {} to {}", range.start(), range.end());
                placeholder(self.replaced(self.need(what)), visitor)
            }
        }
    }
}

macro_rules! integers {
    ($($deserialize:ident $visit:ident $type:ty),* $(,)?) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let range = <$type>::MIN..=<$type>::MAX;
            self.integer(range, visitor, V::$visit, |placeholder, visitor| placeholder.$deserialize(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Fault;

    integers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.placed(match self.node {
            Node::List(items) => self.visit_list(items, visitor),
            Node::Mapping(entries) => self.visit_mapping(entries, None, visitor),
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
        match self.scalar().and_then(Scalar::truth) {
            Some(truth) => self.placed(visitor.visit_bool(truth)),
            None => self.replaced(self.need("true or false")).deserialize_bool(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.scalar().and_then(Scalar::number) {
            Some(number) => self.placed(visitor.visit_f64(number)),
            None => self.replaced(self.need("a number")).deserialize_f64(visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let is_text = |scalar: &Scalar<'_>| match self.reading.tree.format {
            Format::Yaml => !scalar.is_null(),
            Format::Typed => !scalar.is_plain,
        };
        match self.scalar().filter(|scalar| is_text(scalar)) {
            Some(scalar) => self.placed(visitor.visit_str(&scalar.text)),
            None => self.replaced(self.need("text")).deserialize_str(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node {
            Node::List(items) => self.placed(self.visit_list(items, visitor)),
            _ => self.replaced(self.need("a list")).deserialize_seq(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node {
            Node::Mapping(entries) => self.placed(self.visit_mapping(entries, None, visitor)),
            _ => self.replaced(self.need("a mapping")).deserialize_map(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.node {
            Node::Mapping(entries) => self.placed(self.visit_mapping(entries, Some(fields), visitor)),
            _ => self.replaced(self.need("a mapping")).deserialize_struct(name, fields, visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let fault = match self.node {
            Node::Scalar(scalar) if variants.contains(&&*scalar.text) => {
                return self.placed(visitor.visit_enum(Named { name: &scalar.text }));
            }
            Node::Mapping(entries) if !entries.is_empty() => match Tagged::new(&self, entries, variants) {
                Ok(tagged) => return self.placed(visitor.visit_enum(tagged)),
                Err(fault) => fault,
            },
            _ => self.need(format_args!("one of {}", variants.join(", "))),
        };
        self.replaced(fault).deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
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
        self.list.read_inside(*item, step, seed).map(Some)
    }
}

/// Iterates over the fields of a mapping: first those that are written, then placeholders for missing ones.
struct Fields<'p> {
    mapping: &'p Value<'p>,
    entries: std::slice::Iter<'p, Entry<'p>>,
    /// The missing fields that have placeholders.
    missing: Vec<String>,
    /// The fields of the struct, if the mapping is one. Any others are problems.
    known: Option<&'static [&'static str]>,
    /// The field whose value is next; `None` for a placeholder.
    current: Option<&'p Entry<'p>>,
}

impl<'p> Fields<'p> {
    /// Returns the next field that the struct has, and records the ones before it as problems.
    fn next_known(&mut self) -> Option<&'p Entry<'p>> {
        loop {
            let entry = self.entries.next()?;
            match self.known {
                Some(known) if !known.contains(&&*entry.name) => {
                    let fault = Fault::unknown(known).at(&self.place_of(entry));
                    self.mapping.reading.problems.borrow_mut().push(fault.into_problem());
                }
                _ if self.is_skipped(entry) => {}
                _ => return Some(entry),
            }
        }
    }

    fn is_skipped(&self, entry: &Entry<'_>) -> bool {
        let skipped = self.mapping.reading.skipped;
        !skipped.is_empty() && skipped.contains(&self.place_of(entry).field())
    }

    fn place_of<'q>(&'q self, entry: &'q Entry<'q>) -> Place<'q> {
        let around = Some(self.mapping.place());
        Place { around, step: PlaceStep::Name(&entry.name), line: entry.item.line }
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.current = self.next_known();
        let Some(entry) = self.current else {
            let Some(missing) = self.missing.pop() else { return Ok(None) };
            let name: StrDeserializer<'_, Fault> = missing.as_str().into_deserializer();
            return seed.deserialize(name).map(Some);
        };
        let name: StrDeserializer<'_, Fault> = (&*entry.name).into_deserializer();
        seed.deserialize(name).map(Some).map_err(|fault| fault.in_name().at(&self.place_of(entry)))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        match self.current.take() {
            Some(entry) => self.mapping.read_field(entry, seed),
            None => seed.deserialize(Placeholder),
        }
    }
}
