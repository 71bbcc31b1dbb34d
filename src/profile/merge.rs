//! One profile over another: field by field, lists as a whole, named things by their names.

use super::document::{Key, Node, Value};

const FORMS: [&str; 4] = ["http", "tcp", "command", "listening"];

/// How two values of one field become one.
#[derive(Clone, Copy)]
enum Rule {
    /// The upper one stands alone.
    Replace,
    /// Entry by entry; what both have is replaced.
    Entries,
    Profile,
    Restart,
    GiveUp,
    Probe,
    Ports,
    Port,
    Placement,
}

/// `upper` over `lower`, both whole profiles. Values keep their places.
pub(super) fn over(lower: Node, upper: Node) -> Node {
    Rule::Profile.merged(lower, upper)
}

impl Rule {
    const fn of_field(self, name: &str) -> Self {
        match (self, name.as_bytes()) {
            (Self::Profile, b"restart") => Self::Restart,
            (Self::Profile, b"startup" | b"liveness" | b"readiness") => Self::Probe,
            (Self::Profile, b"ports") => Self::Ports,
            (Self::Profile, b"placement") => Self::Placement,
            (Self::Profile, b"env" | b"labels" | b"stop")
            | (Self::Restart, b"backoff")
            | (Self::Placement, b"labels") => Self::Entries,
            (Self::Restart, b"give_up") => Self::GiveUp,
            (Self::Ports, _) => Self::Port,
            _ => Self::Replace,
        }
    }

    /// Whether a field of the lower layer cannot stand beside what the upper one writes.
    fn excludes(self, upper: &[(Key, Node)], lower: &str) -> bool {
        let writes = |names: &[&str]| {
            upper
                .iter()
                .any(|(key, _)| names.contains(&key.name.as_str()))
        };
        match (self, lower) {
            (Self::Probe, "within") => writes(&["failure_threshold"]),
            (Self::Probe, "failure_threshold") => writes(&["within"]),
            // The form that is written is meant, and nothing of another's or of its own below.
            (Self::Probe, form) => FORMS.contains(&form) && writes(&FORMS),
            (Self::Port, "any" | "fixed") => writes(&["any", "fixed"]),
            (Self::Port, "range") => writes(&["fixed"]),
            (Self::GiveUp, "rest" | "max_requeues") => upper.iter().any(|(key, node)| {
                key.name == "then" && node.value == Value::Text("exit".to_owned())
            }),
            _ => false,
        }
    }

    fn merged(self, lower: Node, upper: Node) -> Node {
        let (lower, upper) = match self {
            Self::Replace => return upper,
            Self::Port => (port_table(lower), port_table(upper)),
            _ => (lower, upper),
        };
        match (lower.value, upper.value) {
            (Value::Table(lower), Value::Table(entries)) => Node {
                value: Value::Table(self.entries(lower, entries)),
                span: upper.span,
            },
            (_, value) => Node {
                value,
                span: upper.span,
            },
        }
    }

    fn entries(self, lower: Vec<(Key, Node)>, upper: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
        let mut merged = lower;
        merged.retain(|(key, _)| !self.excludes(&upper, &key.name));
        let below = merged.len();
        let mut taken = vec![false; below];
        for (key, node) in upper {
            let free =
                |(nth, (other, _)): &(usize, &(Key, Node))| !taken[*nth] && other.name == key.name;
            let nth = merged[..below].iter().enumerate().find(free);
            let Some(nth) = nth.map(|(nth, _)| nth) else {
                // New, or written twice above, which is told where the whole is read.
                merged.push((key, node));
                continue;
            };
            taken[nth] = true;
            let rule = self.of_field(&key.name);
            let lower = std::mem::replace(&mut merged[nth].1, Value::Null.into());
            merged[nth] = (key, rule.merged(lower, node));
        }
        merged
    }
}

/// A port in its long form, so that its fields can stand beside another layer's.
fn port_table(port: Node) -> Node {
    let name = match &port.value {
        Value::Text(text) if text == "any" => "any",
        Value::Integer(_) => "fixed",
        _ => return port,
    };
    let span = port.span.clone();
    let value = match port.value {
        Value::Integer(number) => Value::Integer(number),
        _ => Value::Integer(1),
    };
    let key = Key {
        name: name.to_owned(),
        span: span.clone(),
    };
    let node = Node {
        value,
        span: span.clone(),
    };
    Node {
        value: Value::Table(vec![(key, node)]),
        span,
    }
}
