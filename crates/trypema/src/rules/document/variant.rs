//! Enums such as a scope or a strategy: a name, or a mapping with one name and its contents.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, IntoDeserializer, VariantAccess, Visitor};

use super::fault::{Fault, Place, PlaceStep};
use super::tree::Entry;
use super::value::Value;

/// A variant without contents.
pub(super) struct Named<'p> {
    pub(super) name: &'p str,
}

/// A variant with contents.
pub(super) struct Tagged<'p> {
    choice: &'p Value<'p>,
    entry: &'p Entry<'p>,
}

impl<'p> Tagged<'p> {
    /// Returns the only entry of a mapping. Its name must be one of `names`.
    pub(super) fn new(
        choice: &'p Value<'p>,
        entries: &'p [Entry<'p>],
        names: &'static [&'static str],
    ) -> Result<Self, Fault> {
        let unknown = entries.iter().find(|entry| !names.contains(&&*entry.name));
        if let Some(Entry { name, item }) = unknown {
            let place = Place { around: Some(choice.place()), step: PlaceStep::Name(name), line: item.line };
            return Err(Fault::new(format!("unknown: need one of {}", names.join(", "))).at(&place));
        }
        match entries {
            [entry] => Ok(Self { choice, entry }),
            _ => {
                let given: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
                Err(Fault::new(format!("need only one of {}", given.join(", "))))
            }
        }
    }
}

impl<'de> EnumAccess<'de> for Named<'_> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let name: StrDeserializer<'_, Fault> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> EnumAccess<'de> for Tagged<'_> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let name: StrDeserializer<'_, Fault> = (&*self.entry.name).into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl Named<'_> {
    fn alone(&self) -> Fault {
        Fault::new(format!("{} needs its numbers, as a mapping", self.name))
    }
}

impl<'de> VariantAccess<'de> for Named<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Fault> {
        Err(self.alone())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Fault> {
        Err(self.alone())
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Fault> {
        Err(self.alone())
    }
}

impl<'de> VariantAccess<'de> for Tagged<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Err(Fault::need("a name alone", self.choice.node()))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        self.choice.read_field(self.entry, seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Fault> {
        Err(Fault::need("a name alone", self.choice.node()))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Fault> {
        Err(Fault::need("a name alone", self.choice.node()))
    }
}
