//! What the daemons read that is neither a profile nor a body: lines, files, tokens, answers.

use portreeve_agent::fuzzing as agent;
use portreeve_api::fuzzing as api;
use portreeve_controller::fuzzing as controller;
use portreeve_worker::fuzzing as worker;

use crate::{choice, text};

/// A job's lines on the agent's socket.
pub(crate) fn agent_lines(bytes: &[u8]) {
    let lines = agent::job_lines(bytes);
    assert!(lines <= bytes.iter().filter(|byte| **byte == b'\n').count());
}

/// A backup, packed and not.
pub(crate) fn backup(bytes: &[u8]) {
    controller::backup(bytes);
}

/// A file of secret variables.
pub(crate) fn env_file(bytes: &[u8]) {
    for (name, value) in worker::variables(text(bytes)).unwrap_or_default() {
        assert!(!name.is_empty() && !name.contains(['=', '\0']));
        assert!(!value.contains('\n'));
    }
}

/// A stream of events, however it is cut into pieces.
pub(crate) fn events(bytes: &[u8]) {
    let (piece, bytes) = choice(bytes);
    let cut = api::events(bytes, usize::from(piece));
    assert_eq!(cut, api::events(bytes, bytes.len()));
}

/// A file of limits.
pub(crate) fn limits(bytes: &[u8]) {
    assert!(controller::limits(text(bytes)) <= 21);
}

/// An answer to an HTTP probe, however it is cut into pieces.
pub(crate) fn probe_answer(bytes: &[u8]) {
    let (piece, bytes) = choice(bytes);
    let cut = worker::probe_answer(bytes, b"ok", usize::from(piece));
    let whole = worker::probe_answer(bytes, b"ok", bytes.len());
    // One that is wrong behind the text is not read so far where it comes in pieces.
    if cut != Ok(true) {
        assert_eq!(cut, whole);
    }
}

/// A scheduler's lines to a worker.
pub(crate) fn scheduler_lines(bytes: &[u8]) {
    worker::scheduler_lines(bytes);
}

/// What worker and shim say to each other.
pub(crate) fn shim(bytes: &[u8]) {
    let (kind, bytes) = choice(bytes);
    match kind % 3 {
        0 => worker::launch(bytes),
        1 => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            assert!(worker::shim_commands(bytes) <= lines);
        }
        _ => worker::shim_state(bytes),
    }
}

/// The kernel's answers about sockets.
pub(crate) fn socket_answer(bytes: &[u8]) {
    api::socket_answer(bytes);
}

/// A replica's token.
pub(crate) fn token(bytes: &[u8]) {
    // What it claims.
    let _ = controller::token(text(bytes));
}
