//! How answers are shown: tables for people, plain lines in a pipe, JSON for programs.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use portreeve::time::WallClock;
use serde::Serialize;

use crate::exit::Failure;

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table on a terminal, tab-separated lines in a pipe
    #[default]
    Table,
    /// JSON, as the REST API answers
    Json,
}

/// Prints `value` as JSON, for programs and people alike.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::plain)?;
    print(&format!("{text}\n"))
}

/// Writes to standard output. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Rows under a heading: aligned on a terminal, tab-separated with the heading left out in a pipe.
pub(crate) fn rows(heading: &[&str], rows: Vec<Vec<String>>) -> String {
    if std::io::stdout().is_terminal() {
        return table(heading, rows, terminal_width());
    }
    rows.iter()
        .map(|row| format!("{}\n", row.join("\t")))
        .collect()
}

/// The aligned form, cut to `width` columns where it is known.
pub(crate) fn table(heading: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(heading.iter().copied());
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = width {
        table.set_width(width);
    }
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.to_string();
    lines
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// The width of the terminal on standard output.
pub(crate) fn terminal_width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// A moment as people and RFC 3339 write it, UTC, whole seconds.
pub(crate) fn moment(at: WallClock) -> String {
    let ms = i64::try_from(at.as_unix_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(ms / 1000).map_or_else(|_| "?".to_owned(), |at| at.to_string())
}

/// A dash for nothing.
pub(crate) fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}
