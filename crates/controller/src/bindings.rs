//! The site's file of rights: `common_groups`, `[default]`, `[user.alice]`, `[group.staff]`, read at the start and again
//! on change.
//!
//! Who is named, by name or by a group, has the widest of all that name them; who is not has the default. A table that
//! leaves something out has there what its role has, and what everybody has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use portreeve::rights::{Caller, Rights, Role};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::app::App;
use crate::site_file::{Follow, Problems, SiteFile, SiteFileError, unless};

/// Whom the site grants what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bindings {
    common: BTreeSet<String>,
    default: Rights,
    users: BTreeMap<String, Rights>,
    groups: BTreeMap<String, Rights>,
}

impl Default for Bindings {
    fn default() -> Self {
        Self {
            common: BTreeSet::from(["users".to_owned()]),
            default: Rights::USER,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }
}

impl Bindings {
    /// The account with what it is granted.
    pub(crate) fn caller(&self, user: String, uid: Option<u32>, groups: Vec<String>) -> Caller {
        let by_name = self.users.get(&user);
        let by_group = groups.iter().filter_map(|group| self.groups.get(group));
        let granted = by_name.into_iter().chain(by_group).cloned();
        let rights = granted.reduce(|all, next| all.or(&next));
        let rights = rights.unwrap_or_else(|| self.default.clone());
        Caller::new(user, uid, groups, rights).but_for_common(|group| self.common.contains(group))
    }

    /// What a text grants, or everything that is wrong with it, a line each.
    pub(crate) fn read(text: &str) -> Result<Self, Vec<String>> {
        let mut problems: Problems = Vec::new();
        let mut bindings = Self::default();
        match DeTable::parse(text) {
            Ok(table) => bindings.take(table.get_ref(), &mut problems),
            Err(cause) => {
                let at = cause.span().unwrap_or(0..0);
                problems.push((at, cause.message().to_owned()));
            }
        }
        unless(text, problems, bindings)
    }

    fn take(&mut self, table: &DeTable<'_>, problems: &mut Problems) {
        // Wherever it stands: the others are read by it.
        if let Some(value) = table.get("default") {
            self.default = rights(value, &Rights::USER, problems);
        }
        for (key, value) in table {
            let named = match key.get_ref().as_ref() {
                "default" => continue,
                "common_groups" => {
                    self.common = names(value, problems);
                    continue;
                }
                "user" => &mut self.users,
                "group" => &mut self.groups,
                other => {
                    let known = "common_groups, [default], [user.NAME] and [group.NAME]";
                    problems.push((key.span(), format!("{other:?} is none of {known}")));
                    continue;
                }
            };
            let Some(tables) = value.get_ref().as_table() else {
                let problem = format!("write a table for each, such as [{}.NAME]", key.get_ref());
                problems.push((value.span(), problem));
                continue;
            };
            let read = tables.iter().map(|(name, value)| {
                let rights = rights(value, &self.default, problems);
                (name.get_ref().to_string(), rights)
            });
            *named = read.collect();
        }
    }
}

fn names(value: &Spanned<DeValue<'_>>, problems: &mut Problems) -> BTreeSet<String> {
    let array = value.get_ref().as_array();
    let names = array.map(|array| {
        let texts = array.iter().map(|name| name.get_ref().as_str());
        texts.map(|name| name.map(str::to_owned)).collect()
    });
    match names {
        Some(Some(names)) => names,
        _ => {
            let problem = "write the names of groups, such as [\"users\"]";
            problems.push((value.span(), problem.to_owned()));
            BTreeSet::new()
        }
    }
}

fn rights(value: &Spanned<DeValue<'_>>, default: &Rights, problems: &mut Problems) -> Rights {
    let Some(table) = value.get_ref().as_table() else {
        let problem = "write a table with role, view or manage";
        problems.push((value.span(), problem.to_owned()));
        return default.clone();
    };
    let (mut role, mut view, mut manage) = (None, None, None);
    for (key, value) in table {
        let text = value.get_ref().as_str().unwrap_or_default();
        let wrong = match key.get_ref().as_ref() {
            "role" => take(text, &mut role),
            "view" => take(text, &mut view),
            "manage" => take(text, &mut manage),
            other => {
                let problem = format!("{other:?} is none of role, view, manage");
                problems.push((key.span(), problem));
                continue;
            }
        };
        if let Some(problem) = wrong {
            problems.push((value.span(), problem));
        }
    }
    let role: Role = role.unwrap_or(default.role);
    let usual = Rights::of_role(role);
    // Who is less than everybody does not see by it what everybody sees.
    let usual = if role < default.role {
        usual
    } else {
        Rights {
            view: usual.view.or(&default.view),
            manage: usual.manage.or(&default.manage),
            role,
        }
    };
    Rights {
        role,
        view: view.unwrap_or(usual.view),
        manage: manage.unwrap_or(usual.manage),
    }
}

/// Reads it into its place; otherwise what is wrong with it.
fn take<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &str,
    place: &mut Option<T>,
) -> Option<String> {
    match text.parse() {
        Ok(read) => {
            *place = Some(read);
            None
        }
        Err(cause) => Some(cause.to_string()),
    }
}

