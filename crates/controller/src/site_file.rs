//! Files of the site that are read at the start and again on change: their text, and what is wrong in it, by line.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portreeve_api::plain_file;
use tokio::sync::watch;

use crate::stop::Stop;
use crate::vital;

/// A longer file is none of the site's.
const MOST_BYTES: u64 = 1 << 20;
/// The most errors told of one file.
const MOST_ERRORS: usize = 20;

/// How often it is looked at: after at most this long a change holds.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 5_000 });

/// A file, and what it said when it was last read.
#[derive(Debug)]
pub(crate) struct SiteFile {
    path: PathBuf,
    /// What is in it.
    what: &'static str,
    text: String,
    /// How it is wrong since, if it is.
    broken: Option<SiteFileError>,
}

/// When a file is looked at again, and until when.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    /// Rises when somebody wishes it.
    pub(crate) wished: watch::Receiver<u64>,
    pub(crate) stopping: Stop,
}

impl SiteFile {
    /// Reads the file.
    pub(crate) fn open<T>(
        path: &Path,
        what: &'static str,
        read: impl Fn(&str) -> Result<T, Vec<String>>,
    ) -> Result<(Self, T), SiteFileError> {
        let path = path.to_owned();
        let text = text_of(&path)?;
        let said = read(&text).map_err(|problems| SiteFileError {
            path: path.clone(),
            problems,
        })?;
        let file = Self {
            path,
            what,
            text,
            broken: None,
        };
        Ok((file, said))
    }

    /// What it says once that is something else that can be used; `None`: the controller stops. What cannot be used is
    /// said once for each form in which it is wrong.
    pub(crate) async fn next<T>(
        &mut self,
        read: impl Fn(&str) -> Result<T, Vec<String>>,
        follow: &mut Follow,
    ) -> Option<T> {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOKED_AT_EVERY) => {}
                wished = follow.wished.changed() => wished.ok()?,
                () = follow.stopping.said() => return None,
            }
            let path = self.path.clone();
            let text = vital::blocking(self.what, move || text_of(&path)).await;
            let broken = match text {
                Ok(text) if text == self.text => {
                    self.broken = None;
                    continue;
                }
                Ok(text) => match read(&text) {
                    Ok(said) => {
                        tracing::info!(path = %self.path.display(), "other {} hold", self.what);
                        (self.text, self.broken) = (text, None);
                        return Some(said);
                    }
                    Err(problems) => SiteFileError {
                        path: self.path.clone(),
                        problems,
                    },
                },
                Err(cause) => cause,
            };
            if self.broken.as_ref() != Some(&broken) {
                tracing::error!(cause = %broken, "the {} stay as they were", self.what);
                self.broken = Some(broken);
            }
        }
    }
}

/// Why a file of the site cannot be used: everything that is wrong with it, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteFileError {
    path: PathBuf,
    /// `line:column: ` and what is wrong; without a place where the file as a whole cannot be read.
    problems: Vec<String>,
}

impl std::error::Error for SiteFileError {}

impl fmt::Display for SiteFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, problem) in self.problems.iter().enumerate() {
            let end = if nth == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{problem}", self.path.display())?;
        }
        Ok(())
    }
}

/// What is wrong, each with its place in the text.
pub(crate) type Problems = Vec<(Range<usize>, String)>;

/// The text of a file.
fn text_of(path: &Path) -> Result<String, SiteFileError> {
    let mut text = String::new();
    let read =
        plain_file::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
    let problem = match read {
        Ok(_) if text.len() as u64 > MOST_BYTES => "it is longer than 1 MiB".to_owned(),
        Ok(_) => return Ok(text),
        Err(cause) => cause.to_string(),
    };
    Err(SiteFileError {
        path: path.to_owned(),
        problems: vec![format!(" {problem}")],
    })
}

/// What was read of a text, or everything that is wrong with it, a line each.
pub(crate) fn unless<T>(text: &str, mut problems: Problems, read: T) -> Result<T, Vec<String>> {
    if problems.is_empty() {
        return Ok(read);
    }
    problems.sort_by_key(|(at, _)| at.start);
    let further = problems.len().saturating_sub(MOST_ERRORS);
    problems.truncate(MOST_ERRORS);
    let told = problems.into_iter().map(|(at, problem)| {
        let (line, column) = place(text, at.start);
        format!("{line}:{column}: {problem}")
    });
    let further = (further > 0).then(|| format!(" and {further} more"));
    Err(told.chain(further).collect())
}

/// Line and column in characters, from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    (line, column)
}
