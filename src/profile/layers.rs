//! What a submitted profile stands on and what is set over it: the site's profiles that it extends, the
//! profile itself, the flags of the submission.
//!
//! The caller brings every text. Bytes of all layers are counted in one line, each layer from its own
//! base on, so that one number still says where a value stands.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::de::DeTable;

use crate::identity::Label;
use crate::port::excerpt;

use super::document::{Node, Value};
use super::error::{Place, ProfileErrors};
use super::lines::Lines;
use super::merge;
use super::parse::{MAX_FILE, json_document, utf8};
use super::read::{Note, nearest};
use super::syntax::{self, Lost};

/// The most profiles of the site that one profile may stand on.
pub const MAX_LAYERS: usize = 8;

/// The most `FIELD=VALUE` set over one profile.
pub const MAX_FLAGS: usize = 64;

const SITE: &str = "site/";
const EXTENDS: &str = "write the name of a profile of the site, such as \"site/gpu-service\"";

/// Where a value of an effective profile was set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Nowhere: what holds where nothing is written.
    Default,
    /// In a profile of the site.
    Site(Label),
    /// In the submitted profile.
    Profile,
    /// By a flag of the submission.
    Flag,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Site(name) => write!(f, "{SITE}{name}"),
            Self::Profile => f.write_str("profile"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

impl FromStr for Layer {
    type Err = ParseLayerError;

    fn from_str(text: &str) -> Result<Self, ParseLayerError> {
        let site = text.strip_prefix(SITE).and_then(|name| name.parse().ok());
        match (text, site) {
            (_, Some(name)) => Ok(Self::Site(name)),
            ("default", None) => Ok(Self::Default),
            ("profile", None) => Ok(Self::Profile),
            ("flag", None) => Ok(Self::Flag),
            _ => Err(ParseLayerError {
                text: excerpt(text),
            }),
        }
    }
}

/// Not the name of a layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no layer: default, site/NAME, profile or flag")]
pub struct ParseLayerError {
    text: String,
}

impl<'de> Deserialize<'de> for Layer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Layer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The site's profiles, `site/NAME` each, as they are when asked.
pub trait SiteProfiles {
    /// The text of `site/NAME`; no more than [`MAX_FILE`] bytes and one need be there. `None`: there is none.
    ///
    /// # Errors
    ///
    /// Why it is there and cannot be read, in words.
    fn read(&self, name: &Label) -> Result<Option<Cow<'_, [u8]>>, String>;

    /// The names that can be extended, in order.
    fn names(&self) -> Vec<Label>;
}

impl SiteProfiles for BTreeMap<Label, String> {
    fn read(&self, name: &Label) -> Result<Option<Cow<'_, [u8]>>, String> {
        Ok(self.get(name).map(|text| Cow::Borrowed(text.as_bytes())))
    }

    fn names(&self) -> Vec<Label> {
        self.keys().cloned().collect()
    }
}

/// A profile as it is submitted.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The profile itself.
    pub body: Body<'a>,
    /// `FIELD=VALUE` each, over the profile; a later one wins. A value that is no TOML is taken as a text.
    pub flags: &'a [String],
}

/// The bytes of a profile, whatever they are.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// TOML, at most [`MAX_FILE`] bytes.
    Toml(&'a [u8]),
    /// JSON, at most [`MAX_JSON`](super::MAX_JSON) bytes.
    Json(&'a [u8]),
}

/// What was submitted, beside the effective profile that was made of it then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The text, as it came.
    pub text: String,
    /// What the submission set over it, `FIELD=VALUE` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The site's profiles it stood on, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extends: Vec<Label>,
}

/// One layer, read as far as it can be.
pub(super) struct Read {
    pub(super) layer: Layer,
    /// What a message calls it; `None`: the submitted profile, which the reader has before him.
    pub(super) label: Option<String>,
    pub(super) text: Option<String>,
    /// Where its bytes begin in the common line.
    pub(super) base: usize,
    pub(super) tree: Node,
    broken: Vec<Note>,
}

/// All layers of one profile: the submitted one, the flags in their order, the site's from near to far.
#[derive(Default)]
pub(super) struct Stack {
    layers: Vec<Read>,
    /// Where the next layer's bytes begin.
    end: usize,
    pub(super) lost: Lost,
    pub(super) errors: Vec<Note>,
}

impl Stack {
    /// The stack of one text alone, whose `extends` finds nothing but what `site` has.
    pub(super) fn of(written: Written<'_>, site: &dyn SiteProfiles) -> Result<Self, ProfileErrors> {
        let mut stack = Self::default();
        match written.body {
            Body::Toml(bytes) => {
                stack.push_toml(Layer::Profile, None, utf8(bytes, MAX_FILE)?);
            }
            Body::Json(bytes) => stack.push_tree(json_document(bytes)?),
        }
        stack.set(written.flags);
        stack.extend(site);
        Ok(stack)
    }

