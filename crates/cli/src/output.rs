//! How answers are shown: tables for people, plain lines in a pipe, JSON for programs.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use portreeve::time::WallClock;
use serde::Serialize;

use crate::exit::Failure;
use crate::look::{self, Mark};

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
    write(shown(&format!("{text}\n")).as_bytes()).map(drop)
}

/// Writes to standard output. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    is_read(text).map(drop)
}

/// The same; says whether the reader is still there.
pub(crate) fn is_read(text: &str) -> Result<bool, Failure> {
    let mut text = shown(text);
    if look::is_coloured(&std::io::stdout()) {
        text = look::coloured(&text).into();
    }
    write(text.as_bytes())
}

/// Writes bytes as they are, such as a page for another program to read.
pub(crate) fn print_whole(bytes: &[u8]) -> Result<(), Failure> {
    write(bytes).map(drop)
}

fn write(bytes: &[u8]) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(Failure::plain(format!("standard output: {cause}"))),
    }
}

/// Says a line on standard error, as `eprintln` would; that ends the whole process where nobody reads there any more
/// (`2>&1 | head`) or its file is on a full disk.
macro_rules! tell {
    ($($words:tt)*) => { $crate::output::tell_line(format_args!($($words)*)) };
}
pub(crate) use tell;

/// See [`tell`].
pub(crate) fn tell_line(words: std::fmt::Arguments<'_>) {
    let line = format!("{words}\n");
    let width = width_of(std::io::stderr()).map(|(width, _)| width);
    let line = wrapped(&shown(&line), width);
    let line = match look::is_coloured(&std::io::stderr()) {
        true => look::coloured(&line),
        false => look::plain(&line),
    };
    // What cannot be told is no reason to end what goes on.
    _ = std::io::stderr().write_all(line.as_bytes());
}

/// The text without what would move a cursor: names and reasons may be others' words.
fn shown(text: &str) -> Cow<'_, str> {
    let moves = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if text.contains(moves) {
        text.replace(moves, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// Rows under a heading: aligned on a terminal, tab-separated with the heading left out in a pipe.
pub(crate) fn rows(heading: &[&str], mut rows: Vec<Vec<String>>) -> String {
    let coloured = look::is_coloured(&std::io::stdout());
    let told = told_columns(heading);
    if std::io::stdout().is_terminal() {
        let table = table(heading, rows, terminal_width());
        return match coloured {
            true => look::marked(&table, heading, &told),
            false => table,
        };
    }
    if coloured {
        for row in &mut rows {
            for column in &told {
                if let Some(cell) = row.get_mut(*column)
                    && let Some(mark) = Mark::of(cell)
                {
                    *cell = mark.around(cell);
                }
            }
        }
    }
    plain_rows(&rows)
}

/// The columns that say how something is.
fn told_columns(heading: &[&str]) -> Vec<usize> {
    let says_how = |name: &str| matches!(name, "STATE" | "EVENT" | "VERDICT");
    let columns = heading.iter().enumerate();
    columns
        .filter(|(_, name)| says_how(name))
        .map(|(column, _)| column)
        .collect()
}

/// The tab-separated form.
pub(crate) fn plain_rows(rows: &[Vec<String>]) -> String {
    let line = |row: &Vec<String>| format!("{}\n", row.join("\t"));
    rows.iter().map(line).collect()
}

/// The aligned form. Where `width` is known, long texts are wrapped between words to fit it; names and numbers
/// stay whole, so on a narrow terminal lines may be longer than it.
pub(crate) fn table(heading: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(heading.iter().copied());
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = width {
        table.set_width(width);
    }
    let least: Vec<u16> = (0..heading.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let cells = cells.map(String::as_str).chain([heading[column]]);
            cells.map(least_width).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        table.add_row(row);
    }
    for (column, least) in table.column_iter_mut().zip(least) {
        column.set_padding((0, PADDING));
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(
            least + PADDING,
        )));
    }
    let lines = table.to_string();
    lines
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Between two columns.
const PADDING: u16 = 2;

/// What is this short is not wrapped.
const SHORT: usize = 14;

/// The width below which a text would be broken within a word.
fn least_width(text: &str) -> u16 {
    let whole = text.chars().count();
    let words = text.split(' ').map(|word| word.chars().count());
    let least = if whole <= SHORT {
        whole
    } else {
        words.max().unwrap_or(0)
    };
    u16::try_from(least).unwrap_or(u16::MAX)
}

/// Sentences for people on standard output: no word is broken where the terminal ends.
pub(crate) fn prose(text: &str) -> String {
    wrapped(text, terminal_width())
}

/// Lines that are too long go on below, two columns in. What stands in backquotes is to be copied and stays together.
fn wrapped(text: &str, width: Option<u16>) -> String {
    let Some(width) = width.map(usize::from) else {
        return text.to_owned();
    };
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let mut column = 0;
        for word in words(line.trim_end_matches('\n')) {
            let wide = word.chars().filter(|it| !look::is_mark(*it)).count();
            if column > 0 && column + 1 + wide > width {
                out.push_str("\n  ");
                column = 2;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += wide;
        }
        if line.ends_with('\n') {
            out.push('\n');
        }
    }
    out
}

/// The parts between spaces; spaces at the begin of the line belong to the first.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut begun = false;
    line.split(move |letter: char| {
        quoted ^= letter == '`';
        begun |= letter != ' ';
        letter == ' ' && begun && !quoted
    })
}

