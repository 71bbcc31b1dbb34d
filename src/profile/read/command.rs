//! Commands, templates and the user's variables.

use std::collections::BTreeMap;

use crate::port::excerpt;
use crate::profile::Command;
use crate::profile::template::{ParseTemplateError, Segment, Template};

use super::value::MAX_TEXT;
use super::{Field, Reader, Table, Value};

const MAX_ARGUMENTS: usize = 4096;
const MAX_VARIABLES: usize = 1024;
const COMMAND: &str = "write a list of arguments, or one text for /bin/sh -c";
const VARIABLE: &str =
    "write a variable's name: letters, digits and _, no digit first, at most 256 characters";

/// The port names a template may refer to.
pub(super) type Names<'a> = &'a [crate::port::PortName];

impl<'d> Reader<'d> {
    /// A command: a list of arguments, or a text for the shell.
    pub(super) fn command(&mut self, field: &Field<'d>, ports: Names<'_>) -> Option<Command> {
        if let Value::Text(text) = &field.node.value {
            if text.trim().is_empty() {
                self.refuse(field, "the command is empty", COMMAND);
                return None;
            }
            return self.template(field, ports).map(Command::Shell);
        }
        let items = self.list(field, MAX_ARGUMENTS, COMMAND)?;
        let Some(program) = items.first() else {
            self.refuse(field, "the command is empty", COMMAND);
            return None;
        };
        if matches!(&program.node.value, Value::Text(text) if text.is_empty()) {
            self.refuse(program, "the program's name is empty", COMMAND);
        }
        let arguments = items.iter().map(|item| self.template(item, ports));
        // Every argument is looked at before the first failure counts.
        let arguments: Vec<_> = arguments.collect();
        let arguments = arguments.into_iter().collect::<Option<_>>()?;
        Some(Command::Argv(arguments))
    }

    /// A text with references, each of them known.
    pub(super) fn template(&mut self, field: &Field<'d>, ports: Names<'_>) -> Option<Template> {
        let text = self.text(field, MAX_TEXT, "write a text")?;
        let template = match Template::parse(text) {
            Ok(template) => template,
            Err(ParseTemplateError::Unknown { name }) => {
                let allowed = "write ${port.NAME}, ${addr.NAME}, ${host.address}, ${host.name}, \
                    ${replica.index}, ${service.name} or ${env.NAME}; a dollar is $$";
                self.refuse(field, format_args!("${{{name}}} is unknown"), allowed);
                return None;
            }
            Err(ParseTemplateError::NotClosed { text }) => {
                let problem = format_args!("\"${{{text}\" has no closing brace");
                self.refuse(field, problem, "close it with }; a dollar is $$");
                return None;
            }
        };
        for port in template.ports() {
            if !ports.contains(port) {
                self.unknown_port(field, port.as_str(), ports);
            }
        }
        for (place, segment) in template.0.iter().enumerate() {
            match segment {
                Segment::Env(name) if !is_variable(name) => {
                    let problem = format_args!("${{env.{}}} names no variable", excerpt(name));
                    self.refuse(field, problem, VARIABLE);
                }
                Segment::HostAddress => {
                    let next = template.0.get(place + 1);
                    if matches!(next, Some(Segment::Text(text)) if text.starts_with(':')) {
                        let port = ports.first().map_or("NAME", |name| name.as_str());
                        self.warn(
                            field,
                            format_args!(
                                "`${{host.address}}:` breaks where the address is IPv6; `${{addr.{port}}}` is host:port with brackets where they are needed"
                            ),
                        );
                    }
                }
                _ => {}
            }
        }
        Some(template)
    }

    /// Notes that a port is referred to that the profile does not declare.
    pub(super) fn unknown_port(&mut self, field: &Field<'_>, name: &str, ports: Names<'_>) {
        let allowed = if ports.is_empty() {
            "declare it under [ports]".to_owned()
        } else {
            let names: Vec<_> = ports.iter().map(|port| port.as_str()).collect();
            format!("the profile's ports: {}", names.join(", "))
        };
        let problem = format!("no port is called {:?}", excerpt(name));
        self.miss(name, &field.path, field.at(), &problem, &allowed);
    }

    /// `env`: the user's own variables.
    pub(super) fn env(
        &mut self,
        field: Option<Field<'d>>,
        ports: Names<'_>,
    ) -> BTreeMap<String, Template> {
        let mut env = BTreeMap::new();
        let allowed = "write a table of texts, such as { HF_HOME = \"/data/hf\" }";
        let Some(table) = field.and_then(|field| self.map(&field, allowed)) else {
            return env;
        };
        self.at_most(&table, MAX_VARIABLES);
        for (name, field) in table.fields().take(MAX_VARIABLES) {
            self.variable(&field, field.key_at(), name);
            let value = match &field.node.value {
                Value::Text(_) => self.template(&field, ports),
                _ => {
                    let kind = field.node.value.kind();
                    let problem = format!("{kind} is no value of a variable");
                    self.refuse(&field, problem, "write it as a text, in quotes");
                    None
                }
            };
            if env
                .insert(name.to_owned(), value.unwrap_or_default())
                .is_some()
            {
                self.refuse(&field, "written twice", "write it once");
            }
        }
        env
    }

