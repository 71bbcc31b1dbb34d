//! Colour: whether it is wished, and which words are worth one.
//!
//! Texts carry [`Mark`]s where a colour begins and ends; they become colours where the text is written, after
//! everything in it that would move a cursor is gone. Others' words can therefore never bring more than a colour.

use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ValueEnum;

/// When answers are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb; everywhere with CLICOLOR_FORCE
    #[default]
    Auto,
    /// In pipes and files too
    Always,
    /// Nowhere
    Never,
}

/// What was wished on the command line.
static WISH: OnceLock<Colour> = OnceLock::new();

/// What the environment says of it.
#[derive(Clone, Copy, Debug, Default)]
struct Surroundings {
    no_color: bool,
    force: bool,
    dumb: bool,
}

impl Colour {
    /// Holds for everything this process writes from now on; the first call counts.
    pub(crate) fn choose(self) {
        // Said once, before anything is written.
        _ = WISH.set(self);
    }

    /// The one that stands among these arguments, for what is written before they are understood.
    pub(crate) fn among(arguments: impl Iterator<Item = String>) -> Self {
        let mut arguments = arguments.take_while(|it| it != "--");
        let mut wish = Self::Auto;
        while let Some(argument) = arguments.next() {
            let value = match argument.strip_prefix("--color") {
                Some("") => arguments.next(),
                Some(rest) => rest.strip_prefix('=').map(str::to_owned),
                None => None,
            };
            let value = value.and_then(|it| Self::from_str(&it, false).ok());
            wish = value.unwrap_or(wish);
        }
        wish
    }

    /// As the command line's own parser takes it.
    pub(crate) const fn for_help(self) -> clap::ColorChoice {
        match self {
            Self::Auto => clap::ColorChoice::Auto,
            Self::Always => clap::ColorChoice::Always,
            Self::Never => clap::ColorChoice::Never,
        }
    }

    const fn holds(self, about: Surroundings, terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if about.no_color => false,
            Self::Auto if about.force => true,
            Self::Auto => terminal && !about.dumb,
        }
    }
}

/// Whether what is written there is coloured.
pub(crate) fn is_coloured(there: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|it| !it.is_empty());
    let about = Surroundings {
        no_color: set("NO_COLOR"),
        force: std::env::var_os("CLICOLOR_FORCE").is_some_and(|it| !it.is_empty() && it != "0"),
        dumb: std::env::var_os("TERM").is_some_and(|it| it == "dumb"),
    };
    let wish = WISH.get().copied().unwrap_or_default();
    wish.holds(about, there.is_terminal())
}

/// What a colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// As it shall be.
    Well,
    /// On its way, or to be looked at.
    Uneasy,
    /// Not as it shall be.
    Bad,
    /// What stands above a column.
    Heading,
}

impl Mark {
    const ALL: [Self; 4] = [Self::Well, Self::Uneasy, Self::Bad, Self::Heading];

    /// In a text on its way out: letters for private use, which no name or reason has a use for.
    const fn letter(self) -> char {
        match self {
            Self::Well => '\u{f1e01}',
            Self::Uneasy => '\u{f1e02}',
            Self::Bad => '\u{f1e03}',
            Self::Heading => '\u{f1e04}',
        }
    }

    const fn colour(self) -> &'static str {
        match self {
            Self::Well => "\x1b[32m",
            Self::Uneasy => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Heading => "\x1b[1m",
        }
    }

    /// The text between this mark and the end of it.
    pub(crate) fn around(self, text: &str) -> String {
        format!("{}{text}{END}", self.letter())
    }

    /// What a state or a kind of event is worth.
    pub(crate) fn of(word: &str) -> Option<Self> {
        match word {
            "ready" | "running" | "up" | "ok" | "completed" | "usable" | "published" => {
                Some(Self::Well)
            }
            "failed" | "gave up" | "host lost" | "lost" | "down" | "port conflict"
            | "not ready" | "stuck" | "killed" => Some(Self::Bad),
            "pending" | "starting" | "backoff" | "stopping" | "suspect" | "unknown" | "warning"
            | "restarted" | "drained" | "draining" | "host drained" => Some(Self::Uneasy),
            _ => None,
        }
    }
}

