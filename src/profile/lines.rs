//! Where in a text a byte stands.

use super::error::Place;

/// The beginnings of a text's lines.
pub(super) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let after = |(at, _)| at + 1;
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(after));
        let starts = starts.collect();
        Self { text, starts }
    }

    /// The line and column of a byte; the end of the text for one beyond it.
    pub(super) fn place(&self, at: usize) -> Place {
        let at = at.min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= at);
        let mut start = self.starts[line - 1];
        if start == 0 && self.text.starts_with(BYTE_ORDER_MARK) {
            // It is no character to who looks for the place.
            start = at.min(BYTE_ORDER_MARK.len_utf8());
        }
        // Bytes that begin a character, so that an offset inside one does no harm.
        let before = &self.text.as_bytes()[start..at];
        let column = before.iter().filter(|byte| (**byte & 0xC0) != 0x80).count();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Place {
            line: number(line),
            column: number(column + 1),
        }
    }
}

const BYTE_ORDER_MARK: char = '\u{feff}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_begin_at_one() {
        let lines = Lines::of("ä = 1\nb = 2");
        let place = |line, column| Place { line, column };
        assert_eq!(lines.place(0), place(1, 1));
        assert_eq!(lines.place("ä = ".len()), place(1, 5));
        assert_eq!(lines.place("ä = 1\nb".len()), place(2, 2));
        assert_eq!(lines.place(1000), place(2, 6));
        assert_eq!(Lines::of("").place(0), place(1, 1));
        let marked = Lines::of("\u{feff}a = 1\nb = 2");
        assert_eq!(marked.place(0), place(1, 1));
        assert_eq!(marked.place("\u{feff}".len()), place(1, 1));
        assert_eq!(marked.place("\u{feff}a = ".len()), place(1, 5));
        assert_eq!(marked.place("\u{feff}a = 1\n".len()), place(2, 1));
    }
}
