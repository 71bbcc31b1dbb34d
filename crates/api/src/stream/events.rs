//! Server-sent events (WHATWG HTML, section 9.2) out of the bytes of an answer, however they are cut into pieces.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// What a line or a block of lines says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A block with an event or data in it.
    Event {
        /// Its name, `message` without one.
        name: String,
        /// The last id given, in this block or before.
        id: Option<String>,
        /// Its data lines.
        data: String,
    },
    /// How long to wait before the next connect.
    Retry(Duration),
    /// A line for nobody: the sender lives.
    Comment,
}

/// Reads the events of one connection.
///
/// Holds one line and one block, together at most [`Reader::MAX`] bytes, and the items of the last piece.
#[derive(Debug, Default)]
pub(super) struct Reader {
    line: Vec<u8>,
    /// The line before ended with a carriage return, of which a line feed may be the other half.
    half_end: bool,
    any_line: bool,
    name: String,
    data: Vec<u8>,
    id: Option<String>,
    ready: VecDeque<Item>,
}

/// A line or an event has no end within [`Reader::MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Reader {
    /// The most bytes of one event: as many as of a whole answer.
    pub(super) const MAX: usize = crate::Client::MAX_BODY;
    /// The longest id that is kept; it is to fit in a header.
    const MAX_ID: usize = 256;

    /// Reads one more piece; its items come out of [`Reader::next`].
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if mem::take(&mut self.half_end) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + self.data.len() + part.len() > Self::MAX {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if let Some(last) = rest.first() {
                self.half_end = *last == b'\r';
                bytes = &rest[1..];
                let mut line = mem::take(&mut self.line);
                if !mem::replace(&mut self.any_line, true) && line.starts_with(b"\xef\xbb\xbf") {
                    line.drain(..3);
                }
                self.end_line(&line);
            } else {
                bytes = rest;
            }
        }
        Ok(())
    }

    /// The next item of what was fed.
    pub(super) fn next(&mut self) -> Option<Item> {
        self.ready.pop_front()
    }

    fn end_line(&mut self, line: &[u8]) {
        if line.is_empty() {
            return self.end_block();
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"" => self.ready.push_back(Item::Comment),
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            // What is no header text could not be given back.
            b"id" if value.len() <= Self::MAX_ID && value.iter().all(u8::is_ascii_graphic) => {
                let id = String::from_utf8_lossy(value).into_owned();
                self.id = Some(id).filter(|id| !id.is_empty());
            }
            b"retry" => {
                let number = std::str::from_utf8(value).ok().map(str::parse::<u32>);
                if let Some(Ok(ms)) = number {
                    self.ready
                        .push_back(Item::Retry(Duration::from_millis(ms.into())));
                }
            }
            _ => {}
        }
    }

    fn end_block(&mut self) {
        let mut data = mem::take(&mut self.data);
        let name = mem::take(&mut self.name);
        // The standard drops an event without data; ours with a name and no data are meant.
        if data.pop().is_none() && name.is_empty() {
            return;
        }
        self.ready.push_back(Item::Event {
            name: if name.is_empty() {
                "message".to_owned()
            } else {
                name
            },
            id: self.id.clone(),
            data: String::from_utf8_lossy(&data).into_owned(),
        });
    }
}

/// What a stream in such pieces says.
#[cfg(fuzzing)]
pub(crate) fn read_pieces(bytes: &[u8], piece: usize) -> Vec<String> {
    let mut reader = Reader::default();
    let mut items = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        if reader.feed(piece).is_err() {
            break;
        }
        items.extend(std::iter::from_fn(|| reader.next()).map(|item| format!("{item:?}")));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<Item> {
        let mut reader = Reader::default();
        let mut items = Vec::new();
        for piece in pieces {
            reader.feed(piece).unwrap();
            items.extend(std::iter::from_fn(|| reader.next()));
        }
        items
    }

    fn event(name: &str, id: Option<&str>, data: &str) -> Item {
        Item::Event {
            name: name.to_owned(),
            id: id.map(str::to_owned),
            data: data.to_owned(),
        }
    }

    const STREAM: &[u8] =
        b"\xef\xbb\xbfretry: 2731\n\nid: 4f1c.17\nevent: endpoints\r\ndata: {\"a\":\ndata: 1}\n\n\
        : hb 17\n\nevent: bye\rdata\r\r\nnonsense\nid\ndata:x\n\n\n";

    #[test]
    fn events_are_read_as_they_were_written() {
        let expected = vec![
            Item::Retry(Duration::from_millis(2731)),
            event("endpoints", Some("4f1c.17"), "{\"a\":\n1}"),
            Item::Comment,
            event("bye", Some("4f1c.17"), ""),
            event("message", None, "x"),
        ];
        assert_eq!(read(&[STREAM]), expected);
    }

    #[test]
    fn pieces_may_be_cut_anywhere() {
        let whole = read(&[STREAM]);
        for at in 0..STREAM.len() {
            let (first, second) = STREAM.split_at(at);
            assert_eq!(read(&[first, second]), whole, "cut at {at}");
        }
        let bytes: Vec<_> = STREAM.chunks(1).collect();
        assert_eq!(read(&bytes), whole);
    }

    #[test]
    fn an_event_without_an_end_is_refused_before_it_fills_the_memory() {
        let mut reader = Reader::default();
        let piece = [b'x'; 1 << 20];
        let fed = (0..=Reader::MAX >> 20).try_for_each(|_| reader.feed(&piece));
        assert_eq!(fed, Err(TooLong));
        let mut reader = Reader::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        let fed = (0..=Reader::MAX >> 20).try_for_each(|_| reader.feed(&line));
        assert_eq!(fed, Err(TooLong));
    }

    #[test]
    fn an_id_that_is_no_header_text_is_not_kept() {
        let items = read(&[b"id: a b\ndata: x\n\nid: \x00\ndata: y\n\n"]);
        assert_eq!(
            items,
            [event("message", None, "x"), event("message", None, "y")]
        );
    }
}