    /// The stack of a tree without a text.
    pub(super) fn of_tree(tree: Node, site: &dyn SiteProfiles) -> Self {
        let mut stack = Self::default();
        stack.push_tree(tree);
        stack.extend(site);
        stack
    }

    /// The same where there is no site, so that `extends` finds nothing. Apart, because this is all that the
    /// plugin reads: it has no reader of TOML in it.
    pub(super) fn alone(mut tree: Node) -> Self {
        let mut stack = Self::default();
        let wish = take_extends(&mut tree);
        stack.push_tree(tree);
        if let Some(node) = wish {
            let none = BTreeMap::new();
            let named = name_of(&node, &none);
            let (text, allowed) =
                named.map_or_else(|refused| refused, |name| unknown(&name, &none));
            let at = node.span.as_ref().map(|span| span.start);
            stack.refuse("extends", at, text, &allowed);
            stack.lost.everything();
        }
        stack
    }

    fn push_tree(&mut self, tree: Node) {
        self.layers.push(Read {
            layer: Layer::Profile,
            label: None,
            text: None,
            base: 0,
            tree,
            broken: Vec::new(),
        });
        // Never the place of a value that has none.
        self.end += 1;
    }

    fn push_toml(&mut self, layer: Layer, label: Option<String>, text: &str) {
        let base = self.end;
        let (mut tree, mut broken, lost) = syntax::read(text);
        tree.move_by(base);
        for note in &mut broken {
            note.at = note.at.map(|at| at + base);
        }
        self.lost.add(lost);
        // One more, so that the end of a text is not the beginning of the next.
        self.end += text.len() + 1;
        self.layers.push(Read {
            layer,
            label,
            text: Some(text.to_owned()),
            base,
            tree,
            broken,
        });
    }

    fn refuse(&mut self, field: &str, at: Option<usize>, text: String, allowed: &str) {
        self.errors.push(Note {
            field: field.to_owned(),
            at,
            text,
            allowed: allowed.to_owned(),
        });
    }

    /// Puts the flags over the profile.
    fn set(&mut self, flags: &[String]) {
        const FLAG: &str = "write FIELD=VALUE, such as restart.policy=never";
        if flags.len() > MAX_FLAGS {
            let text = format!("{} flags are too many", flags.len());
            self.refuse("", Some(0), text, &format!("set at most {MAX_FLAGS}"));
        }
        for flag in flags.iter().take(MAX_FLAGS) {
            let (field, value) = flag.split_once('=').unwrap_or((flag, ""));
            let field = field.trim();
            let label = Some(format!("--set {}", excerpt(field)));
            if field.is_empty() || !flag.contains('=') || flag.len() > MAX_FILE {
                let at = Some(self.end);
                self.push_toml(Layer::Flag, label, "");
                let text = format!("{:?} sets no field", excerpt(flag));
                self.refuse("", at, text, FLAG);
            } else {
                self.push_toml(Layer::Flag, label, &statement(field, value));
            }
        }
    }

    /// Follows `extends` from the submission down.
    fn extend(&mut self, site: &dyn SiteProfiles) {
        let mut wish = None;
        for read in &mut self.layers {
            // Of several, the flag that came last.
            wish = take_extends(&mut read.tree).or(wish);
        }
        let mut chain: Vec<Label> = Vec::new();
        while let Some(node) = wish {
            let at = node.span.as_ref().map(|span| span.start);
            let read = name_of(&node, site).and_then(|name| {
                let known = chain.contains(&name);
                chain.push(name.clone());
                if known {
                    let names: Vec<_> = chain.iter().map(|name| format!("{SITE}{name}")).collect();
                    let text = format!("the chain comes back to itself: {}", names.join(" -> "));
                    return Err((
                        text,
                        "extend a profile that does not extend this one".to_owned(),
                    ));
                }
                if chain.len() > MAX_LAYERS {
                    let text = format!("{SITE}{name} would be layer {} of the site", chain.len());
                    return Err((text, format!("stand on at most {MAX_LAYERS}")));
                }
                let bytes = site.read(&name);
                let bytes =
                    bytes.map_err(|why| (format!("{SITE}{name}: {why}"), ASK.to_owned()))?;
                let bytes = bytes.ok_or_else(|| unknown(&name, site))?;
                let text = utf8(&bytes, MAX_FILE);
                let text = text.map_err(|why| (format!("{SITE}{name}: {why}"), ASK.to_owned()))?;
                Ok((name, text.to_owned()))
            });
            wish = match read {
                Ok((name, text)) => {
                    let label = Some(format!("{SITE}{name}"));
                    self.push_toml(Layer::Site(name), label, &text);
                    let newest = self.layers.last_mut();
                    newest.and_then(|read| take_extends(&mut read.tree))
                }
                Err((text, allowed)) => {
                    self.refuse("extends", at, text, &allowed);
                    // What is missing may stand in what could not be had.
                    self.lost.everything();
                    None
                }
            };
        }
    }

