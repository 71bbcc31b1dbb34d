//! An example or three of each command, and where to go on.

mod operator;
mod other;
mod owner;

/// What is taught of one command.
pub(super) struct Lesson {
    /// Its name, such as `host drain`; empty for the program itself.
    pub(super) command: &'static str,
    /// What one wants, and the line that does it.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Commands and pages.
    pub(super) see: &'static [&'static str],
}

impl Lesson {
    /// As it stands below the options.
    pub(super) fn text(&self) -> String {
        let mut text = match self.examples.len() {
            1 => "Example:\n".to_owned(),
            _ => "Examples:\n".to_owned(),
        };
        for (wish, line) in self.examples {
            text.push_str(&format!("  {wish}:\n    {line}\n"));
        }
        if !self.see.is_empty() {
            text.push_str(&format!("\nSee also: {}", self.see.join(", ")));
        }
        text
    }
}

/// The lesson of every command that people call.
pub(super) fn lessons() -> impl Iterator<Item = &'static Lesson> {
    let all = [other::LESSONS, owner::LESSONS, operator::LESSONS];
    all.into_iter().flatten()
}
