//! The help, the page of the command line, and the tree of commands say the same.
//!
//! `PORTREEVE_RECORD_HELP=1` (`make help-pages`) writes what has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::{Command, CommandFactory as _};

use super::*;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Every command that people call, by its name below the program's, such as `host drain`.
fn commands() -> BTreeMap<String, Command> {
    // The groups of the first page are laid out for the widest terminal.
    let mut tree = tree_for(WIDEST);
    tree.build();
    let mut found = BTreeMap::new();
    let mut left = vec![(String::new(), tree)];
    while let Some((name, command)) = left.pop() {
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            if below.get_name() != "help" {
                let name = format!("{name} {}", below.get_name());
                left.push((name.trim_start().to_owned(), below.clone()));
            }
        }
        found.insert(name, command);
    }
    found
}

/// The commands that do something themselves; those that only hold others do not.
fn doers() -> BTreeMap<String, Command> {
    let mut all = commands();
    all.retain(|name, command| !command.is_subcommand_required_set() || name.is_empty());
    all
}

fn recording() -> bool {
    std::env::var_os("PORTREEVE_RECORD_HELP").is_some_and(|it| it == "1")
}

fn help_of(command: &Command) -> String {
    let mut command = command.clone().term_width(usize::from(WIDEST));
    let text = command.render_long_help().to_string();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

#[test]
fn the_help_of_every_command_is_as_it_was_read_and_found_good() {
    let folder = Path::new(HERE).join("tests/golden/help");
    let mut expected = BTreeSet::new();
    for (name, command) in commands() {
        let file = match name.as_str() {
            "" => "portreeve.txt".to_owned(),
            name => format!("{}.txt", name.replace(' ', "-")),
        };
        let path = folder.join(&file);
        expected.insert(file);
        let help = help_of(&command);
        if recording() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &help).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            help,
            golden,
            "`portreeve {name} --help` is not {}; if it shall be so: make help-pages",
            path.display()
        );
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if recording() && !expected.contains(&name) {
            std::fs::remove_file(entry.path()).unwrap();
            continue;
        }
        assert!(expected.contains(&name), "{name} is of no command");
    }
}

#[test]
fn no_line_of_help_is_wider_than_a_narrow_terminal_but_examples() {
    for width in [40, 80] {
        let tree = tree_for(width);
        let help = tree.clone().render_long_help().to_string();
        // Below the options stand examples, which are to be copied whole.
        let told = help.split("\nExamples:").next().unwrap();
        for line in told.lines() {
            let wide = line.chars().count() > usize::from(width);
            // What clap itself does not break: a heading and its option on a line.
            assert!(
                !wide || !line.contains(' ') || line.trim_start().starts_with('-'),
                "{line}"
            );
        }
    }
}

#[test]
fn every_command_is_in_one_group_of_the_first_page() {
    let mut grouped: Vec<&str> = GROUPS
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect();
    grouped.sort_unstable();
    let count = grouped.len();
    grouped.dedup();
    assert_eq!(count, grouped.len(), "a command is in two groups");
    let tree = tree();
    for command in tree.get_subcommands().filter(|it| !it.is_hide_set()) {
        let name = command.get_name();
        assert!(
            grouped.contains(&name),
            "{name} is in no group of groups.rs"
        );
    }
}

#[test]
fn every_command_has_an_example_and_every_example_is_a_command() {
    for name in doers().keys() {
        let lesson = lessons().find(|lesson| lesson.command == name);
        assert!(
            lesson.is_some_and(|it| !it.examples.is_empty()),
            "{name} has none in lessons/"
        );
    }
    let all = commands();
    for lesson in lessons() {
        assert!(
            all.contains_key(lesson.command),
            "{} is no command",
            lesson.command
        );
        for (_, line) in lesson.examples {
            let calls = calls(line);
            let own = format!("portreeve {}", lesson.command);
            assert!(
                line.contains(own.trim_end()),
                "{line} shows no {}",
                lesson.command
            );
            for call in calls {
                let understood = Cli::command().try_get_matches_from(&call);
                assert!(understood.is_ok(), "{line}\n{}", understood.unwrap_err());
            }
        }
        for see in lesson.see {
            match see.strip_prefix("portreeve ") {
                Some("COMMAND --help") => {}
                Some(command) => assert!(all.contains_key(command), "{see} is no command"),
                None => assert!(
                    Path::new(HERE).join("../..").join(see).exists(),
                    "{see} is no page"
                ),
            }
        }
    }
}

/// The calls of the program in a line of shell.
fn calls(line: &str) -> Vec<Vec<String>> {
    // What a call prints stands in the word of another.
    let line = line.replace("$(", ";").replace(')', ";").replace('"', "");
    let mut words = vec![vec![String::new()]];
    let mut quoted = false;
    for letter in line.chars() {
        let call = words.last_mut().expect("there is one at least");
        let word = call.last_mut().expect("there is one at least");
        match letter {
            '\'' => {
                quoted = !quoted;
                // So that a word of nothing is one.
                word.push('\0');
            }
            ' ' if !quoted => call.push(String::new()),
            '|' | ';' | '&' | '>' if !quoted => {
                // `3>file`: the number is the shell's.
                if letter == '>' && word.chars().all(|it| it.is_ascii_digit()) {
                    word.clear();
                }
                words.push(vec![String::new()]);
            }
            other => word.push(other),
        }
    }
    assert!(!quoted, "{line}");
    let calls = words.into_iter().map(|call| {
        let words = call.into_iter().filter(|word| !word.is_empty());
        let words = words.map(|word| word.replace('\0', ""));
        words
            .skip_while(|word| word != "portreeve")
            .collect::<Vec<_>>()
    });
    calls.filter(|call| !call.is_empty()).collect()
}

