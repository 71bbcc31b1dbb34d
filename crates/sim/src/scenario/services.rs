//! Which services there are: `[service]`, `[[service]]`, `profile = "FILE"`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use portreeve::identity::{Label, Namespace, ServiceName};
use portreeve::profile::{Checked, Profile, ProfileErrors, Replicas, expand_hosts};
use portreeve::rights::{Caller, Rights};
use portreeve::time::Monotonic;
use toml::de::{DeTable, DeValue};

use super::read::{MOST_REPLICAS, moment};
use super::service::{Instead, ServiceLines};
use super::table::{Notes, Problem, Table};

/// The most services of one scenario, and the most tables of them.
pub(super) const MOST_SERVICES: usize = 10_000;
const MOST_TABLES: usize = 1_000;
/// Whose services these are unless said otherwise.
const OWNER: &str = "me";
pub(crate) const FIRST_UID: u32 = 1000;
/// By then the controller listens and its hosts have joined.
const JOINED: Duration = Duration::from_secs(5);

/// A service as the scenario tells of it.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) name: ServiceName,
    pub(super) profile: Arc<Profile>,
    pub(super) owner: Caller,
    /// When it is submitted; `None`: not by itself.
    pub(super) submitted: Option<Monotonic>,
    /// How many replicas there are to be at first.
    pub(super) replicas: u32,
}

/// All of them; the first file that was refused, with its errors.
#[derive(Debug, Default)]
pub(super) struct Services {
    pub(super) all: Vec<Declared>,
    /// Whether one of them could not be read, so that names may be missing.
    pub(super) incomplete: bool,
    pub(super) refused: Option<(String, ProfileErrors)>,
    names: BTreeSet<ServiceName>,
    /// Who submits something; an account has a number.
    owners: BTreeMap<String, u32>,
    /// When a service is submitted of which nothing else is said.
    usually: Monotonic,
}

/// Reads the text of a profile that is named.
pub(super) type Load<'l> = &'l mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

pub(super) fn read(
    text: &str,
    document: &DeTable<'_>,
    root: &Table<'_, '_>,
    notes: &Notes<'_>,
    load: Load<'_>,
) -> Services {
    let mut services = Services {
        usually: if root.has("host") {
            moment(JOINED)
        } else {
            Monotonic::default()
        },
        ..Services::default()
    };
    let named = root.text("profile");
    let many = root.is_list("service");
    let replicas = root.number("replicas", 1..=MOST_REPLICAS);
    if many && (named.is_some() || replicas.is_some()) {
        let key = if named.is_some() {
            "profile"
        } else {
            "replicas"
        };
        root.wrong(
            key,
            "there are tables [[service]]",
            "write it in one of them",
        );
        return Services::refused();
    }
    let tables = if many {
        root.tables("service", MOST_TABLES)
    } else {
        root.table("service").into_iter().collect()
    };
    if named.is_some() && !tables.is_empty() {
        let at = tables[0].at();
        notes.note(
            at,
            "service",
            "there is also profile =",
            "write one of them",
        );
        return Services::refused();
    }
    if named.is_none() && tables.is_empty() {
        if !root.has("service") || many {
            let allowed =
                "write a profile under [service], or profile = \"FILE\", or several [[service]]";
            notes.note(0, "service", "there is no service", allowed);
        }
        return Services::refused();
    }
    if let Some(path) = named {
        let profile = services.file(root, path, load);
        let owner = services.person(OWNER, &[], false);
        let at = Some(services.usually);
        services.put(root, profile, vec![None], owner, at, replicas);
        return services;
    }
    let lines = ServiceLines::new(text, document);
    for (place, table) in tables.iter().enumerate() {
        services.table(&lines, place, table, notes, replicas, load);
    }
    services
}

impl Services {
    fn refused() -> Self {
        Self {
            incomplete: true,
            ..Self::default()
        }
    }

    fn person(&mut self, user: &str, groups: &[&str], admin: bool) -> Caller {
        let next = FIRST_UID.saturating_add(u32::try_from(self.owners.len()).unwrap_or(u32::MAX));
        Caller::new(
            user.to_owned(),
            Some(*self.owners.entry(user.to_owned()).or_insert(next)),
            groups.iter().map(|&group| group.to_owned()).collect(),
            if admin { Rights::ADMIN } else { Rights::USER },
        )
    }