/// How much is wrong with a text.
#[cfg(fuzzing)]
pub(crate) fn problems(text: &str) -> usize {
    Bindings::read(text).map_or_else(|problems| problems.len(), |_| 0)
}

/// The file of rights.
#[derive(Debug)]
pub(crate) struct RightsFile(SiteFile);

impl RightsFile {
    /// Reads the file.
    pub(crate) fn open(path: &Path) -> Result<(Self, Bindings), SiteFileError> {
        let (file, bindings) = SiteFile::open(path, "rights", Bindings::read)?;
        Ok((Self(file), bindings))
    }

    /// Has everybody have what the file says as it is changed.
    pub(crate) async fn follow(mut self, app: Arc<App>, mut follow: Follow) {
        while let Some(bindings) = self.0.next(Bindings::read, &mut follow).await {
            app.bind(bindings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::rights::Scope;

    fn rights_of(bindings: &Bindings, user: &str, groups: &[&str]) -> Rights {
        let groups = groups.iter().map(ToString::to_string).collect();
        bindings.caller(user.into(), None, groups).rights
    }

    fn written(rights: &Rights) -> String {
        let manage = rights.manages().map_or("none".to_owned(), Scope::to_string);
        format!("{} {} {manage}", rights.role, rights.view)
    }

    #[test]
    fn who_is_named_has_the_widest_of_all_that_name_it_and_others_the_default() {
        let bindings = Bindings::read(
            "[user.alice]\nrole = \"operator\"\nmanage = \"group:chem\"\n[default]\nview = \"group\"\n\
             [group.staff]\nrole = \"viewer\"\nview = \"all\"\n[group.bio]\nmanage = \"group\"\n",
        )
        .unwrap();
        for (user, groups, expected) in [
            ("bob", &[][..], "user group own"),
            ("bob", &["chem"], "user group own"),
            ("bob", &["staff"], "viewer all none"),
            ("bob", &["bio"], "user group group"),
            ("bob", &["bio", "staff"], "user all group"),
            ("alice", &[], "operator all group:chem"),
            ("alice", &["bio"], "operator all group,group:chem"),
        ] {
            assert_eq!(
                written(&rights_of(&bindings, user, groups)),
                expected,
                "{user} {groups:?}"
            );
        }
        assert_eq!(
            written(&rights_of(&Bindings::default(), "bob", &[])),
            "user own own"
        );
    }

    #[test]
    fn groups_that_everybody_is_in_are_nothing_to_share() {
        let sharing = |text: &str| {
            let bindings = Bindings::read(text).unwrap();
            let groups = ["users", "chem"].map(str::to_owned).to_vec();
            bindings.caller("alice".into(), None, groups).sharing
        };
        assert_eq!(sharing(""), ["chem"]);
        assert_eq!(sharing("common_groups = [\"chem\"]"), ["users"]);
        assert_eq!(sharing("common_groups = []"), ["users", "chem"]);
    }

    #[test]
    fn everything_that_is_wrong_is_told_with_its_place() {
        let wrong = Bindings::read(
            "common_groups = \"users\"\n[user.alice]\nrole = \"root\"\nrights = 1\nview = 5\n\
             [users.bob]\nrole = \"user\"\n[group]\nchem = 5\n",
        );
        assert_eq!(
            wrong.unwrap_err(),
            [
                "1:17: write the names of groups, such as [\"users\"]",
                "3:8: \"root\" is no role: write viewer, user, operator or admin",
                "4:1: \"rights\" is none of role, view, manage",
                "5:8: \"\" is no scope: write own, group, group:NAME or all",
                "6:2: \"users\" is none of common_groups, [default], [user.NAME] and [group.NAME]",
                "9:8: write a table with role, view or manage",
            ]
        );
        assert!(Bindings::read("[user").unwrap_err()[0].starts_with("1:"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*|(\\[(user|group)\\.[a-z]{0,2}\\]\n|(role|view) = [a-z\":,]{0,12}\n|é\n){0,8}") {
            let _ = Bindings::read(&text);
        }
    }
}
