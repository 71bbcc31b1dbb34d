//! Where a service may run and who may see it.

use std::collections::BTreeMap;

use crate::identity::HostName;
use crate::port::excerpt;
use crate::profile::host_list::{self, HostListError};
use crate::profile::{Audience, PlacementRule, Visibility};

use super::value::MAX_TEXT;
use super::{Field, Reader, Value};

pub(super) const KEYS: &[&str] = &["hosts", "exclude", "labels"];

const MAX_AUDIENCES: usize = 256;
const AUDIENCE: &str = "write \"group:NAME\" or \"user:NAME\"";

impl<'d> Reader<'d> {
    /// `[placement]`.
    pub(super) fn placement(&mut self, field: Option<Field<'d>>) -> PlacementRule {
        let table = field.and_then(|field| self.table(&field, KEYS));
        let part = |name: &str| table.as_ref().and_then(|table| table.field(name));
        let rule = PlacementRule {
            hosts: self.hosts(part("hosts")),
            exclude: self.hosts(part("exclude")),
            labels: self.labels(part("labels")),
        };
        let some = !rule.hosts.is_empty();
        let all_excluded = rule.hosts.iter().all(|host| rule.exclude.contains(host));
        if let (true, true, Some(field)) = (some, all_excluded, part("exclude")) {
            self.refuse(&field, "it excludes every host of hosts", "leave one host");
        }
        rule
    }

    /// A host list, or a list of host lists; each host once, in the order written.
    fn hosts(&mut self, field: Option<Field<'d>>) -> Vec<HostName> {
        const LIST: &str = "write a host list such as \"n[01-16],login1\"";
        let Some(field) = field else {
            return Vec::new();
        };
        let parts = match &field.node.value {
            Value::List(_) => self.list(&field, host_list::MOST, LIST).unwrap_or_default(),
            _ => vec![field.clone()],
        };
        let mut hosts: Vec<HostName> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut named = 0;
        for part in &parts {
            let Some(text) = self.text(part, host_list::LONGEST, LIST) else {
                continue;
            };
            let expanded = host_list::expand(text).and_then(|more| {
                // A host named again counts again, since it costs again.
                named += more.len();
                let bounded = named <= host_list::MOST;
                bounded.then_some(more).ok_or(HostListError::TooMany)
            });
            match expanded {
                Ok(more) => hosts.extend(more.into_iter().filter(|host| seen.insert(host.clone()))),
                Err(error) => {
                    self.refuse(part, &error, LIST);
                    if error == HostListError::TooMany {
                        break;
                    }
                }
            }
        }
        if matches!(&field.node.value, Value::List(items) if items.is_empty()) {
            self.refuse(
                &field,
                "an empty list names no host",
                "leave it out to allow every host",
            );
        }
        hosts
    }

    /// Free words and their values.
    pub(super) fn labels(&mut self, field: Option<Field<'d>>) -> BTreeMap<String, String> {
        const MOST: usize = 64;
        const NAME: &str = "write 1 to 63 of letters, digits and . _ / -, a letter or digit first";
        let mut labels = BTreeMap::new();
        let allowed = "write a table of texts, such as { model = \"m1\" }";
        let Some(table) = field.and_then(|field| self.map(&field, allowed)) else {
            return labels;
        };
        self.at_most(&table, MOST);
        for (name, field) in table.fields().take(MOST) {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
            let first = name.bytes().next();
            let well_formed = (1..=63).contains(&name.len())
                && name.bytes().all(allowed)
                && first.is_some_and(|byte| byte.is_ascii_alphanumeric());
            if !well_formed {
                let problem = format_args!("{:?} is no label's name", excerpt(name));
                self.note(&field.path, field.key_at(), problem, NAME);
            }
            let value = self
                .text(&field, 256, "write a text in quotes")
                .unwrap_or_default();
            if value.chars().any(char::is_control) {
                self.refuse(
                    &field,
                    "the value has a control character",
                    "write it in one line",
                );
            }
            if labels.insert(name.to_owned(), value.to_owned()).is_some() {
                self.refuse(&field, "written twice", "write it once");
            }
        }
        labels
    }

    /// `visibility`: one of two words, or a list.
    pub(super) fn visibility(&mut self, field: Option<Field<'d>>) -> Visibility {
        let Some(field) = field else {
            return Visibility::Private;
        };
        match &field.node.value {
            Value::Text(text) if text == "private" => Visibility::Private,
            Value::Text(text) if text == "cluster" => Visibility::Cluster,
            Value::List(_) => Visibility::Listed(self.audiences(&field)),
            value => {
                let allowed = "write \"private\", \"cluster\" or a list such as [\"group:chem\"]";
                match value {
                    Value::Text(text) => {
                        let problem = format_args!("{:?} is not known", excerpt(text));
                        self.refuse(&field, problem, allowed);
                    }
                    _ => self.refuse_kind(&field, allowed),
                }
                Visibility::Private
            }
        }
    }

    /// A list of groups and users, each once.
    pub(super) fn audiences(&mut self, field: &Field<'d>) -> Vec<Audience> {
        let allowed = "write a list such as [\"group:chem\", \"user:bob\"]";
        let mut audiences = Vec::new();
        for item in self.list(field, MAX_AUDIENCES, allowed).unwrap_or_default() {
            let Some(text) = self.text(&item, MAX_TEXT, AUDIENCE) else {
                continue;
            };
            let plain = |name: &str| {
                let broken = |c: char| c.is_control() || c.is_whitespace() || c == ':' || c == '/';
                (1..=256).contains(&name.len()) && !name.contains(broken)
            };
            let audience = match text.split_once(':') {
                Some(("group", name)) if plain(name) => Audience::Group(name.to_owned()),
                Some(("user", name)) if plain(name) => Audience::User(name.to_owned()),
                _ => {
                    let problem = format_args!("{:?} is neither a group nor a user", excerpt(text));
                    self.refuse(&item, problem, AUDIENCE);
                    continue;
                }
            };
            if !audiences.contains(&audience) {
                audiences.push(audience);
            }
        }
        audiences
    }
}
