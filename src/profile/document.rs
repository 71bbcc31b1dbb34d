//! A profile as written, before it means anything: one tree for TOML and JSON, so that one reader
//! checks both. Where the text is known, each piece carries its place.

use std::fmt;
use std::ops::Range;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::de::{DeTable, DeValue};

/// One value and the bytes it stands in, if the text is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Option<Range<usize>>,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Flag(bool),
    Integer(i128),
    Decimal(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order written; a key may stand twice in JSON.
    Table(Vec<(Key, Node)>),
    /// Something no field takes: a date, or a number beyond every bound.
    Other(&'static str),
}

/// The name of an entry and the bytes it stands in.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) span: Option<Range<usize>>,
}

impl Node {
    /// A table of named values, for writing.
    pub(super) fn table(entries: Vec<(&str, Self)>) -> Self {
        let entry = |(name, node): (&str, Self)| {
            let name = name.to_owned();
            (Key { name, span: None }, node)
        };
        Value::Table(entries.into_iter().map(entry).collect()).into()
    }

    /// A table whose keys are the user's, for writing.
    pub(super) fn map(entries: impl IntoIterator<Item = (String, Self)>) -> Self {
        let entry = |(name, node)| (Key { name, span: None }, node);
        Value::Table(entries.into_iter().map(entry).collect()).into()
    }

    /// A list, for writing.
    pub(super) fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Value::List(items.into_iter().collect()).into()
    }

    /// A text, for writing.
    pub(super) fn text(text: impl fmt::Display) -> Self {
        Value::Text(text.to_string()).into()
    }

    /// A whole number, for writing.
    pub(super) fn number(number: impl Into<i128>) -> Self {
        Value::Integer(number.into()).into()
    }

    /// The tree of a TOML table, entries in the order written.
    pub(super) fn from_toml_table(table: &DeTable<'_>) -> Self {
        toml_table(table, None)
    }

    /// Counts its places from another beginning.
    pub(super) fn move_by(&mut self, bytes: usize) {
        let moved = |span: &mut Option<Range<usize>>| {
            if let Some(span) = span {
                *span = span.start + bytes..span.end + bytes;
            }
        };
        moved(&mut self.span);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.move_by(bytes)),
            Value::Table(entries) => {
                for (key, node) in entries {
                    moved(&mut key.span);
                    node.move_by(bytes);
                }
            }
            _ => {}
        }
    }

    /// The tree of a JSON value, or `None` if it is nested deeper than any profile.
    pub(super) fn from_json(json: &serde_json::Value) -> Option<Self> {
        json_node(json, 0)
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, span: None }
    }
}

impl Value {
    /// What it is, in words for a message.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Flag(_) => "true or false",
            Self::Integer(_) => "a number",
            Self::Decimal(_) => "a decimal number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

fn toml_table(table: &DeTable<'_>, span: Option<Range<usize>>) -> Node {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, value)| {
            let name = key.get_ref().clone().into_owned();
            let span = Some(key.span());
            (Key { name, span }, toml_node(value.get_ref(), value.span()))
        })
        .collect();
    // The parser sorts by name; the order written is part of a profile (its ports are shown in it).
    entries.sort_by_key(|(key, _)| key.span.as_ref().map(|span| span.start));
    let value = Value::Table(entries);
    Node { value, span }
}

// The parser bounds the depth (80 levels of brackets and of dotted keys), so that recursion is safe.
fn toml_node(value: &DeValue<'_>, span: Range<usize>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("a number beyond every bound"), Value::Integer),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or(Value::Other("a number beyond every bound"), Value::Decimal),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(items) => {
            let item = |item: &toml::Spanned<DeValue<'_>>| toml_node(item.get_ref(), item.span());
            Value::List(items.iter().map(item).collect())
        }
        DeValue::Table(table) => return toml_table(table, Some(span)),
    };
    let span = Some(span);
    Node { value, span }
}

fn json_node(json: &serde_json::Value, depth: usize) -> Option<Node> {
    const DEEPEST: usize = 128;
    if depth > DEEPEST {
        return None;
    }
    let value = match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(flag) => Value::Flag(*flag),
        serde_json::Value::Number(number) => match (number.as_i128(), number.as_f64()) {
            (Some(number), _) => Value::Integer(number),
            (None, Some(number)) => Value::Decimal(number),
            (None, None) => Value::Other("a number beyond every bound"),
        },
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Array(items) => {
            let items = items.iter().map(|item| json_node(item, depth + 1));
            Value::List(items.collect::<Option<_>>()?)
        }
        serde_json::Value::Object(entries) => {
            let entry = |(name, value): (&String, _)| {
                let name = name.clone();
                Some((Key { name, span: None }, json_node(value, depth + 1)?))
            };
            Value::Table(entries.iter().map(entry).collect::<Option<_>>()?)
        }
    };
    Some(value.into())
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null | Value::Other(_) => serializer.serialize_unit(),
            Value::Flag(flag) => serializer.serialize_bool(*flag),
            // 64 bits where they suffice: not every format has more.
            Value::Integer(number) => match i64::try_from(*number) {
                Ok(number) => serializer.serialize_i64(number),
                Err(_) => serializer.serialize_i128(*number),
            },
            Value::Decimal(number) => serializer.serialize_f64(*number),
            Value::Text(text) => serializer.serialize_str(text),
            Value::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Value::Table(entries) => {
                let mut table = serializer.serialize_map(Some(entries.len()))?;
                for (key, node) in entries {
                    table.serialize_entry(&key.name, node)?;
                }
                table.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

/// Keeps the order of keys, which `serde_json::Value` loses.
struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a profile")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Value::Null.into())
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node, E> {
        Ok(Value::Flag(flag).into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Value::Integer(number.into()).into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Value::Integer(number.into()).into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Value::Decimal(number).into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::list(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut table: Vec<(Key, Node)> = Vec::new();
        while let Some(name) = entries.next_key::<String>()? {
            if table.len() >= MAX_ENTRIES {
                return Err(A::Error::custom(
                    "a table has more entries than any profile",
                ));
            }
            table.push((Key { name, span: None }, entries.next_value()?));
        }
        Ok(Value::Table(table).into())
    }
}

/// The most entries of one table read from JSON.
const MAX_ENTRIES: usize = 65_536;
