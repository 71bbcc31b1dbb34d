//! The effective profile value by value, each with the layer that set it.

use serde::{Deserialize, Serialize};

use super::Profile;
use super::document::{Node, Value};
use super::layers::{Layer, Stack};
use super::read::path_of;
use crate::supervision::Window;
use crate::time::Spelled;

/// One value of an effective profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectiveValue {
    /// The field, such as `restart.backoff.max` or `env.HF_HOME`.
    pub field: String,
    /// The value as a profile writes it.
    pub value: serde_json::Value,
    /// Which layer set it.
    pub layer: Layer,
}

/// Every value of `profile`, in the order of the schema, with its layer as `merged` tells it.
pub(super) fn values(profile: &Profile, merged: &Node, stack: &Stack) -> Vec<EffectiveValue> {
    let mut walk = Walk {
        stack,
        found: Vec::new(),
    };
    walk.value("", &profile.written(), Some(merged));
    walk.window_by_the_rule(profile);
    walk.found
}

struct Walk<'s> {
    stack: &'s Stack,
    found: Vec<EffectiveValue>,
}

impl Walk<'_> {
    fn value(&mut self, path: &str, effective: &Node, written: Option<&Node>) {
        match &effective.value {
            Value::Table(entries) if !entries.is_empty() => {
                for (key, node) in entries {
                    let written = written.and_then(|written| said(path, written, &key.name));
                    self.value(&path_of(path, &key.name), node, written);
                }
            }
            _ => {
                let layer = written.map_or(Layer::Default, |node| {
                    let at = node.span.as_ref().map(|span| span.start);
                    self.stack.layer_of(at).layer.clone()
                });
                self.found.push(EffectiveValue {
                    field: path.to_owned(),
                    // A tree that was made from a profile has nothing that JSON has not.
                    value: serde_json::to_value(effective).unwrap_or_default(),
                    layer,
                });
            }
        }
    }
}

impl Walk<'_> {
    /// A window that nobody wrote follows from other values, and is not written out for that.
    fn window_by_the_rule(&mut self, profile: &Profile) {
        const WINDOW: &str = "restart.give_up.window";
        let window = match &profile.supervision.give_up {
            Some(rule) => rule.window,
            None => return,
        };
        let restarts = "restart.give_up.max_restarts";
        let before = self.found.iter().position(|it| it.field == restarts);
        let (Window::Span(span), Some(before)) = (window, before) else {
            return;
        };
        if self.found.iter().all(|it| it.field != WINDOW) {
            let value = EffectiveValue {
                field: WINDOW.to_owned(),
                value: Spelled(span).to_string().into(),
                layer: Layer::Default,
            };
            self.found.insert(before + 1, value);
        }
    }
}

/// What is written of a field, under its own name or another.
fn said<'n>(path: &str, table: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Table(entries) = &table.value else {
        // `http = "any"` and `http = 9100` say which number and nothing else.
        let number = path.starts_with("ports.") && matches!(name, "any" | "fixed");
        return number.then_some(table);
    };
    let entry = |name: &str| entries.iter().find(|(key, _)| key.name == name);
    let found = entry(name).or_else(|| match (path, name) {
        ("startup", "failure_threshold") => entry("within"),
        _ => None,
    });
    found.map(|(_, node)| node)
}
