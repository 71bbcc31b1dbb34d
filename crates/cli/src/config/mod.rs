//! Configuration files: what `controller`, `agent` and whoever asks a controller are told without being told each time.
//!
//! Every long option is a key, with `_` for `-`. A file only moves what stands where nothing is said: a flag wins over the
//! environment, that over the file, that over the default. What does a thing once (`--check`, `--shutdown`) is no key.

mod options;
mod read;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::command::Cli;
use crate::exit::{Code, Failure};
use crate::places;

use options::Options;
pub(crate) use read::Setting;

/// The file that holds for a command, as it was when it began.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    whose: Whose,
    settings: BTreeMap<String, Setting>,
}

/// Whose options a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Controller,
    Agent,
    /// Whoever asks a controller.
    Client,
}

/// A longer file is none of configuration.
const MOST_BYTES: u64 = 1 << 20;

/// Commands that ask no controller, or find theirs by other means.
const WITHOUT: [&str; 13] = [
    "worker",
    "shim",
    "run",
    "dev",
    "sim",
    "hello",
    "probe",
    "replay",
    "restore",
    "env",
    "completions",
    "man",
    "help",
];

/// Reads the command line, over the file that holds for its command.
///
/// Ends the process where the command line itself is wrong, as clap does.
pub(crate) fn cli(arguments: impl Iterator<Item = OsString>) -> Result<Cli, Failure> {
    let arguments: Vec<OsString> = arguments.collect();
    let command = Cli::tree();
    let (command, file) = over_file(command, &arguments)?;
    let matches = command.get_matches_from(arguments);
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|cause| cause.exit());
    cli.keep_file(file);
    cli.settle();
    Ok(cli)
}

/// The command with the values of its file in place of defaults.
fn over_file(
    command: Command,
    arguments: &[OsString],
) -> Result<(Command, Option<ConfigFile>), Failure> {
    // What is wrong with the words is told when they are read in earnest.
    let looked = command.clone().ignore_errors(true);
    let Ok(matches) = looked.try_get_matches_from(arguments) else {
        return Ok((command, None));
    };
    let Some((name, given)) = matches.subcommand() else {
        return Ok((command, None));
    };
    let whose = match name {
        "controller" => Whose::Controller,
        "agent" => Whose::Agent,
        other if WITHOUT.contains(&other) => return Ok((command, None)),
        _ => Whose::Client,
    };
    let named = given.get_one::<PathBuf>("config").cloned();
    let Some(file) = ConfigFile::find(whose, named, &command)? else {
        return Ok((command, None));
    };
    let command = file.beneath(command, given)?;
    Ok((command, Some(file)))
}

impl Whose {
    const fn file(self) -> &'static str {
        match self {
            Self::Controller => "controller.toml",
            Self::Agent => "agent.toml",
            Self::Client => "client.toml",
        }
    }

    fn usual_places(self) -> Vec<PathBuf> {
        let mut places = vec![places::config().join(self.file())];
        let system = Path::new(places::SYSTEM_CONFIG).join(self.file());
        // What a site says of its controller is for all of its users.
        if self == Self::Client && places[0] != system {
            places.push(system);
        }
        places
    }
}

impl ConfigFile {
    /// The file named, else the first of the usual ones that is there.
    fn find(
        whose: Whose,
        named: Option<PathBuf>,
        command: &Command,
    ) -> Result<Option<Self>, Failure> {
        if let Some(path) = named {
            return Self::read(path, whose, command).map(Some);
        }
        let mut there = whose.usual_places().into_iter();
        let there = there.find(|path| std::fs::symlink_metadata(path).is_ok());
        there
            .map(|path| Self::read(path, whose, command))
            .transpose()
    }

    fn read(path: PathBuf, whose: Whose, command: &Command) -> Result<Self, Failure> {
        let wrong = |cause: &dyn Display| usage(format!("{}: {cause}", path.display()));
        let mut text = String::new();
        File::open(&path)
            .and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text))
            .map_err(|cause| wrong(&cause))?;
        if text.len() as u64 > MOST_BYTES {
            return Err(wrong(&"it is longer than 1 MiB"));
        }
        let options = Options::of(command, whose);
        let settings = read::settings(&text, &options).map_err(|problems| {
            let lines = problems
                .into_iter()
                .map(|(line, problem)| format!("{}:{line}: {problem}", path.display()));
            usage(lines.collect::<Vec<_>>().join("\n"))
        })?;
        Ok(Self {
            path,
            whose,
            settings,
        })
    }

    /// The command whose defaults are what the file says, but where that contradicts what was `given`.
    fn beneath(&self, mut command: Command, given: &ArgMatches) -> Result<Command, Failure> {
        let options = Options::of(&command, self.whose);
        let is_given = |id: &str| {
            let source = given
                .try_contains_id(id)
                .ok()
                .and_then(|_| given.value_source(id));
            matches!(
                source,
                Some(ValueSource::CommandLine | ValueSource::EnvVariable)
            )
        };
        let mut moved = Vec::new();
        for (key, setting) in &self.settings {
            let Some(option) = options.of_key(key) else {
                continue;
            };
            let rivals = options.rivals(option);
            let both = rivals.iter().find(|it| self.settings.contains_key(&it.key));
            if let Some(rival) = both
                && rival.key.as_str() < key.as_str()
                && !setting.is_off()
                && !self.settings[&rival.key].is_off()
            {
                return Err(usage(format!(
                    "{}:{}: {key} cannot stand beside {}",
                    self.path.display(),
                    setting.line,
                    rival.key
                )));
            }
            if rivals.iter().any(|rival| is_given(&rival.id)) {
                continue;
            }
            moved.push((option.id.clone(), option.global, setting.values.clone()));
        }
        for (id, global, values) in moved {
            // As long as the process, like every default.
            let values: Vec<&'static str> = values.into_iter().map(|it| &*it.leak()).collect();
            command = match self.whose {
                Whose::Controller if !global => command.mut_subcommand("controller", |sub| {
                    sub.mut_arg(id, |option| option.default_values(values))
                }),
                Whose::Agent if !global => command.mut_subcommand("agent", |sub| {
                    sub.mut_arg(id, |option| option.default_values(values))
                }),
                _ => command.mut_arg(id, |option| option.default_values(values)),
            };
        }
        Ok(command)
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many keys it sets.
    pub(crate) fn len(&self) -> usize {
        self.settings.len()
    }

    /// The keys that stand in it otherwise than when the process began: they hold after a restart.
    ///
    /// # Errors
    ///
    /// It cannot be read now, or is wrong.
    pub(crate) fn changed(&self) -> Result<Vec<String>, Failure> {
        let now = Self::read(self.path.clone(), self.whose, &Cli::command())?;
        let keys = self.settings.keys().chain(now.settings.keys());
        let mut changed: Vec<String> = keys
            .filter(|key| {
                let values = |of: &Self| of.settings.get(*key).map(|it| it.values.clone());
                values(self) != values(&now)
            })
            .cloned()
            .collect();
        changed.sort();
        changed.dedup();
        Ok(changed)
    }
}

fn usage(words: String) -> Failure {
    Failure::new(Code::Usage, words)
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
