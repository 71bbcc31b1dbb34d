//! The body of an HTTP answer, taken bit by bit and searched once: however slowly and in whatever pieces a server
//! sends it, the work is bounded by its length.

/// A body as far as it has come.
pub(super) struct Body {
    framing: Framing,
    text: Vec<u8>,
    /// No match begins before this.
    searched: usize,
}

/// Where the body stands after what has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its end has come.
    Ended,
    /// As much has come as is looked at.
    Full,
    /// More may come.
    More,
}

enum Framing {
    /// So many bytes follow.
    Length(u64),
    /// Everything until the connection ends.
    ToEnd,
    /// A line with the size of the next chunk follows.
    ChunkSize,
    /// So many bytes of this chunk follow.
    Chunk(u64),
    /// The line end after a chunk follows.
    ChunkEnd,
    /// The last chunk has come.
    Ended,
}

impl Body {
    /// The body of an answer with this header.
    pub(super) fn new(chunked: bool, length: Option<u64>) -> Self {
        Self {
            framing: match length {
                _ if chunked => Framing::ChunkSize,
                Some(length) => Framing::Length(length),
                None => Framing::ToEnd,
            },
            text: Vec::new(),
            searched: 0,
        }
    }

    /// Takes what it can of `read` and leaves the rest there.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words.
    pub(super) fn take(&mut self, read: &mut Vec<u8>) -> Result<Progress, String> {
        let malformed = || "the body has a malformed chunk".to_owned();
        loop {
            if self.text.len() >= LONGEST {
                return Ok(Progress::Full);
            }
            match &mut self.framing {
                Framing::Ended | Framing::Length(0) => return Ok(Progress::Ended),
                Framing::Length(left) => {
                    *left -= move_some(read, &mut self.text, *left);
                    if *left > 0 && self.text.len() < LONGEST {
                        return Ok(Progress::More);
                    }
                }
                Framing::ToEnd => {
                    move_some(read, &mut self.text, u64::MAX);
                    if self.text.len() < LONGEST {
                        return Ok(Progress::More);
                    }
                }
                Framing::ChunkSize => match httparse::parse_chunk_size(read) {
                    Ok(httparse::Status::Complete((line, size))) => {
                        read.drain(..line);
                        self.framing = if size == 0 {
                            Framing::Ended
                        } else {
                            Framing::Chunk(size)
                        };
                    }
                    Ok(httparse::Status::Partial) if read.len() < LONGEST_CHUNK_LINE => {
                        return Ok(Progress::More);
                    }
                    Ok(httparse::Status::Partial) | Err(_) => return Err(malformed()),
                },
                Framing::Chunk(left) => {
                    *left -= move_some(read, &mut self.text, *left);
                    if *left == 0 {
                        self.framing = Framing::ChunkEnd;
                    } else if self.text.len() < LONGEST {
                        return Ok(Progress::More);
                    }
                }
                Framing::ChunkEnd => match read.get(..2) {
                    Some(b"\r\n") => {
                        read.drain(..2);
                        self.framing = Framing::ChunkSize;
                    }
                    Some(_) => return Err(malformed()),
                    None => return Ok(Progress::More),
                },
            }
        }
    }

    /// Whether what has come contains `text`; what was searched before is not searched again.
    pub(super) fn contains(&mut self, text: &[u8]) -> bool {
        let mut fresh = self.text[self.searched..].windows(text.len().max(1));
        let found = text.is_empty() || fresh.any(|window| window == text);
        // The beginning of a match may have come.
        self.searched = (self.text.len() + 1)
            .saturating_sub(text.len())
            .max(self.searched);
        self.searched = self.searched.min(self.text.len());
        found
    }
}

/// Moves up to `most` bytes while the body has room; how many.
fn move_some(read: &mut Vec<u8>, text: &mut Vec<u8>, most: u64) -> u64 {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let room = LONGEST.saturating_sub(text.len());
    let count = read.len().min(most).min(room);
    text.extend(read.drain(..count));
    count as u64
}

/// The most of a body that is looked at.
const LONGEST: usize = 64 * 1024;
/// The longest line with the size of a chunk, its extensions included.
const LONGEST_CHUNK_LINE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the answer byte by byte, and says where it stands at the end and whether `text` was seen.
    fn drip(mut body: Body, answer: &[u8], text: &[u8]) -> (Result<Progress, String>, bool) {
        let (mut read, mut seen) = (Vec::new(), false);
        let mut progress = Ok(Progress::More);
        for byte in answer {
            read.push(*byte);
            progress = body.take(&mut read);
            seen |= body.contains(text);
            if progress != Ok(Progress::More) {
                break;
            }
        }
        (progress, seen)
    }

    #[test]
    fn a_text_is_found_across_pieces_and_chunks_and_not_beyond_the_announced_end() {
        let plain = || Body::new(false, Some(9));
        assert_eq!(
            drip(plain(), b"all ready", b"ready"),
            (Ok(Progress::Ended), true)
        );
        assert_eq!(
            drip(plain(), b"all readyX", b"yX"),
            (Ok(Progress::Ended), false)
        );
        let chunked = b"3\r\nrea\r\n2;x=y\r\ndy\r\n0\r\n\r\n";
        let (progress, seen) = drip(Body::new(true, None), chunked, b"ready");
        assert_eq!((progress, seen), (Ok(Progress::Ended), true));
        assert_eq!(
            drip(Body::new(false, None), b"rearready", b"ready"),
            (Ok(Progress::More), true)
        );
    }

    #[test]
    fn bad_chunks_are_refused_and_endless_ones_end() {
        for bad in [
            &b"zz\r\n"[..],
            b"3\r\nreadyready",
            b"ffffffffffffffffff\r\n",
            b"-1\r\n",
        ] {
            let (progress, _) = drip(Body::new(true, None), bad, b"x");
            assert!(progress.is_err(), "{}", String::from_utf8_lossy(bad));
        }
        let mut line = b"1;".to_vec();
        line.resize(5000, b'x');
        assert!(drip(Body::new(true, None), &line, b"x").0.is_err());
        let mut huge = b"fffffffffffffff\r\n".to_vec();
        huge.resize(200_000, b'x');
        assert_eq!(
            drip(Body::new(true, None), &huge, b"y"),
            (Ok(Progress::Full), false)
        );
    }
}
