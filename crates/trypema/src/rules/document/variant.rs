//! Enums such as a scope or a strategy: a name, or a mapping with one name and its contents.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, IntoDeserializer, VariantAccess, Visitor};

use super::error::{DeserializeError, LocationStep};
use super::tree::MappingEntry;
use super::value::NodeDeserializer;

/// A variant without contents.
pub(super) struct UnitVariant<'p> {
    pub(super) name: &'p str,
}

/// A variant with contents.
pub(super) struct ContentVariant<'p> {
    choice: &'p NodeDeserializer<'p>,
    entry: &'p MappingEntry<'p>,
}

impl<'p> ContentVariant<'p> {
    /// Returns the only entry of a mapping. Its name must be one of `names`.
    pub(super) fn new(
        choice: &'p NodeDeserializer<'p>,
        entries: &'p [MappingEntry<'p>],
        names: &'static [&'static str],
    ) -> Result<Self, DeserializeError> {
        let unknown = entries.iter().find(|entry| !names.contains(&&*entry.name));
        if let Some(MappingEntry { name, item }) = unknown {
            let location = choice.location().inside(LocationStep::Name(name), item.line);
            return Err(
                DeserializeError::new(format!("unknown: need one of {}", names.join(", "))).at(&location)
            );
        }
        match entries {
            [entry] => Ok(Self { choice, entry }),
            _ => {
                let given: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
                Err(DeserializeError::new(format!("need only one of {}", given.join(", "))))
            }
        }
    }
}

impl<'de> EnumAccess<'de> for UnitVariant<'_> {
    type Error = DeserializeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DeserializeError> {
        let name: StrDeserializer<'_, DeserializeError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> EnumAccess<'de> for ContentVariant<'_> {
    type Error = DeserializeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DeserializeError> {
        let name: StrDeserializer<'_, DeserializeError> = (&*self.entry.name).into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl UnitVariant<'_> {
    fn alone(&self) -> DeserializeError {
        DeserializeError::new(format!("`{}` needs a mapping of its fields", self.name))
    }
}

impl<'de> VariantAccess<'de> for UnitVariant<'_> {
    type Error = DeserializeError;

    fn unit_variant(self) -> Result<(), DeserializeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, DeserializeError> {
        Err(self.alone())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, DeserializeError> {
        Err(self.alone())
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, DeserializeError> {
        Err(self.alone())
    }
}

impl<'de> VariantAccess<'de> for ContentVariant<'_> {
    type Error = DeserializeError;

    fn unit_variant(self) -> Result<(), DeserializeError> {
        Err(DeserializeError::need("a name alone", self.choice.node()))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DeserializeError> {
        self.choice.read_field(self.entry, seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, DeserializeError> {
        Err(DeserializeError::need("a name alone", self.choice.node()))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, DeserializeError> {
        Err(DeserializeError::need("a name alone", self.choice.node()))
    }
}