/// The width of the terminal on standard output.
pub(crate) fn terminal_width() -> Option<u16> {
    terminal_size().map(|(width, _)| width)
}

/// The columns and lines of the terminal on standard output.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    width_of(std::io::stdout())
}

fn width_of(there: impl std::os::fd::AsFd) -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(there).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// A moment as people and RFC 3339 write it, UTC, whole seconds.
pub(crate) fn moment(at: WallClock) -> String {
    let ms = i64::try_from(at.as_unix_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(ms / 1000).map_or_else(|_| "?".to_owned(), |at| at.to_string())
}

/// To the millisecond, for moments that are asked for again.
pub(crate) fn exactly(at: WallClock) -> String {
    let ms = i64::try_from(at.as_unix_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| "?".to_owned(), |at| at.to_string())
}

/// A dash for nothing.
pub(crate) fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_moves_no_cursor() {
        assert_eq!(shown("a\tb\nä\n"), "a\tb\nä\n");
        assert_eq!(shown("\u{1b}[2J\r\u{9b}x"), "\u{fffd}[2J\u{fffd}\u{fffd}x");
    }

    #[test]
    fn sentences_go_on_below_and_what_is_to_be_copied_stays_whole() {
        let told = "web is not ready; `portreeve why web` says more\n  next\n";
        assert_eq!(
            wrapped(told, Some(32)),
            "web is not ready;\n  `portreeve why web` says more\n  next\n"
        );
        assert_eq!(wrapped(told, None), told);
        assert_eq!(wrapped(told, Some(200)), told);
        // What fits nowhere stands alone.
        assert_eq!(wrapped("a longerword b", Some(4)), "a\n  longerword\n  b");
    }

    #[test]
    fn a_narrow_terminal_breaks_no_name_and_no_number() {
        let row = [
            "missing.root",
            "0",
            "http=20002",
            "start failed: no such file or directory",
        ];
        let rows = vec![row.map(str::to_owned).to_vec()];
        let heading = ["SERVICE", "REPLICA", "PORTS", "LAST FAILURE"];
        for width in [20, 40, 60, 80, 120] {
            let text = table(&heading, rows.clone(), Some(width));
            for word in row.iter().flat_map(|cell| cell.split(' ')) {
                assert!(text.contains(word), "{word} is broken at {width}:\n{text}");
            }
        }
        assert_eq!(table(&heading, rows, Some(80)).lines().count(), 2);
    }
}
