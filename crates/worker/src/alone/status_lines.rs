//! Tells a scheduler what happens, one JSON object per line, and never waits for it.
//!
//! A thread of its own does the writing. It holds the newest status, what was reported since the line before
//! and the answers to commands, all bounded: a reader that is slow or gone loses detail and nothing else.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portreeve::registry::Desired;
use portreeve::supervision::{Report, Status};
use serde::Serialize;

/// How many reports wait for one line; the oldest are dropped.
const MOST_REPORTS: usize = 32;
/// How many answers wait to be written; the oldest are dropped.
const MOST_ANSWERS: usize = 16;

/// One line.
#[derive(Clone, Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    who: Who,
    /// Of the status; 0 before the first.
    run: u32,
    seq: u64,
    /// To which command it is the answer, if to one.
    #[serde(flatten)]
    answer: Option<Answer>,
    /// What happened since the line before, each beginning with a word of the supervision page.
    reports: Vec<String>,
    /// How many reports are not listed, for nobody read them in time.
    #[serde(skip_serializing_if = "is_zero")]
    reports_lost: u64,
    status: Option<Status>,
}

/// Whose lines they are.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Who {
    service: String,
    replica: u32,
    incarnation: u32,
}

impl Who {
    pub(crate) fn of(desired: &Desired) -> Self {
        Self {
            service: desired.service.to_string(),
            replica: desired.index,
            incarnation: desired.incarnation.0,
        }
    }
}

/// What a command is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    /// The command's word; `None` for what was no command.
    pub(crate) answer: Option<&'static str>,
    /// What the asker called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// Why nothing was done, if so.
    pub(crate) refused: Option<String>,
}

/// The end of the lines that everybody writes to. Clones write to the same.
#[derive(Clone)]
pub(crate) struct StatusLines(Arc<Shared>);

struct Shared {
    who: Who,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    status: Option<Status>,
    /// The status is newer than the line before.
    new: bool,
    reports: VecDeque<String>,
    reports_lost: u64,
    answers: VecDeque<Answer>,
    /// Lines on their way to the reader.
    writing: bool,
    /// The reader is gone.
    closed: bool,
}

impl StatusLines {
    /// Lines of `who` to `file`.
    ///
    /// # Errors
    ///
    /// The system's, if there is no thread to be had.
    pub(crate) fn to(file: File, who: Who) -> io::Result<Self> {
        let lines = Self(Arc::new(Shared {
            who,
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }));
        let shared = lines.0.clone();
        std::thread::Builder::new()
            .name("status".into())
            .stack_size(128 << 10)
            .spawn(move || shared.write(file))?;
        Ok(lines)
    }

    /// Tells the newest status, and what was reported with it.
    pub(crate) fn tell(&self, status: Option<Status>, reports: impl Iterator<Item = Report>) {
        let mut waiting = self.0.lock();
        if waiting.closed {
            return;
        }
        let mut reports = reports.peekable();
        // A line is a change: what is told a second time is none.
        if waiting.status == status && reports.peek().is_none() {
            return;
        }
        waiting.status = status;
        waiting.new = waiting.status.is_some();
        for report in reports {
            if waiting.reports.len() == MOST_REPORTS {
                waiting.reports.pop_front();
                waiting.reports_lost += 1;
            }
            waiting.reports.push_back(report.to_string());
        }
        self.0.changed.notify_all();
    }

    /// Answers a command, with the newest status.
    pub(crate) fn answer(&self, answer: Answer) {
        let mut waiting = self.0.lock();
        if waiting.closed {
            return;
        }
        if waiting.answers.len() == MOST_ANSWERS {
            waiting.answers.pop_front();
        }
        waiting.answers.push_back(answer);
        self.0.changed.notify_all();
    }

