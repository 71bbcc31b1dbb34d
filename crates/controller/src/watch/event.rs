//! The events of a stream, and how they are written as server-sent events and as lines of JSON.

use std::sync::Arc;
use std::time::Duration;

use portreeve::identity::ServiceName;
use serde_json::{Value, json};

use super::asked::Format;
use super::since::Reset;

/// One event. Whoever has it and all before it has everything up to its revision.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) kind: Kind,
}

/// What it tells.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// All endpoints of one service that the view shows: JSON, an object.
    Endpoints(Arc<[u8]>, Previous),
    /// What changed of them since the previous revision: JSON, an object.
    Changes(Arc<[u8]>, Previous),
    /// A service has gone, or may not be seen any more.
    Removed(ServiceName, Previous),
    /// Nothing is left to tell; stale: of some hosts only what was stored is known.
    Bookmark { stale: bool },
    /// Drop everything: all that is there follows.
    Reset(Reset),
    /// The stream ends; come back after this time.
    Bye(End, Duration),
    /// Nothing happened.
    Heartbeat,
}

/// The revision of the service that the peer had before.
pub(crate) type Previous = Option<u64>;

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The controller stops.
    Stopping,
    /// The stream is old enough.
    Age,
    /// The token that opened it is not good any more.
    Token,
}

/// An event as bytes: what it shares with other watchers in the middle.
#[derive(Debug)]
pub(crate) struct Text {
    before: String,
    shared: Arc<[u8]>,
    /// How much of the shared part is written: an object without its end, for one more member.
    taken: usize,
    after: String,
}

impl Text {
    pub(crate) fn pieces(&self) -> [&[u8]; 3] {
        [
            self.before.as_bytes(),
            &self.shared[..self.taken],
            self.after.as_bytes(),
        ]
    }
}

impl Event {
    /// The event as the stream of `epoch` writes it.
    pub(crate) fn text(&self, format: Format, epoch: &str) -> Text {
        let revision = self.revision;
        let (name, data) = match &self.kind {
            Kind::Endpoints(body, previous) => {
                return self.with_body("endpoints", body, *previous, format, epoch);
            }
            Kind::Changes(body, previous) => {
                return self.with_body("changes", body, *previous, format, epoch);
            }
            Kind::Removed(service, previous) => (
                "removed",
                json!({
                    "service": service.to_string(), "revision": revision, "previous": previous,
                }),
            ),
            Kind::Bookmark { stale } => ("bookmark", bookmark(format, revision, *stale)),
            Kind::Reset(reset) => ("reset", json!({ "reason": reset.reason() })),
            Kind::Bye(end, retry) => (
                "bye",
                json!({ "reason": end.reason(), "retry_ms": millis(*retry) }),
            ),
            Kind::Heartbeat => ("", bookmark(format, revision, false)),
        };
        plain(match (format, &self.kind) {
            (Format::Events, Kind::Heartbeat) => format!(": hb {revision}\n\n"),
            (Format::Events, Kind::Bye(_, retry)) => format!(
                "retry: {}\nid: {epoch}.{revision}\nevent: bye\ndata: {data}\n\n",
                millis(*retry)
            ),
            (Format::Events, _) => {
                format!("id: {epoch}.{revision}\nevent: {name}\ndata: {data}\n\n")
            }
            (Format::Lines, Kind::Heartbeat | Kind::Bookmark { .. }) => format!("{data}\n"),
            (Format::Lines, _) => {
                format!("{{\"event\":\"{name}\",\"id\":\"{epoch}.{revision}\",\"data\":{data}}}\n")
            }
        })
    }

    /// The shared object with the one member that is this peer's own.
    fn with_body(
        &self,
        name: &str,
        body: &Arc<[u8]>,
        previous: Previous,
        format: Format,
        epoch: &str,
    ) -> Text {
        let revision = self.revision;
        let previous = Value::from(previous);
        let (before, end) = match format {
            Format::Events => (
                format!("id: {epoch}.{revision}\nevent: {name}\ndata: "),
                "\n\n",
            ),
            Format::Lines => (
                format!("{{\"event\":\"{name}\",\"id\":\"{epoch}.{revision}\",\"data\":"),
                "}\n",
            ),
        };
        Text {
            before,
            shared: Arc::clone(body),
            taken: body.len().saturating_sub(1),
            after: format!(",\"previous\":{previous}}}{end}"),
        }
    }
}

impl End {
    const fn reason(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Age => "age",
            Self::Token => "token",
        }
    }
}

fn bookmark(format: Format, revision: u64, stale: bool) -> Value {
    let name = match format {
        Format::Events => "revision",
        Format::Lines => "bookmark",
    };
    let mut data = json!({ name: revision });
    if stale {
        data["stale"] = true.into();
    }
    data
}

fn plain(text: String) -> Text {
    Text {
        before: text,
        shared: Arc::from([]),
        taken: 0,
        after: String::new(),
    }
}

/// Whole milliseconds of a time that is far below their bound.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: Kind, format: Format) -> String {
        let event = Event { revision: 7, kind };
        String::from_utf8(event.text(format, "e1").pieces().concat()).unwrap()
    }

    #[test]
    fn an_event_is_one_data_line_or_one_line_of_json() {
        let body: Arc<[u8]> = br#"{"service":"web.alice","endpoints":[]}"#.as_slice().into();
        let kinds = [
            (
                Kind::Endpoints(Arc::clone(&body), Some(3)),
                "id: e1.7\nevent: endpoints\ndata: {\"service\":\"web.alice\",\"endpoints\":[],\"previous\":3}\n\n",
            ),
            (
                Kind::Changes(body, None),
                "id: e1.7\nevent: changes\ndata: {\"service\":\"web.alice\",\"endpoints\":[],\"previous\":null}\n\n",
            ),
            (
                Kind::Removed("web.alice".parse().unwrap(), Some(3)),
                "id: e1.7\nevent: removed\ndata: {\"previous\":3,\"revision\":7,\"service\":\"web.alice\"}\n\n",
            ),
            (
                Kind::Bookmark { stale: true },
                "id: e1.7\nevent: bookmark\ndata: {\"revision\":7,\"stale\":true}\n\n",
            ),
            (
                Kind::Reset(Reset::Future),
                "id: e1.7\nevent: reset\ndata: {\"reason\":\"revision_from_the_future\"}\n\n",
            ),
            (
                Kind::Bye(End::Stopping, Duration::from_millis(2731)),
                "retry: 2731\nid: e1.7\nevent: bye\ndata: {\"reason\":\"stopping\",\"retry_ms\":2731}\n\n",
            ),
            (Kind::Heartbeat, ": hb 7\n\n"),
        ];
        for (kind, expected) in kinds {
            assert_eq!(written(kind.clone(), Format::Events), expected);
            let line = written(kind.clone(), Format::Lines);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            let read: Value = serde_json::from_str(&line).unwrap();
            match kind {
                Kind::Bookmark { .. } | Kind::Heartbeat => assert_eq!(read["bookmark"], 7),
                _ => {
                    assert_eq!(read["id"], "e1.7");
                    let data = expected.split("data: ").nth(1).unwrap();
                    assert_eq!(read["data"], serde_json::from_str::<Value>(data).unwrap());
                }
            }
        }
    }
}