    /// `env_secret`: names of variables that are taken from the submitter.
    pub(super) fn env_secret(
        &mut self,
        field: Option<Field<'d>>,
        env: &BTreeMap<String, Template>,
    ) -> Vec<String> {
        let allowed = "write a list of names, such as [\"HF_TOKEN\"]";
        if let Some(field) = &field {
            let later = "the values are not handed over to the host in this version; write them in env_file too";
            self.warn(field, later);
        }
        let items = field.and_then(|field| self.list(&field, MAX_VARIABLES, allowed));
        let mut names: Vec<String> = Vec::new();
        for item in items.unwrap_or_default() {
            let Some(name) = self.text(&item, MAX_TEXT, VARIABLE) else {
                continue;
            };
            self.variable(&item, item.at(), name);
            if env.contains_key(name) {
                let problem = format!("{name} is set by env too");
                self.refuse(&item, problem, "name a variable in one of them");
            } else if names.iter().any(|earlier| earlier == name) {
                self.refuse(
                    &item,
                    format_args!("{name} stands here twice"),
                    "write it once",
                );
            }
            names.push(name.to_owned());
        }
        names
    }

    /// The aliases of ports: valid, ours by no prefix, and claimed once.
    pub(super) fn aliases(
        &mut self,
        aliases: &[(Field<'d>, String)],
        env: &BTreeMap<String, Template>,
        env_secret: &[String],
    ) {
        for (place, (field, name)) in aliases.iter().enumerate() {
            self.variable(field, field.at(), name);
            let other = "choose another name";
            let earlier = aliases[..place].iter().find(|(_, earlier)| earlier == name);
            if let Some((earlier, _)) = earlier {
                let problem = format!("{name} is claimed by {} too", earlier.path);
                self.refuse(field, problem, other);
            } else if env.contains_key(name) {
                self.refuse(field, format_args!("{name} is set by env too"), other);
            } else if env_secret.contains(name) {
                self.refuse(
                    field,
                    format_args!("{name} is set by env_secret too"),
                    other,
                );
            }
        }
    }

    /// Checks the name of a variable of the user's.
    fn variable(&mut self, field: &Field<'d>, at: Option<usize>, name: &str) {
        if !is_variable(name) {
            let problem = format_args!("{:?} is no variable's name", excerpt(name));
            self.note(&field.path, at, problem, VARIABLE);
        } else if let Some(prefix) = self.prefix
            && name.starts_with(prefix)
        {
            let problem = format_args!("{} begins with {prefix}", excerpt(name));
            let allowed = format!("names that begin with {prefix} are the system's own");
            self.note(&field.path, at, problem, &allowed);
        }
    }

    pub(super) fn at_most(&mut self, table: &Table<'d>, most: usize) {
        let entries = table.entries.len();
        if entries > most {
            let problem = format_args!("a table of {entries} entries is too long");
            self.note(
                &table.path,
                table.at,
                problem,
                &format!("write at most {most}"),
            );
        }
    }

    /// Warns of what every user of the host can read in the list of processes.
    pub(super) fn warn_of_secrets(
        &mut self,
        field: &Field<'d>,
        command: &Command,
        env_secret: &[String],
    ) {
        let texts = match command {
            Command::Argv(arguments) => arguments.as_slice(),
            Command::Shell(line) => std::slice::from_ref(line),
        };
        let referred = texts
            .iter()
            .flat_map(|text| &text.0)
            .find_map(|segment| match segment {
                Segment::Env(name) if env_secret.contains(name) => Some(format!("${{env.{name}}}")),
                _ => None,
            });
        if let Some(what) = referred.or_else(|| secret_option(texts)) {
            self.warn(
                field,
                format_args!(
                    "{what} stands on a command line, which every user of the host can read; hand it over in env_file or env_secret"
                ),
            );
        }
    }
}

/// An option that is given a password or token in plain text.
fn secret_option(texts: &[Template]) -> Option<String> {
    let words: Vec<String> = texts
        .iter()
        .flat_map(|text| {
            let text = text.to_string();
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let secret = |option: &str| {
        let option = option.to_ascii_lowercase();
        let last = option
            .rsplit(['-', '_', '.', ':'])
            .next()
            .unwrap_or_default();
        matches!(last, "password" | "passwd" | "secret" | "token" | "apikey")
            || option.ends_with("api-key")
            || option.ends_with("api_key")
    };
    words.iter().enumerate().find_map(|(place, word)| {
        if password_in_url(word) {
            return Some("the password of an address".to_owned());
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, value),
            None if word.starts_with('-') => (word.as_str(), words.get(place + 1)?.as_str()),
            None => return None,
        };
        let given = !value.trim_matches(['\'', '"']).is_empty() && !value.starts_with('-');
        // What stands before the option, as in an address, may itself be no business of a log's.
        let name = option.rsplit(['/', '?', '&', '@', '"', '\'']).next();
        let name = name.unwrap_or_default();
        (secret(name) && given).then(|| format!("the value of {}", excerpt(name)))
    })
}

/// `scheme://user:password@host`
fn password_in_url(word: &str) -> bool {
    let authority = word.split_once("://").map(|(_, rest)| rest);
    let authority = authority.and_then(|rest| rest.split(['/', '?', '#']).next());
    let user = authority.and_then(|authority| authority.rsplit_once('@'));
    let password = user.and_then(|(user, _)| user.split_once(':'));
    password.is_some_and(|(_, password)| !password.is_empty())
}

/// Whether a shell takes this as the name of a variable; at most 256 bytes.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    let bytes = name.as_bytes();
    name.len() <= 256
        && bytes.first().is_some_and(|byte| !byte.is_ascii_digit())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}
