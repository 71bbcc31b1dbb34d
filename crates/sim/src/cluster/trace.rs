//! What happened, step by step: a number that stands for all of it, and the words, if somebody wants them.
//!
//! Two runs are equal if their digests are. The words hold what is handed to whom, everything that is seen, and the
//! content of every commit by its own digest, so nothing that matters escapes them.

use std::fmt::{self, Write as _};

/// A running digest of bytes, the same on every machine: FNV-1a of 64 bits. It tells runs apart; it protects from nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn eat(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.eat(text.as_bytes());
        Ok(())
    }
}

/// The trace of a run so far.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    digest: Digest,
    words: Option<String>,
}

impl Trace {
    /// One that keeps its words too: for short runs.
    pub(crate) fn in_words() -> Self {
        Self {
            words: Some(String::new()),
            ..Self::default()
        }
    }

    /// Adds one line.
    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) {
        // Neither a number nor a string refuses words.
        let _ = self.digest.write_fmt(line);
        self.digest.eat(b"\n");
        if let Some(words) = &mut self.words {
            let _ = words.write_fmt(line);
            words.push('\n');
        }
    }

    /// The number that stands for all of it.
    #[cfg(test)]
    pub(crate) const fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Every line so far, where they are kept; empty where not.
    pub(crate) fn words(&self) -> &str {
        self.words.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_words() {
        let (mut plain, mut told) = (Trace::default(), Trace::in_words());
        for trace in [&mut plain, &mut told] {
            trace.line(format_args!("{} {}", 1, "web"));
            trace.line(format_args!("second"));
        }
        assert_eq!(told.words(), "1 web\nsecond\n");
        let mut digest = Digest::default();
        digest.eat(told.words().as_bytes());
        assert_eq!(digest.value(), told.digest());
        assert_eq!(plain.digest(), told.digest());
        assert_eq!(plain.words(), "");
    }

    #[test]
    fn the_digest_is_the_published_one() {
        let mut digest = Digest::default();
        digest.eat(b"foobar");
        assert_eq!(digest.value(), 0x8594_4171_f739_67e8);
    }
}