const END: char = '\u{f1e00}';

/// The text with its marks as colours.
pub(crate) fn coloured(text: &str) -> String {
    let mut text = text.replace(END, "\x1b[0m");
    for mark in Mark::ALL {
        text = text.replace(mark.letter(), mark.colour());
    }
    text
}

/// Whether the letter is a mark, which takes no room.
pub(crate) fn is_mark(letter: char) -> bool {
    letter == END || Mark::ALL.iter().any(|mark| mark.letter() == letter)
}

/// The text without its marks.
pub(crate) fn plain(text: &str) -> String {
    text.replace(is_mark, "")
}

/// A table with its heading, and the states in these columns, marked. Columns begin where their heading does.
pub(crate) fn marked(table: &str, heading: &[&str], told: &[usize]) -> String {
    let mut lines = table.lines();
    let Some(first) = lines.next() else {
        return String::new();
    };
    let mut starts = Vec::new();
    let mut from = 0;
    for name in heading {
        let at = first.get(from..).and_then(|rest| rest.find(name));
        let start = from + at.unwrap_or(0);
        starts.push(start);
        from = start + name.len();
    }
    let mut text = format!("{}\n", Mark::Heading.around(first));
    for line in lines {
        let mut line: Vec<char> = line.chars().collect();
        // From the right, so that what is put in moves nothing that is still to come.
        for column in told.iter().rev() {
            let (Some(start), end) = (starts.get(*column), starts.get(column + 1)) else {
                continue;
            };
            let end = end.map_or(line.len(), |end| line.len().min(*end));
            let Some(cell) = line.get(*start..end) else {
                continue;
            };
            let cell: String = cell.iter().collect();
            let word = cell.trim_end();
            if let Some(mark) = Mark::of(word) {
                let end = start + word.chars().count();
                line.splice(*start..end, mark.around(word).chars());
            }
        }
        text.extend(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wish_comes_before_the_variables_and_these_before_the_terminal() {
        let plain = Surroundings::default();
        let no = Surroundings {
            no_color: true,
            force: true,
            ..plain
        };
        let force = Surroundings {
            force: true,
            ..plain
        };
        let dumb = Surroundings {
            dumb: true,
            ..plain
        };
        for (wish, about, terminal, holds) in [
            (Colour::Auto, plain, true, true),
            (Colour::Auto, plain, false, false),
            (Colour::Auto, no, true, false),
            (Colour::Auto, force, false, true),
            (Colour::Auto, dumb, true, false),
            (Colour::Always, no, false, true),
            (Colour::Never, force, true, false),
        ] {
            assert_eq!(wish.holds(about, terminal), holds, "{wish:?} {about:?}");
        }
    }

    #[test]
    fn the_wish_is_found_among_words_that_are_not_understood_yet() {
        let among = |line: &str| Colour::among(line.split(' ').map(str::to_owned));
        assert_eq!(among("services"), Colour::Auto);
        assert_eq!(among("--color never services"), Colour::Never);
        assert_eq!(among("services --color=always"), Colour::Always);
        assert_eq!(among("services --color"), Colour::Auto);
        assert_eq!(among("run -- ls --color=always"), Colour::Auto);
    }

    #[test]
    fn states_in_their_columns_are_marked_and_the_same_words_elsewhere_are_not() {
        let table = "NAME    STATE    WHY\nfailed  failed   failed\nmühle   ready    -\n";
        let text = coloured(&marked(table, &["NAME", "STATE", "WHY"], &[1]));
        assert_eq!(
            text,
            "\x1b[1mNAME    STATE    WHY\x1b[0m\nfailed  \x1b[31mfailed\x1b[0m   failed\n\
             mühle   \x1b[32mready\x1b[0m    -\n"
        );
    }
}
