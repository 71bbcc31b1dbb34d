//! For the tests of stored records: reads a record as serde does, and notes each field and variant that its types have,
//! and whether a sample had something to say there. So a field that no sample fills fails a test by itself.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// `Type.field` and `Type::Variant`, each with whether a sample had it.
#[derive(Debug, Default)]
pub(super) struct Witness(RefCell<BTreeMap<String, bool>>);

impl Witness {
    /// Takes in what serde reads of a record of this type.
    pub(super) fn see<T: DeserializeOwned>(&self, record: &Value) {
        let read = T::deserialize(Reader {
            value: record,
            seen: self,
        });
        read.unwrap_or_else(|cause| panic!("{cause}: {record:#}"));
    }

    /// What no sample had.
    pub(super) fn missing(&self) -> Vec<String> {
        let seen = self.0.borrow();
        let missing = seen.iter().filter(|(_, had)| !**had);
        missing.map(|(place, _)| place.clone()).collect()
    }

    /// Whether a sample of this type was seen.
    pub(super) fn knows<T>(&self) -> bool {
        let name = std::any::type_name::<T>();
        let name = name.rsplit("::").next().unwrap_or(name);
        let seen = self.0.borrow();
        seen.keys().any(|place| {
            let rest = place.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['.', ':']))
        })
    }

    /// How many fields and variants there are.
    pub(super) fn places(&self) -> usize {
        self.0.borrow().len()
    }

    fn note(&self, place: String, had: bool) {
        *self.0.borrow_mut().entry(place).or_default() |= had;
    }

    fn fields(&self, of: &str, fields: &[&str], value: &Value) {
        for field in fields {
            let had = value.get(field).is_some_and(says_something);
            self.note(format!("{of}.{field}"), had);
        }
    }
}

/// Whether it is something else than what a missing field is read as.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

#[derive(Clone, Copy)]
struct Reader<'de> {
    value: &'de Value,
    seen: &'de Witness,
}

impl<'de> Reader<'de> {
    const fn at(self, value: &'de Value) -> Self {
        Self {
            value,
            seen: self.seen,
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(is) => visitor.visit_bool(*is),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => visitor.visit_seq(Items(items.iter(), self)),
            Value::Object(members) => visitor.visit_map(Members {
                left: members.iter(),
                value: None,
                reader: self,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.seen.fields(name, fields, self.value);
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (variant, content) = match self.value {
            Value::String(variant) => (variant, &Value::Null),
            Value::Object(members) => one_of(members)?,
            _ => return Err(serde::de::Error::custom("no variant")),
        };
        for known in variants {
            self.seen.note(format!("{name}::{known}"), known == variant);
        }
        visitor.visit_enum(Variant {
            name: format!("{name}::{variant}"),
            variant,
            content: self.at(content),
        })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier ignored_any
    }
}

fn one_of(members: &Map<String, Value>) -> Result<(&String, &Value), Error> {
    let first = members.iter().next();
    first.ok_or_else(|| serde::de::Error::custom("a variant without a name"))
}

struct Items<'de>(std::slice::Iter<'de, Value>, Reader<'de>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Self(left, reader) = self;
        left.next()
            .map(|value| seed.deserialize(reader.at(value)))
            .transpose()
    }
}

struct Members<'de> {
    left: serde_json::map::Iter<'de>,
    value: Option<&'de Value>,
    reader: Reader<'de>,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.left.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(Key(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.value.take().expect("a key came before");
        seed.deserialize(self.reader.at(value))
    }
}

/// A key, which JSON has as a text also where it is a number.
struct Key<'de>(&'de str);

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.parse() {
            Ok(number) => visitor.visit_u64(number),
            Err(_) => Err(serde::de::Error::custom("no number")),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let text: StrDeserializer<'_, Error> = self.0.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

struct Variant<'de> {
    name: String,
    variant: &'de str,
    content: Reader<'de>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let variant: StrDeserializer<'_, Error> = self.variant.into_deserializer();
        Ok((seed.deserialize(variant)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.content)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.content.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Self { name, content, .. } = self;
        content.seen.fields(&name, fields, content.value);
        content.deserialize_any(visitor)
    }
}
