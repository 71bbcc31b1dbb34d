//! Which options a file may hold: those of its command that stay as long as it runs.

use clap::{Arg, ArgAction, Command};

use super::Whose;

/// What does a thing once, or names the file itself.
const ONCE: [&str; 12] = [
    "config",
    "check",
    "check_config",
    "check_address",
    "shutdown",
    "replace",
    "renew_workers",
    "timeout",
    "output",
    "new_epoch",
    "help",
    "version",
];

/// One option as a key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// As a file writes it.
    pub(super) key: String,
    /// As clap knows it.
    pub(super) id: String,
    /// Whether it is of every command.
    pub(super) global: bool,
    /// On or off, and nothing is written behind the flag.
    pub(super) switch: bool,
}

/// The options that a file may hold.
#[derive(Debug)]
pub(super) struct Options {
    keys: Vec<Key>,
    /// The command of these options alone, and everybody's.
    own: Option<Command>,
    all: Command,
}

impl Options {
    pub(super) fn of(command: &Command, whose: Whose) -> Self {
        let own = match whose {
            Whose::Controller => command.find_subcommand("controller"),
            Whose::Agent => command.find_subcommand("agent"),
            Whose::Client => None,
        };
        let mut keys: Vec<Key> = Vec::new();
        let globals = command.get_arguments().filter(|it| it.is_global_set());
        let globals = globals.filter(|_| whose != Whose::Controller);
        let own_options = own.into_iter().flat_map(Command::get_arguments);
        keys.extend(own_options.filter_map(|it| key_of(it, false)));
        keys.extend(globals.filter_map(|it| key_of(it, true)));
        let alone = |command: Command| {
            command
                .no_binary_name(true)
                .subcommand_required(false)
                .arg_required_else_help(false)
        };
        Self {
            keys,
            own: own.cloned().map(alone),
            all: alone(command.clone()),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    pub(super) fn of_key(&self, key: &str) -> Option<&Key> {
        self.keys.iter().find(|it| it.key == key)
    }

    /// Those that cannot stand beside it.
    pub(super) fn rivals(&self, option: &Key) -> Vec<&Key> {
        let Some(command) = self.command_of(option) else {
            return Vec::new();
        };
        let arg = |key: &Key| {
            let mut all = command.get_arguments();
            all.find(|it| it.get_id().as_str() == key.id)
        };
        let excludes = |one: &Key, other: &Key| {
            arg(one).is_some_and(|one| {
                let excluded = command.get_arg_conflicts_with(one);
                excluded.iter().any(|it| it.get_id().as_str() == other.id)
            })
        };
        let same_command = self.keys.iter().filter(|it| it.global == option.global);
        same_command
            .filter(|it| it.id != option.id && (excludes(option, it) || excludes(it, option)))
            .collect()
    }

    /// What the option itself says of these values, if they are not for it.
    pub(super) fn refuse(&self, option: &Key, values: &[String]) -> Option<String> {
        if option.switch {
            let fits = matches!(values, [one] if one == "true" || one == "false");
            return (!fits).then(|| "write true or false".to_owned());
        }
        let command = self.command_of(option)?.clone();
        let flag = option.key.replace('_', "-");
        let words = values.iter().map(|value| format!("--{flag}={value}"));
        let refused = command.try_get_matches_from(words).err()?;
        let text = refused.render().to_string();
        let text = text.split("\n\nFor more").next().unwrap_or_default();
        let text = text.split("\n\nUsage").next().unwrap_or_default();
        let text = text.trim_start_matches("error: ");
        let lines: Vec<_> = text
            .lines()
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .collect();
        Some(lines.join(" "))
    }

    fn command_of(&self, option: &Key) -> Option<&Command> {
        if option.global {
            Some(&self.all)
        } else {
            self.own.as_ref()
        }
    }
}

fn key_of(option: &Arg, global: bool) -> Option<Key> {
    let key = option.get_long()?.replace('-', "_");
    let once = ONCE.contains(&key.as_str()) || (!global && option.is_global_set());
    (!once).then(|| Key {
        key,
        id: option.get_id().to_string(),
        global,
        switch: matches!(option.get_action(), ArgAction::SetTrue),
    })
}
