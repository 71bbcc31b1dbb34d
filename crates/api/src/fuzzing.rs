//! What `make fuzz` calls of this crate that nobody else may: readers of bytes that others wrote.

use crate::{sockets, stream};

/// Reads an answer of the kernel about sockets, as a list and as one connection.
pub fn socket_answer(bytes: &[u8]) {
    sockets::read_answer(bytes);
}

/// Reads a stream of events that comes in pieces of at most `piece` bytes, and tells what was read, for comparing.
#[must_use]
pub fn events(bytes: &[u8], piece: usize) -> Vec<String> {
    stream::read_pieces(bytes, piece)
}
