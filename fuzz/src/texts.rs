//! Short texts that stand for something: what is accepted is written as something that reads as the same.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use portreeve::host_addr::{AddressRule, NamedNetwork};
use portreeve::identity::{HostName, Label, Namespace, NetworkName, ServiceName};
use portreeve::port::{Port, PortName, PortRanges, Protocol};
use portreeve::profile::{Layer, Template, expand_hosts, is_variable};
use portreeve::registry::AgentIdentity;
use portreeve::time::parse_duration;
use portreeve_api::Target;
use portreeve_api::containment::{Choice, Rung};
use portreeve_api::local::Ids;
use portreeve_api::moment::Moment;

use crate::{choice, text};

/// A set of ports.
pub(crate) fn ranges(bytes: &[u8]) {
    let text = text(bytes);
    let ranges = match text.parse::<PortRanges>() {
        Ok(ranges) => ranges,
        Err(cause) => {
            assert!(cause.to_string().len() < 1024, "a refusal is bounded");
            return;
        }
    };
    assert!(ranges.count() >= 1 && ranges.count() <= 65_535);
    assert_eq!(ranges.iter().count(), ranges.count() as usize);
    // Sorted, and neighbours are merged.
    for pair in ranges.as_slice().windows(2) {
        assert!(u32::from(pair[0].last().number()) + 1 < u32::from(pair[1].first().number()));
    }
    again::<PortRanges>(text);
    let json = serde_json::to_string(&ranges).expect("plain data is written as JSON");
    let read: PortRanges = serde_json::from_str(&json).expect("what was written is read");
    assert_eq!(read, ranges);
}

/// The first byte chooses of what kind the text is.
pub(crate) fn texts(bytes: &[u8]) {
    let (kind, bytes) = choice(bytes);
    let text = text(bytes);
    match kind % 16 {
        0 => again::<ServiceName>(text),
        1 => again::<HostName>(text),
        2 => again::<Label>(text),
        3 => again::<Namespace>(text),
        4 => again::<NetworkName>(text),
        5 => again::<Port>(text),
        6 => again::<PortName>(text),
        7 => again::<Protocol>(text),
        8 => again::<Target>(text),
        9 => again::<AgentIdentity>(text),
        10 => again::<Ids>(text),
        11 => {
            let _ = (
                text.parse::<Choice>(),
                text.parse::<Rung>(),
                text.parse::<Moment>(),
            );
        }
        12 => {
            let _ = (text.parse::<AddressRule>(), text.parse::<NamedNetwork>());
            let _ = (text.parse::<Layer>(), is_variable(text));
        }
        13 => {
            if let Ok(hosts) = expand_hosts(text) {
                assert!(hosts.len() <= 1 << 20, "a list of hosts is bounded");
            }
        }
        14 => {
            if let Err(cause) = parse_duration(text) {
                assert!(cause.to_string().len() < 1024);
            }
        }
        _ => {
            if let Ok(template) = Template::parse(text) {
                let written = template.to_string();
                assert_eq!(
                    Template::parse(&written).as_ref(),
                    Ok(&template),
                    "{written}"
                );
            }
        }
    }
}

fn again<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(read) => {
            let written = read.to_string();
            assert_eq!(
                written.parse::<T>().ok().as_ref(),
                Some(&read),
                "{written:?}"
            );
        }
        Err(cause) => assert!(cause.to_string().len() < 4096, "a refusal is bounded"),
    }
}
