//! The text of a file as settings, or everything that is wrong with it, by line.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::options::Options;

/// What stands behind a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// As the flag would be given, once for each.
    pub(super) values: Vec<String>,
    /// From 1.
    pub(super) line: usize,
}

impl Setting {
    /// Whether it says no more than that something is not so.
    pub(super) fn is_off(&self) -> bool {
        matches!(self.values.as_slice(), [one] if one == "false")
    }
}

/// `networks.NAME = "RULE"` is `network = ["NAME=RULE"]`.
const NETWORKS: &str = "networks";
const NETWORK: &str = "network";

pub(super) fn settings(
    text: &str,
    options: &Options,
) -> Result<BTreeMap<String, Setting>, Vec<(usize, String)>> {
    let line = |at: usize| {
        1 + text.as_bytes()[..at.min(text.len())]
            .iter()
            .filter(|it| **it == b'\n')
            .count()
    };
    let table = DeTable::parse(text).map_err(|cause| {
        let at = cause.span().map_or(0, |span| span.start);
        vec![(line(at), cause.message().to_owned())]
    })?;
    let mut problems = Vec::new();
    let mut settings: BTreeMap<String, Setting> = BTreeMap::new();
    for (name, value) in table.get_ref() {
        let at = line(name.span().start);
        let key = name.get_ref().as_ref();
        let (key, values) = if key == NETWORKS && options.of_key(NETWORK).is_some() {
            (NETWORK, networks(value))
        } else {
            (key, values_of(value))
        };
        let Some(option) = options.of_key(key) else {
            problems.push((at, unknown(key, options)));
            continue;
        };
        let checked = values.and_then(|values| match options.refuse(option, &values) {
            None => Ok(values),
            Some(refused) => Err(refused),
        });
        match checked {
            Ok(values) => {
                let setting = settings.entry(key.to_owned()).or_insert(Setting {
                    values: Vec::new(),
                    line: at,
                });
                setting.values.extend(values);
            }
            Err(problem) => problems.push((at, format!("{key}: {problem}"))),
        }
    }
    if problems.is_empty() {
        return Ok(settings);
    }
    problems.sort();
    Err(problems)
}

fn values_of(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    match value.get_ref() {
        DeValue::Array(all) => all.iter().map(|one| single(one.get_ref())).collect(),
        one => single(one).map(|one| vec![one]),
    }
}

fn single(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().replace('_', "")),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(is) => Ok(is.to_string()),
        _ => Err("write a text, a number, true or false, or a list of these".to_owned()),
    }
}

fn networks(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    let wrong = || "write NAME = \"NETWORK\" for each".to_owned();
    let table = value.get_ref().as_table().ok_or_else(wrong)?;
    let all = table.iter().map(|(name, rule)| {
        let rule = single(rule.get_ref()).map_err(|_| wrong())?;
        Ok(format!("{}={rule}", name.get_ref()))
    });
    all.collect()
}

fn unknown(key: &str, options: &Options) -> String {
    let near = options.keys().map(|it| {
        let distance = strsim::osa_distance(key, &it.key);
        (distance, it.key.as_str())
    });
    let near = near.filter(|(distance, name)| *distance <= 1 + key.len().min(name.len()) / 3);
    let shown: String = key.chars().take(60).collect();
    match near.min() {
        Some((_, near)) => format!("{shown:?} is no setting; did you mean {near}?"),
        None => format!(
            "{shown:?} is no setting; a key is a long option of the command with _ for -, as its --help lists them"
        ),
    }
}