    /// Everything that broke the texts or stands in the way of a layer.
    pub(super) fn take_errors(&mut self) -> Vec<Note> {
        let mut errors = std::mem::take(&mut self.errors);
        for read in &mut self.layers {
            errors.append(&mut read.broken);
        }
        errors
    }

    /// One tree of all layers: what is written above stands for what is written below.
    pub(super) fn merged(&self) -> Node {
        let (flags, rest): (Vec<_>, Vec<_>) =
            (self.layers.iter()).partition(|read| read.layer == Layer::Flag);
        // From the farthest of the site up to the profile, then the flags in their order.
        let mut order = rest.into_iter().rev().chain(flags).map(|read| &read.tree);
        let lowest = order.next().cloned();
        let lowest = lowest.unwrap_or_else(|| Node::table(Vec::new()));
        order.fold(lowest, |lower, upper| merge::over(lower, upper.clone()))
    }

    /// The site's layers, the nearest first.
    pub(super) fn of_site(&self) -> impl Iterator<Item = (&Label, &Read)> {
        self.layers.iter().filter_map(|read| match &read.layer {
            Layer::Site(name) => Some((name, read)),
            _ => None,
        })
    }

    /// Which layer a place belongs to; without one, the profile that came without a text.
    pub(super) fn layer_of(&self, at: Option<usize>) -> &Read {
        let nth = at.map_or(0, |at| {
            self.layers.partition_point(|read| read.base <= at).max(1) - 1
        });
        self.layers
            .get(nth)
            .expect("a stack is made with the submitted profile in it")
    }

    pub(super) fn places(&self) -> Places<'_> {
        let texts = self.layers.iter().map(|read| read.text.as_deref());
        Places {
            stack: self,
            lines: texts.map(|text| text.map(Lines::of)).collect(),
        }
    }
}

/// Says where a byte of the common line stands.
pub(super) struct Places<'s> {
    stack: &'s Stack,
    lines: Vec<Option<Lines<'s>>>,
}

impl Places<'_> {
    /// The layer's name, if it is another than the submitted profile, and the place in it.
    pub(super) fn of(&self, at: Option<usize>) -> (Option<String>, Option<Place>) {
        let read = self.stack.layer_of(at);
        if read.layer == Layer::Flag {
            return (read.label.clone(), None);
        }
        let nth = self.stack.layers.iter().position(|it| it.base == read.base);
        let lines = nth.and_then(|nth| self.lines[nth].as_ref());
        // Something missing stands where its table begins.
        let place = lines.map(|lines| lines.place(at.unwrap_or(read.base) - read.base));
        (read.label.clone(), place)
    }
}

const ASK: &str = "tell the site's administrator";

/// `FIELD=VALUE` as a line of TOML.
fn statement(field: &str, value: &str) -> String {
    let plain = format!("{field} = {value}");
    if !value.contains('\n') && DeTable::parse(&plain).is_ok() {
        return plain;
    }
    // JSON's escapes are TOML's.
    format!("{field} = {}", serde_json::Value::from(value))
}

fn take_extends(tree: &mut Node) -> Option<Node> {
    let Value::Table(entries) = &mut tree.value else {
        return None;
    };
    let nth = entries.iter().position(|(key, _)| key.name == "extends")?;
    Some(entries.remove(nth).1)
}

fn name_of(node: &Node, site: &dyn SiteProfiles) -> Result<Label, (String, String)> {
    let refuse = |text: String| Err((text, EXTENDS.to_owned()));
    let Value::Text(text) = &node.value else {
        return refuse(format!("{} does not stand here", node.value.kind()));
    };
    let name = text.strip_prefix(SITE).and_then(|name| name.parse().ok());
    if let Some(name) = name {
        return Ok(name);
    }
    let bare = text.parse().ok().filter(|name| site.names().contains(name));
    match bare {
        Some(name) => refuse(format!(
            "{text:?} is not known, did you mean \"{SITE}{name}\"?"
        )),
        None => refuse(format!("{:?} names no profile of the site", excerpt(text))),
    }
}

fn unknown(name: &Label, site: &dyn SiteProfiles) -> (String, String) {
    let names = site.names();
    let words: Vec<&str> = names.iter().map(Label::as_str).collect();
    let meant = nearest(name.as_str(), &words)
        .map(|near| format!(", did you mean \"{SITE}{near}\"?"))
        .unwrap_or_default();
    let text = format!("the site has no profile {SITE}{name}{meant}");
    let allowed = if words.is_empty() {
        "no profile of the site is known here".to_owned()
    } else {
        const SHOWN: usize = 20;
        let shown: Vec<_> = words
            .iter()
            .take(SHOWN)
            .map(|name| format!("{SITE}{name}"))
            .collect();
        let more = if words.len() > SHOWN { ", …" } else { "" };
        format!("known here: {}{more}", shown.join(", "))
    };
    (text, allowed)
}
