//! The site's file of limits: `[user.default]`, `[user.alice]`, `[group.chem]`, read at the start and again on change.
//!
//! A file that cannot be used keeps a controller from starting; one that becomes so while it runs changes nothing, and
//! the log says where it is wrong.

use std::collections::BTreeMap;
use std::path::Path;

use portreeve::commit::Told;
use portreeve::registry::{Allowance, Input, Limits};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::queue::Queue;
use crate::site_file::{Follow, Problems, SiteFile, SiteFileError, unless};

/// The table for those who are not named.
const DEFAULT: &str = "default";

/// The file of limits.
#[derive(Debug)]
pub(crate) struct LimitsFile(SiteFile);

impl LimitsFile {
    /// Reads the file.
    pub(crate) fn open(path: &Path) -> Result<(Self, Limits), SiteFileError> {
        let (file, limits) = SiteFile::open(path, "limits", read)?;
        Ok((Self(file), limits))
    }

    /// Has the registry hold to the file as it is changed.
    pub(crate) async fn follow(mut self, queue: Queue, mut follow: Follow) {
        while let Some(limits) = self.0.next(read, &mut follow).await {
            let told = Told::news(Input::Limits(Box::new(limits)));
            if queue.tell(told).await.is_err() {
                return;
            }
        }
    }
}

/// How much is wrong with a text.
#[cfg(fuzzing)]
pub(crate) fn problems(text: &str) -> usize {
    read(text).map_or_else(|problems| problems.len(), |_| 0)
}

/// The limits, or everything that is wrong, a line each.
fn read(text: &str) -> Result<Limits, Vec<String>> {
    let mut problems: Problems = Vec::new();
    let limits = match DeTable::parse(text) {
        Ok(table) => all(table.get_ref(), &mut problems),
        Err(cause) => {
            let at = cause.span().unwrap_or(0..0);
            problems.push((at, cause.message().to_owned()));
            Limits::default()
        }
    };
    unless(text, problems, limits)
}

fn all(table: &DeTable<'_>, problems: &mut Problems) -> Limits {
    let mut limits = Limits::default();
    for (key, value) in table {
        let (others, named) = match key.get_ref().as_ref() {
            "user" => (&mut limits.user, &mut limits.users),
            "group" => (&mut limits.group, &mut limits.groups),
            other => {
                let known = "[user.default], [user.NAME], [group.default] and [group.NAME]";
                problems.push((key.span(), format!("{other:?} is none of {known}")));
                continue;
            }
        };
        let what = key.get_ref();
        let Some(tables) = value.get_ref().as_table() else {
            let problem = format!("write a table for each, such as [{what}.{DEFAULT}]");
            problems.push((value.span(), problem));
            continue;
        };
        // Who is named has the default's numbers where its own table says none, wherever that stands.
        if let Some(value) = tables.get(DEFAULT) {
            *others = allowance(value, *others, problems);
        }
        let names = tables.iter().filter(|(name, _)| name.get_ref() != DEFAULT);
        let read = names.map(|(name, value)| {
            let own = allowance(value, *others, problems);
            (name.get_ref().to_string(), own)
        });
        *named = read.collect::<BTreeMap<_, _>>();
    }
    limits
}

fn allowance(
    value: &Spanned<DeValue<'_>>,
    mut allowance: Allowance,
    problems: &mut Problems,
) -> Allowance {
    let Some(table) = value.get_ref().as_table() else {
        problems.push((value.span(), "write a table of limits".to_owned()));
        return allowance;
    };
    for (key, value) in table {
        let field = match key.get_ref().as_ref() {
            "ports_per_host" => &mut allowance.ports_per_host,
            "ports" => &mut allowance.ports,
            "replicas" => &mut allowance.replicas,
            "services" => &mut allowance.services,
            other => {
                let known = "ports_per_host, ports, replicas, services";
                problems.push((key.span(), format!("{other:?} is none of {known}")));
                continue;
            }
        };
        match number(value.get_ref()) {
            Some(number) => *field = number,
            None => {
                let problem = "write a number from 0 to 4294967294, or \"unlimited\"";
                problems.push((value.span(), problem.to_owned()));
            }
        }
    }
    allowance
}

fn number(value: &DeValue<'_>) -> Option<u32> {
    match value {
        DeValue::Integer(number) => {
            let digits = number.as_str();
            let number = u32::from_str_radix(digits, number.radix()).ok();
            number.filter(|it| *it < Allowance::UNLIMITED)
        }
        DeValue::String(word) if word == "unlimited" => Some(Allowance::UNLIMITED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::registry::Claimant;

    fn user(name: &str) -> Claimant {
        Claimant::User(name.into())
    }

    #[test]
    fn who_is_named_has_its_own_numbers_and_the_default_s_for_the_rest() {
        let limits = read(
            "[user.alice]\nports = \"unlimited\"\n[user.default]\nports = 70\nreplicas = 7\n\
             [group.chem]\nservices = 1_000\nports_per_host = 0x10\n",
        )
        .unwrap();
        let alice = limits.of(&user("alice"));
        assert_eq!((alice.ports, alice.replicas), (Allowance::UNLIMITED, 7));
        assert_eq!((alice.services, alice.ports_per_host), (100, 512));
        assert_eq!(limits.of(&user("bob")).ports, 70);
        let chem = limits.of(&Claimant::Group("chem".into()));
        assert_eq!((chem.services, chem.ports_per_host), (1_000, 16));
        assert_eq!(limits.of(&Claimant::Group("alice".into())).ports, 5_000);
        assert_eq!(read("").unwrap(), Limits::default());
    }

    #[test]
    fn everything_that_is_wrong_is_told_with_its_place() {
        let wrong = read(
            "[user.alice]\nport = 5\nports = -1\nreplicas = 4294967295\nservices = \"many\"\n\
             [group]\nchem = 5\n[users.bob]\nports = 1\n",
        );
        assert_eq!(
            wrong.unwrap_err(),
            [
                "2:1: \"port\" is none of ports_per_host, ports, replicas, services",
                "3:9: write a number from 0 to 4294967294, or \"unlimited\"",
                "4:12: write a number from 0 to 4294967294, or \"unlimited\"",
                "5:12: write a number from 0 to 4294967294, or \"unlimited\"",
                "7:8: write a table of limits",
                "8:2: \"users\" is none of [user.default], [user.NAME], [group.default] and [group.NAME]",
            ]
        );
        let broken = read("[user.alice]\nports = \n").unwrap_err();
        assert!(broken[0].starts_with("2:"), "{broken:?}");
        assert!(read("user = 5\n").is_err());
    }

    #[test]
    fn a_file_of_nothing_but_errors_is_told_in_part() {
        let text: String = (0..100).map(|nth| format!("x{nth} = 1\n")).collect();
        let told = read(&text).unwrap_err();
        assert_eq!(told.len(), 21);
        assert_eq!(told.last().unwrap(), " and 80 more");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*|(\\[user\\.[a-z]{0,2}\\]\n|ports = [0-9a-z\"-]{0,12}\n|é\n){0,8}") {
            let _ = read(&text);
        }
    }
}
