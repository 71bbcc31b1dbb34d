//! What `make fuzz` calls of this crate that nobody else may: readers of bytes that a job, its files or a service wrote.

use crate::alone;
use crate::{env_file, probe, shim};

/// Reads a shim's first line.
pub fn launch(bytes: &[u8]) {
    shim::read_launch_of(bytes);
}

/// Reads what a worker says to a shim after that, and how many commands there were.
#[must_use]
pub fn shim_commands(bytes: &[u8]) -> usize {
    shim::read_commands_of(bytes)
}

/// Reads what a shim says of its run; what is accepted is written and read again.
pub fn shim_state(bytes: &[u8]) {
    let Ok(state) = serde_json::from_slice::<shim::ShimState>(bytes) else {
        return;
    };
    let text = serde_json::to_vec(&state).expect("plain data is written as JSON");
    let again: shim::ShimState = serde_json::from_slice(&text).expect("what was written is read");
    assert_eq!(again, state);
}

/// Reads the variables of an `env_file`.
#[must_use]
pub fn variables(text: &str) -> Option<Vec<(String, String)>> {
    env_file::variables(text).ok()
}

/// Reads what a scheduler says to a worker on its standard input.
pub fn scheduler_lines(bytes: &[u8]) {
    alone::read_lines(bytes);
}

/// Reads an answer to an HTTP probe, and looks for a text in its body, as it comes in pieces of at most `piece` bytes.
#[must_use]
pub fn probe_answer(bytes: &[u8], text: &[u8], piece: usize) -> Result<bool, String> {
    probe::read_answer(bytes, text, piece)
}
