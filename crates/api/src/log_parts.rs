//! How a stream of output is laid out in files: a growing one, and parts that were cut off its beginning.
//!
//! A position in a stream counts from the incarnation's first byte. `stdout.log` grows; when it is large, its
//! beginning is moved to `stdout.<END>.log`, where `END` is the position after the part's last byte. So the
//! greatest `END` is the position of the first byte of `stdout.log`, and nothing else has to be stored.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::local::{LogStream, ReplicaFolder};

/// How much of each stream is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogBounds {
    /// How large one file grows, in bytes.
    pub size: u64,
    /// How many files there are of each stream, the growing one among them.
    pub files: u32,
}

impl LogBounds {
    /// The smallest file, in bytes: what is cut off is a multiple of a file system's blocks.
    pub const MIN_SIZE: u64 = 64 << 10;
    /// The largest file, in bytes.
    pub const MAX_SIZE: u64 = 1 << 40;
    /// The most files.
    pub const MAX_FILES: u32 = 100;
}

impl Default for LogBounds {
    /// 3 files of 50 MB.
    fn default() -> Self {
        Self {
            size: 50_000_000,
            files: 3,
        }
    }
}

impl LogStream {
    /// The streams that the service writes, which are cut into parts.
    pub const OUTPUT: [Self; 2] = [Self::Stdout, Self::Stderr];

    const fn stem(self) -> Option<&'static str> {
        match self {
            Self::Stdout => Some("stdout"),
            Self::Stderr => Some("stderr"),
            Self::Events | Self::EventsBefore => None,
        }
    }

    /// The position after the part of this stream that has this file name; `None` for any other name.
    #[must_use]
    pub fn part_end(self, file_name: &str) -> Option<u64> {
        let number = file_name.strip_prefix(self.stem()?)?;
        let number = number.strip_prefix('.')?.strip_suffix(".log")?;
        let end: u64 = number.parse().ok()?;
        (end.to_string() == number).then_some(end)
    }
}

impl ReplicaFolder {
    /// The part of an output stream that ends before the position `end`; `None` if the stream has no parts.
    #[must_use]
    pub fn log_part(&self, stream: LogStream, end: u64) -> Option<PathBuf> {
        let stem = stream.stem()?;
        Some(self.path().join(format!("{stem}.{end}.log")))
    }

    /// Present while a part has its name and is not yet cut off the growing file: until it is gone, what is
    /// read there may be at another position.
    #[must_use]
    pub fn log_moving(&self, stream: LogStream) -> Option<PathBuf> {
        Some(self.path().join(format!("{}.moving", stream.stem()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parts_name_tells_its_end_and_nothing_else_is_a_part() {
        let folder = ReplicaFolder::at("/x");
        let path = folder.log_part(LogStream::Stdout, 4096).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, "stdout.4096.log");
        assert_eq!(LogStream::Stdout.part_end(name), Some(4096));
        assert_eq!(LogStream::Stderr.part_end(name), None);
        for strange in [
            "stdout.log",
            "stdout..log",
            "stdout.04.log",
            "stdout.+4.log",
            "stdout.4.log.new",
            "stdout.99999999999999999999.log",
        ] {
            assert_eq!(LogStream::Stdout.part_end(strange), None, "{strange}");
        }
        assert_eq!(folder.log_part(LogStream::Events, 1), None);
    }
}