    fn table(
        &mut self,
        lines: &ServiceLines<'_>,
        place: usize,
        table: &Table<'_, '_>,
        notes: &Notes<'_>,
        replicas: Option<u32>,
        load: Load<'_>,
    ) {
        let owner = table.text("owner").unwrap_or(OWNER);
        let groups = table.one_or_more("groups", 64);
        let admin = table.flag("admin").unwrap_or(false);
        let owner = self.person(owner, &groups, admin);
        if owner.user.parse::<Namespace>().is_err() {
            table.wrong("owner", format!("{:?} is no account", owner.user), "");
            self.incomplete = true;
            return;
        }
        let submitted = match table.text("submitted") {
            Some("never") => None,
            Some(_) => table.span("submitted").map(moment),
            None => Some(self.usually),
        };
        let names = names(table);
        if table.has("profile") {
            let replicas = table.number("replicas", 0..=MOST_REPLICAS).or(replicas);
            let path = table.text("profile").unwrap_or_default();
            let profile = self.file(table, path, load);
            let names = names.unwrap_or_else(|| vec![None]);
            self.put(table, profile, names, owner, submitted, replicas);
            for (key, _) in table.entries() {
                let known = OWN.contains(&&**key.get_ref());
                if !known && !["name", "replicas"].contains(&&**key.get_ref()) {
                    let allowed =
                        "write it in the file, or no file; name and replicas may stand here";
                    let field = format!("service.{}", key.get_ref());
                    notes.note(
                        key.span().start,
                        &field,
                        "the profile is in a file",
                        allowed,
                    );
                }
            }
            return;
        }
        let instead = instead(table, names.as_deref());
        let read = lines.of(place, table.entries(), &instead);
        if let Some(at) = read.elsewhere {
            let allowed = "write lines such as [service] and [service.restart], without blanks and quotes, and the fields below";
            notes.note(
                at,
                "service",
                "this is not read as part of the profile",
                allowed,
            );
            self.incomplete = true;
            return;
        }
        let profile = match Profile::from_toml(&read.profile) {
            Ok(checked) => Some(checked.profile),
            Err(errors) => {
                told(&errors, table, notes);
                None
            }
        };
        // The name in the text is the first of its list.
        let names = names.unwrap_or_else(|| vec![None]);
        self.put(table, profile, names, owner, submitted, replicas);
    }

    fn file(&mut self, table: &Table<'_, '_>, path: &str, load: Load<'_>) -> Option<Profile> {
        match load(path) {
            Ok(bytes) => match Profile::from_toml_bytes(&bytes) {
                Ok(Checked { profile, .. }) => Some(profile),
                Err(errors) => {
                    self.refused.get_or_insert((path.to_owned(), errors));
                    None
                }
            },
            Err(cause) => {
                table.wrong("profile", format!("{path}: {cause}"), "");
                None
            }
        }
    }

    /// One service of this profile for each name; under `None` as the profile says.
    fn put(
        &mut self,
        table: &Table<'_, '_>,
        profile: Option<Profile>,
        names: Vec<Option<Label>>,
        owner: Caller,
        submitted: Option<Monotonic>,
        replicas: Option<u32>,
    ) {
        let Some(profile) = profile else {
            self.incomplete = true;
            return;
        };
        if self.all.len() + names.len() > MOST_SERVICES {
            let problem = format!("more than {MOST_SERVICES} services");
            table.wrong("name", problem, "");
            self.incomplete = true;
            return;
        }
        for name in names {
            let mut profile = profile.clone();
            if let Some(name) = name {
                profile.name = name;
            }
            if let Some(replicas) = replicas {
                profile.replicas = Replicas::Count(replicas);
            }
            let own = owner.user.parse().ok();
            let Some(namespace) = profile.namespace.clone().or(own) else {
                continue;
            };
            let name = ServiceName::new(profile.name.clone(), namespace);
            if !self.names.insert(name.clone()) {
                table.wrong(
                    "name",
                    format!("{name} is there twice"),
                    "write another name",
                );
                self.incomplete = true;
                return;
            }
            self.all.push(Declared {
                name,
                replicas: match profile.replicas {
                    Replicas::Count(count) => count,
                    Replicas::PerHost => 1,
                },
                profile: Arc::new(profile),
                owner: owner.clone(),
                submitted,
            });
        }
    }
}

/// What a table `[[service]]` says beside the profile.
const OWN: [&str; 5] = ["owner", "groups", "admin", "submitted", "profile"];

/// The names of a list such as `job[1-100]`.
fn names(table: &Table<'_, '_>) -> Option<Vec<Option<Label>>> {
    let text = match table.entries().get("name")?.get_ref() {
        DeValue::String(text) if text.contains('[') => text.as_ref(),
        DeValue::String(text) if table.has("profile") => text.as_ref(),
        // The profile's reader knows what may stand there.
        _ => return None,
    };
    let refuse = |cause: String| {
        table.wrong(
            "name",
            cause,
            "write a name such as \"web\", or a list such as \"job[1-100]\"",
        );
        None
    };
    let names = match expand_hosts(text) {
        Ok(names) => names,
        Err(cause) => return refuse(cause.to_string()),
    };
    let labels = names.iter().map(|name| name.as_str().parse().map(Some));
    match labels.collect() {
        Ok(labels) => Some(labels),
        Err(cause) => refuse(format!("{cause}")),
    }
}

/// The table as a profile has it: nothing that is the scenario's own, and one name instead of a list.
fn instead(table: &Table<'_, '_>, names: Option<&[Option<Label>]>) -> Vec<Instead> {
    let mut instead = Vec::new();
    for (key, value) in table.entries() {
        if OWN.contains(&&**key.get_ref()) {
            instead.push(Instead {
                of: key.span().start..value.span().end,
                text: String::new(),
            });
        }
        if let ("name", Some([Some(first), ..])) = (&**key.get_ref(), names) {
            instead.push(Instead {
                of: value.span(),
                text: format!("\"{first}\""),
            });
        }
    }
    instead
}

fn told(errors: &ProfileErrors, table: &Table<'_, '_>, notes: &Notes<'_>) {
    // What is missing stands where the profile begins.
    let (nowhere, begin) = (notes.place(0), notes.place(table.at()));
    for error in errors.as_slice() {
        let place = error.place.filter(|place| *place != nowhere);
        notes.add(
            0,
            Problem {
                place: Some(place.unwrap_or(begin)),
                field: match error.field.as_str() {
                    "" => "service".to_owned(),
                    field => format!("service.{field}"),
                },
                problem: error.problem.clone(),
                allowed: error.allowed.clone(),
            },
        );
    }
}