    /// Waits until everything is written or nobody reads, at most this long.
    pub(crate) fn finish(&self, at_most: Duration) {
        let waiting = self.0.lock();
        _ = self
            .0
            .changed
            .wait_timeout_while(waiting, at_most, |waiting| {
                !waiting.closed && (waiting.writing || waiting.has_line())
            });
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No code of ours panics while it holds it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until the reader is gone. Ends with the process else.
    fn write(&self, mut file: File) {
        loop {
            let mut waiting = self.lock();
            while !waiting.has_line() {
                waiting.writing = false;
                self.changed.notify_all();
                waiting = self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            waiting.writing = true;
            let line = waiting.next_line(&self.who);
            drop(waiting);
            let mut text = serde_json::to_vec(&line).unwrap_or_default();
            text.push(b'\n');
            // One write, so that a line is whole wherever the pipe's buffer allows it.
            if let Err(cause) = file.write_all(&text).and_then(|()| file.flush()) {
                tracing::warn!("nobody reads the status any more, the service goes on: {cause}");
                let mut waiting = self.lock();
                *waiting = Waiting {
                    closed: true,
                    ..Waiting::default()
                };
                self.changed.notify_all();
                return;
            }
        }
    }
}

impl Waiting {
    fn has_line(&self) -> bool {
        self.new || !self.answers.is_empty()
    }

    fn next_line(&mut self, who: &Who) -> Line {
        self.new = false;
        let status = self.status.clone();
        Line {
            who: who.clone(),
            run: status.as_ref().map_or(0, |status| status.run.0),
            seq: status.as_ref().map_or(0, |status| status.seq),
            answer: self.answers.pop_front(),
            reports: self.reports.drain(..).collect(),
            reports_lost: std::mem::take(&mut self.reports_lost),
            status,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::identity::Run;
    use portreeve::supervision::State;
    use std::io::{BufRead, BufReader};

    fn status(seq: u64) -> Status {
        Status {
            run: Run(1),
            seq,
            state: State::Up,
            ready: true,
            ..Status::silent()
        }
    }

    fn lines() -> (StatusLines, io::PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let who = Who {
            service: "web.alice".into(),
            replica: 0,
            incarnation: 3,
        };
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        (StatusLines::to(file, who).unwrap(), reader)
    }

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn a_reader_that_does_not_read_gets_the_newest_status_and_a_count_of_what_it_missed() {
        let (lines, reader) = lines();
        // Far more than a pipe holds.
        for seq in 1..=5_000 {
            lines.tell(Some(status(seq)), std::iter::once(Report::Ready));
            lines.answer(Answer {
                answer: Some("tell"),
                id: None,
                refused: None,
            });
        }
        let mut told = Vec::new();
        for line in BufReader::new(reader).lines() {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            let newest = line["seq"] == 5_000;
            told.push(line);
            if newest {
                break;
            }
        }
        let newest = told.last().unwrap();
        assert!(newest["reports"].as_array().unwrap().len() <= MOST_REPORTS);
        let listed: usize = told
            .iter()
            .map(|line| line["reports"].as_array().unwrap().len())
            .sum();
        let lost: u64 = told
            .iter()
            .map(|line| line["reports_lost"].as_u64().unwrap_or(0))
            .sum();
        assert_eq!(listed as u64 + lost, 5_000);
        assert!(told.len() < 5_000);
    }

    #[test]
    fn a_reader_that_is_gone_is_no_reason_to_wait() {
        let (lines, reader) = lines();
        drop(reader);
        lines.tell(Some(status(1)), std::iter::empty());
        lines.finish(SOON);
        assert!(lines.0.lock().closed);
        lines.tell(Some(status(2)), std::iter::once(Report::Ready));
        assert!(lines.0.lock().reports.is_empty());
    }

    #[test]
    fn what_is_told_twice_is_one_line() {
        let (lines, reader) = lines();
        for seq in [1, 1, 2] {
            lines.tell(Some(status(seq)), std::iter::empty());
            lines.finish(SOON);
        }
        let told = BufReader::new(reader).lines().take(2);
        let told: Vec<serde_json::Value> = told
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect();
        assert_eq!((&told[0]["seq"], &told[1]["seq"]), (&1.into(), &2.into()));
    }

    #[test]
    fn the_end_waits_until_the_last_line_is_written() {
        let (lines, reader) = lines();
        lines.tell(Some(status(7)), std::iter::once(Report::Ready));
        lines.finish(SOON);
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        assert!(line.starts_with(
            r#"{"service":"web.alice","replica":0,"incarnation":3,"run":1,"seq":7,"reports":["READY"],"status":{"#
        ), "{line}");
    }
}