#[test]
fn the_page_of_the_command_line_has_every_command_and_option() {
    let path = Path::new(HERE).join("../../docs/cli.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let begin = "<!-- every command: from here on written by `make help-pages` -->\n";
    let (before, told) = page.split_once(begin).expect("the page has the mark");
    let reference = reference();
    if recording() && told != reference {
        std::fs::write(&path, format!("{before}{begin}{reference}")).unwrap();
    } else {
        assert_eq!(
            told, reference,
            "docs/cli.md is behind the commands: make help-pages"
        );
    }
    for name in doers().keys().filter(|name| !name.is_empty()) {
        let told = before.contains(&format!("`{name}"))
            || name.split(' ').all(|word| before.contains(word));
        assert!(told, "{name} is in no table of docs/cli.md");
    }
}

/// Each command with its arguments and options, a line each.
fn reference() -> String {
    let mut text = String::new();
    for (name, command) in commands() {
        let mut usage = command.clone();
        let usage = usage.render_usage().to_string();
        let usage: Vec<&str> = usage
            .trim_start_matches("Usage:")
            .split_whitespace()
            .collect();
        text.push_str(&format!(
            "\n### {}\n\n",
            format!("portreeve {name}").trim_end()
        ));
        text.push_str(&format!("`{}`\n\n", usage.join(" ")));
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        text.push_str(&format!("{}\n\n", about.trim_end_matches('.')));
        let mut lines = String::new();
        for argument in command.get_arguments().filter(|it| !it.is_hide_set()) {
            let id = argument.get_id().as_str();
            // Every command has them; the program's own section tells.
            if matches!(id, "help" | "version") || argument.is_global_set() && !name.is_empty() {
                continue;
            }
            let about = argument
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            lines.push_str(&format!(
                "* `{}` {}\n",
                written(argument),
                about.trim_end_matches('.')
            ));
        }
        if !lines.is_empty() {
            text.push_str(&lines);
        }
    }
    format!("{}\n", text.replace("\n\n\n", "\n\n").trim_end())
}

/// `-o, --output <OUTPUT>`, or `[NAME]`.
fn written(argument: &clap::Arg) -> String {
    let value = || {
        let names = argument.get_value_names().unwrap_or_default();
        names
            .iter()
            .map(|name| format!(" <{name}>"))
            .collect::<String>()
    };
    match (argument.get_short(), argument.get_long()) {
        (_, None) => argument.to_string(),
        (short, Some(long)) => {
            let takes = argument.get_action().takes_values();
            let short = short.map(|it| format!("-{it}, ")).unwrap_or_default();
            let value = if takes { value() } else { String::new() };
            format!("{short}--{long}{value}")
        }
    }
}

#[test]
fn what_answers_answers_programs_too() {
    /// Why some have no `-o json`.
    const EXCEPTIONS: [(&str, &str); 15] = [
        ("", "it does nothing"),
        ("dev", "a view for people; its controller answers programs"),
        ("run", "its output is the service's"),
        ("logs", "the service's own bytes"),
        ("wait", "--print json"),
        ("watch", "-o json, by the name of its form"),
        ("endpoints", "-o json, by the name of its form"),
        ("controller", "a daemon; its log is not an answer"),
        ("worker", "its status lines are JSON always"),
        ("hello", "it serves"),
        ("completions", "a shell's own language"),
        ("man", "a page"),
        ("login", "it keeps a file"),
        ("logout", "it removes one"),
        ("token", "it holds others"),
    ];
    for (name, command) in doers() {
        let output = command
            .get_arguments()
            .find(|it| it.get_long() == Some("output"));
        let json = output.is_some_and(|it| {
            let values = it.get_possible_values();
            values.iter().any(|value| value.get_name() == "json")
        });
        let excepted = EXCEPTIONS.iter().any(|(it, _)| *it == name);
        assert!(
            json || excepted,
            "{name} has no -o json, and no reason for it"
        );
    }
}

#[test]
fn every_option_says_what_it_is_for() {
    for (name, command) in commands() {
        for argument in command.get_arguments() {
            let id = argument.get_id();
            assert!(argument.get_help().is_some(), "{name}: {id} has no help");
        }
    }
}

#[test]
fn completions_and_pages_are_made_of_the_same_tree() {
    let mut tree = crate::command::shell::for_people();
    for (shell, word) in [
        (clap_complete::Shell::Bash, "complete -F _portreeve"),
        (clap_complete::Shell::Zsh, "#compdef portreeve"),
        (clap_complete::Shell::Fish, "complete -c portreeve"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut tree, "portreeve", &mut text);
        let text = String::from_utf8(text).unwrap();
        for part in [word, "undrain", "allow-missing"] {
            assert!(text.contains(part), "{shell} has no {part}");
        }
        assert!(
            !text.contains("shim"),
            "{shell} offers what is not for people"
        );
    }
}

#[test]
fn a_line_of_shell_is_taken_apart_into_calls() {
    let of = |line| {
        calls(line)
            .into_iter()
            .map(|it| it.join("+"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("make | portreeve submit - && portreeve logs 'a b' > out"),
        ["portreeve+submit+-", "portreeve+logs+a b"]
    );
    assert_eq!(
        of("curl \"http://$(portreeve endpoints web --one)/\"")[0],
        "portreeve+endpoints+web+--one"
    );
}
