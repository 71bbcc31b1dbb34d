//! What a scheduler says: one JSON object per line on standard input.
//!
//! ```json
//! {"command": "stop", "grace": "5s", "id": "7"}
//! {"command": "restart"}
//! {"command": "tell"}
//! ```
//!
//! Each line is answered by one status line. The end of the input is no command: whoever supervises this
//! process may be gone for a while, and the service is worth more than its supervisor.

use std::io::{self, BufRead, Read};

use portreeve::time::parse_duration;
use portreeve_api::local::WorkerCommand;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use super::status_lines::{Answer, StatusLines};
use crate::orders::Order;

/// The longest line, in bytes.
const MAX_LINE: usize = 64 << 10;
/// The longest name of a command, in bytes.
const MAX_ID: usize = 128;

/// A line as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    command: Word,
    grace: Option<String>,
    id: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Stop,
    Restart,
    Tell,
}

impl Word {
    const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Tell => "tell",
        }
    }
}

/// Reads commands until the input or the driver ends, in a thread of its own: standard input cannot be waited
/// for everywhere else, and its end must not be the worker's.
///
/// # Errors
///
/// The system's, if there is no thread to be had.
pub(super) fn serve(
    input: impl Read + Send + 'static,
    orders: mpsc::Sender<Order>,
    lines: StatusLines,
) -> io::Result<()> {
    std::thread::Builder::new()
        .name("commands".into())
        .stack_size(128 << 10)
        .spawn(move || {
            let mut input = io::BufReader::new(input);
            loop {
                let answer = match next_line(&mut input) {
                    Ok(None) | Err(_) => {
                        tracing::info!("no more commands come; the service goes on");
                        return;
                    }
                    Ok(Some(Err(words))) => refused(None, None, &words),
                    Ok(Some(Ok(line))) if line.iter().all(u8::is_ascii_whitespace) => continue,
                    Ok(Some(Ok(line))) => match obey(&line, &orders) {
                        Some(answer) => answer,
                        // The replica ended; its last line is told.
                        None => return,
                    },
                };
                lines.answer(answer);
            }
        })?;
    Ok(())
}

/// The answer to one line, or `None` if nobody takes orders any more.
fn obey(line: &[u8], orders: &mpsc::Sender<Order>) -> Option<Answer> {
    let (word, id, command) = match read(line) {
        Ok(command) => command,
        Err(answer) => return Some(answer),
    };
    let (reply, answered) = oneshot::channel();
    orders.blocking_send((command, reply)).ok()?;
    let answer = answered.blocking_recv().ok()?;
    Some(Answer {
        answer: Some(word.name()),
        id,
        refused: answer.refused,
    })
}

fn read(line: &[u8]) -> Result<(Word, Option<String>, WorkerCommand), Answer> {
    let written: Written = serde_json::from_slice(line)
        .map_err(|cause| refused(None, None, &format!("this is no command: {cause}")))?;
    let Written { command, grace, id } = written;
    if id.as_ref().is_some_and(|id| id.len() > MAX_ID) {
        let words = format!("an id has at most {MAX_ID} bytes");
        return Err(refused(Some(command), None, &words));
    }
    let order = match (command, grace) {
        (Word::Stop, None) => WorkerCommand::Stop { grace: None },
        (Word::Stop, Some(grace)) => match parse_duration(&grace) {
            Ok(grace) => WorkerCommand::Stop { grace: Some(grace) },
            Err(cause) => return Err(refused(Some(command), id, &format!("grace: {cause}"))),
        },
        (_, Some(_)) => return Err(refused(Some(command), id, "only a stop has a grace")),
        (Word::Restart, None) => WorkerCommand::Restart,
        (Word::Tell, None) => WorkerCommand::Tell,
    };
    Ok((command, id, order))
}

/// Reads the bytes as lines, whatever they say.
#[cfg(fuzzing)]
pub(crate) fn read_lines(mut bytes: &[u8]) {
    while let Ok(Some(line)) = next_line(&mut bytes) {
        if let Ok(line) = line
            && let Err(answer) = read(&line)
        {
            let words = serde_json::to_string(&answer).expect("plain data is written as JSON");
            assert!(
                words.len() < 16 << 10,
                "an answer does not echo without bound"
            );
        }
    }
}

fn refused(word: Option<Word>, id: Option<String>, words: &str) -> Answer {
    Answer {
        answer: word.map(Word::name),
        id,
        refused: Some(format!("{words}; nothing changed")),
    }
}

/// The next line without its end; `None` at the end of the input. Of a line that is too long nothing is kept.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Result<Vec<u8>, String>>> {
    let mut line = Vec::new();
    let mut long = false;
    loop {
        let piece = match input.fill_buf() {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            piece => piece?,
        };
        if piece.is_empty() {
            break;
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(piece.len(), |end| end + 1);
        line.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        input.consume(taken);
        if line.len() > MAX_LINE {
            long = true;
            line.clear();
        }
        if end.is_some() {
            return Ok(Some(match long {
                true => Err(format!("a line has at most {MAX_LINE} bytes")),
                false => Ok(line),
            }));
        }
    }
    // What was cut off is no command: half a number is a number too.
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_command_is_read_with_its_grace_and_its_name() {
        let (word, id, command) = read(br#"{"command":"stop","grace":"1500ms","id":"a"}"#).unwrap();
        assert_eq!((word.name(), id.as_deref()), ("stop", Some("a")));
        let grace = Some(Duration::from_millis(1500));
        assert_eq!(command, WorkerCommand::Stop { grace });
        let (_, _, command) = read(br#" {"command":"restart"} "#).unwrap();
        assert_eq!(command, WorkerCommand::Restart);
    }

    #[test]
    fn what_is_no_command_is_refused_with_a_reason() {
        for (line, words) in [
            ("garbage", "this is no command"),
            ("{}", "missing field `command`"),
            (r#"{"command":"fly"}"#, "unknown variant `fly`"),
            (r#"{"command":"tell","now":1}"#, "unknown field `now`"),
            (r#"{"command":"stop","grace":"soon"}"#, "grace: "),
            (
                r#"{"command":"restart","grace":"1s"}"#,
                "only a stop has a grace",
            ),
            ("\u{0}", "this is no command"),
        ] {
            let said = read(line.as_bytes()).unwrap_err().refused.unwrap();
            assert!(said.contains(words), "{line}: {said}");
            assert!(said.ends_with("; nothing changed"), "{said}");
        }
        let long = format!(r#"{{"command":"tell","id":"{}"}}"#, "x".repeat(200));
        assert!(read(long.as_bytes()).is_err());
    }

    #[test]
    fn a_line_that_never_ends_takes_no_memory_and_the_next_one_counts() {
        let mut text = vec![b'x'; 10 << 20];
        text.extend_from_slice(b"\n{\"command\":\"tell\"}\n{\"command\":\"stop\"");
        let mut input = io::BufReader::new(&text[..]);
        assert!(next_line(&mut input).unwrap().unwrap().is_err());
        let line = next_line(&mut input).unwrap().unwrap().unwrap();
        assert!(read(&line).is_ok());
        // Cut off.
        assert!(next_line(&mut input).unwrap().is_none());
    }
}
