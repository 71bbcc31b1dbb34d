//! What `--help` teaches beyond the words of each option: which commands are whose, examples, and where to go on.
//!
//! It is put over the tree that clap makes of the commands, so that help, man pages and completions are of one piece.

mod groups;
mod lessons;
#[cfg(test)]
mod tree_test;

use clap::builder::Styles;
use clap::{Command, CommandFactory};

use groups::GROUPS;
use lessons::lessons;

use super::Cli;

/// Help is never wider: longer lines are hard to read.
pub(super) const WIDEST: u16 = 100;

/// Every command with what is taught of it.
pub(super) fn tree() -> Command {
    let mut tree = with_lessons(Cli::command(), "");
    // Man pages and completions name the program, whatever it was called by.
    tree.set_bin_name("portreeve");
    tree
}

/// The same for a terminal so wide: the commands are told in groups, by who uses them.
pub(super) fn tree_for(width: u16) -> Command {
    let width = width.min(WIDEST);
    let tree = tree();
    let groups = told_groups(&tree, usize::from(width));
    let heading = |words: &str| {
        let style = Styles::styled().get_header().to_owned();
        format!("{style}{words}:{style:#}")
    };
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (name, lines) in groups {
        template.push_str(&format!("{}\n{lines}\n", heading(name)));
    }
    template.push_str(&heading("Options"));
    template.push_str("\n{options}{after-help}\n");
    tree.help_template(template).term_width(usize::from(width))
}

/// Adds examples and what to see also to the command of this name and to those below it.
fn with_lessons(command: Command, name: &str) -> Command {
    let below: Vec<String> = command
        .get_subcommands()
        .map(|it| it.get_name().to_owned())
        .collect();
    let mut command = match lessons().find(|lesson| lesson.command == name) {
        Some(lesson) => command.after_long_help(lesson.text()),
        None => command,
    };
    for word in below {
        let name = format!("{name} {word}").trim_start().to_owned();
        command = command.mut_subcommand(&word, |it| with_lessons(it, &name));
    }
    // The value of a variable may be a secret's place, and differs from machine to machine.
    command.mut_args(|argument| argument.hide_env_values(true))
}

/// Each group's name and its lines: a command and what it does.
fn told_groups(tree: &Command, width: usize) -> Vec<(&'static str, String)> {
    let told = |name: &&str| {
        let command = tree.find_subcommand(name)?;
        let about = command.get_about().map(ToString::to_string);
        Some(line(name, &about.unwrap_or_default(), width))
    };
    let group = |(name, commands): &(&'static str, &[&str])| {
        (*name, commands.iter().filter_map(told).collect())
    };
    GROUPS.iter().map(group).collect()
}

/// The columns before what a command does.
const INDENT: usize = 14;

/// `  submit      Create a service …`, wrapped below its words.
fn line(name: &str, about: &str, width: usize) -> String {
    let room = width.saturating_sub(INDENT).max(20);
    let mut lines = vec![String::new()];
    for word in about.split_whitespace() {
        let last = lines.last_mut().expect("there is one at least");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= room {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    let indent = " ".repeat(INDENT);
    let names = INDENT - 2;
    format!("  {name:<names$}{}\n", lines.join(&format!("\n{indent}")))
}
