//! Who keeps the controller busy: owners of services, and jobs of another scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use portreeve_api::attach::{Ask, Attached, ProfileForm, Relayed};
use serde_json::Value;

use super::account::{Account, Verb};
use super::{Asked, Dice, ask};
use crate::endpoints::wire::{Answer, Place};

/// What was done and how it went.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Acknowledged, by verb.
    pub(super) acknowledged: BTreeMap<&'static str, u32>,
    pub(super) refused: u32,
    /// Sent and never answered, and of these: kept by the store all the same.
    pub(super) in_doubt: u32,
    pub(super) kept: u32,
    /// How often a service was held against its account.
    pub(super) held_against: u32,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        for (verb, count) in &other.acknowledged {
            *self.acknowledged.entry(verb).or_default() += count;
        }
        self.refused += other.refused;
        self.in_doubt += other.in_doubt;
        self.kept += other.kept;
        self.held_against += other.held_against;
    }

    fn acknowledge(&mut self, verb: &'static str) {
        *self.acknowledged.entry(verb).or_default() += 1;
    }
}

/// One user with a few services, who does one thing after the other.
pub(super) struct Owner {
    place: Place,
    dice: Dice,
    services: Vec<(String, Account)>,
    pub(super) tally: Tally,
}

impl Owner {
    pub(super) fn new(place: Place, number: u32, dice: Dice) -> Self {
        let services = (0..4).map(|it| (format!("o{number}-s{it}"), Account::empty()));
        Self {
            place,
            dice,
            services: services.collect(),
            tally: Tally::default(),
        }
    }

    /// Asks for something. False: nobody listens.
    pub(super) fn act(&mut self) -> bool {
        let which = self.dice.below(4) as usize;
        let copies = self.dice.below(4);
        let index = self.dice.below(3);
        let (name, account) = &self.services[which];
        let verb = match (account.sure(), self.dice.below(8)) {
            (None, _) | (Some(_), 0) => Verb::Submit(copies),
            (Some(_), 1 | 2) => Verb::Scale(copies),
            (Some(_), 3 | 4) => Verb::Stop,
            (Some(_), 5) => Verb::Start,
            (Some(wanted), 6) if wanted.running && index < wanted.copies => Verb::Kill(index),
            (Some(wanted), _) if !wanted.running => Verb::Delete,
            (Some(_), _) => Verb::Start,
        };
        let (asked, word) = send(&self.place, name, verb);
        let name = name.clone();
        let account = &mut self.services[which].1;
        match asked {
            Asked::Unsent => return false,
            Asked::InDoubt => {
                self.tally.in_doubt += 1;
                account.doubted(verb);
            }
            Asked::Answered(answer) if answer.head.status < 300 => {
                self.tally.acknowledge(word);
                account.done(verb);
            }
            Asked::Answered(answer) => {
                // Still running, or gone: an answer too, and nothing changed.
                assert!(
                    [404, 409].contains(&answer.head.status),
                    "{name} {verb:?}: {answer:?}"
                );
                self.tally.refused += 1;
            }
        }
        // Whoever is in doubt looks before the next step.
        match account.sure() {
            Some(_) => true,
            None => self.hold_against(which),
        }
    }

    /// Looks at each service. Nobody else asks for anything meanwhile.
    pub(super) fn look(&mut self) {
        for which in 0..self.services.len() {
            assert!(self.hold_against(which), "nobody listens");
        }
    }

    /// False: nobody listens.
    fn hold_against(&mut self, which: usize) -> bool {
        let (name, account) = &mut self.services[which];
        let asked = ask(&self.place, "GET", &format!("services/{name}"), b"", "");
        let Asked::Answered(answer) = asked else {
            return false;
        };
        let shown = match answer.head.status {
            200 => Some(answer.json()),
            404 => None,
            _ => panic!("{answer:?}"),
        };
        match account.settle(shown.as_ref()) {
            Ok(solved) => {
                self.tally.kept += u32::from(solved == Some(true));
                self.tally.held_against += 1;
            }
            Err(why) => panic!("{name}: {why}"),
        }
        true
    }
}

fn send(place: &Place, name: &str, verb: Verb) -> (Asked, &'static str) {
    const JSON: &str = "application/json";
    let post = |what: &str, body: &str| {
        let path = format!("services/{name}/{what}");
        ask(place, "POST", &path, body.as_bytes(), JSON)
    };
    match verb {
        Verb::Submit(copies) => {
            let path = format!("services/{name}?replace=true");
            let profile = profile(name, copies);
            let asked = ask(place, "PUT", &path, profile.as_bytes(), "application/toml");
            (asked, "submit")
        }
        Verb::Scale(copies) => {
            let body = format!("{{\"replicas\":{copies}}}");
            (post("scale", &body), "scale")
        }
        Verb::Start => (post("start", ""), "start"),
        Verb::Stop => (post("stop", ""), "stop"),
        Verb::Kill(index) => (post(&format!("replicas/{index}/kill"), ""), "kill"),
        Verb::Delete => {
            let path = format!("services/{name}");
            (ask(place, "DELETE", &path, b"", ""), "delete")
        }
    }
}

fn profile(name: &str, copies: u32) -> String {
    format!(
        "kind = \"service\"\nname = \"{name}\"\nreplicas = {copies}\ncommand = [\"serve\"]\n\
         [ports]\nhttp = \"any\"\nboth = {{ any = 2, protocol = \"tcp+udp\" }}\n\
         [placement]\nhosts = [\"{HOST}\"]\n"
    )
}

/// The host on which all of this is.
pub(super) const HOST: &str = "n2";

/// Jobs of another scheduler on the host, which come and go.
pub(super) struct Jobs {
    place: Place,
    name: String,
    next: u32,
    /// The ask that was never answered.
    open: Option<u32>,
    /// What was granted: index, incarnation and numbers, by ask.
    granted: BTreeMap<u32, (u32, u32, BTreeMap<String, Value>)>,
    pub(super) tally: Tally,
}

/// So many jobs live at once.
const JOBS: usize = 6;

impl Jobs {
    pub(super) fn new(place: Place, number: u32) -> Self {
        Self {
            place,
            name: format!("jobs{number}"),
            next: 0,
            open: None,
            granted: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// A job begins, or the oldest is ended. False: nobody listens.
    pub(super) fn act(&mut self) -> bool {
        if self.open.is_none() && self.granted.len() >= JOBS {
            return self.end_one();
        }
        let key = self.open.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        match self.attach(key) {
            Asked::Unsent => false,
            Asked::InDoubt => {
                self.tally.in_doubt += u32::from(self.open.replace(key).is_none());
                true
            }
            Asked::Answered(answer) if answer.head.status < 300 => {
                self.open = None;
                self.grant(key, &answer);
                true
            }
            // The host has not told everything to this controller yet.
            Asked::Answered(answer) => {
                assert_eq!(answer.head.status, 409, "{answer:?}");
                self.tally.refused += 1;
                true
            }
        }
    }

    fn attach(&self, key: u32) -> Asked {
        let ask_for = Relayed {
            uid: 0,
            ask: Ask {
                profile: "kind = \"service\"\nname = \"jobs\"\ncommand = [\"serve\"]\n[ports]\nhttp = \"any\"\n"
                    .to_owned(),
                form: ProfileForm::Toml,
                set: Vec::new(),
                name: Some(self.name.clone()),
                index: None,
                key: format!("{}-{key}", self.name),
                job: Some(format!("test {key}")),
                folder: PathBuf::from("/nowhere"),
            },
        };
        let body = serde_json::to_vec(&ask_for).unwrap();
        let path = format!("hosts/{HOST}/attach");
        ask(&self.place, "POST", &path, &body, "application/json")
    }

    fn grant(&mut self, key: u32, answer: &Answer) {
        let attached: Attached = serde_json::from_slice(&answer.body).unwrap();
        let desired = attached.replica.desired;
        let ports = desired.grant.ports.iter();
        let ports = ports.map(|it| (it.name.to_string(), u16::from(it.numbers.first()).into()));
        let what = (desired.index, desired.incarnation.0, ports.collect());
        let again = self.granted.insert(key, what.clone());
        assert!(again.is_none_or(|it| it == what), "asked again: {what:?}");
        self.tally.acknowledge("grant");
    }

    /// The oldest job ends; whether that is heard is not asked.
    fn end_one(&mut self) -> bool {
        let Some((_, (index, ..))) = self.granted.pop_first() else {
            return true;
        };
        let path = format!("services/{}/replicas/{index}/kill", self.name);
        !matches!(ask(&self.place, "POST", &path, b"", ""), Asked::Unsent)
    }

    /// Every grant that was acknowledged is there, and what was asked for in vain until now has been given once.
    pub(super) fn look(&mut self) {
        let asked = ask(
            &self.place,
            "GET",
            &format!("services/{}", self.name),
            b"",
            "",
        );
        let Asked::Answered(answer) = asked else {
            panic!("nobody listens");
        };
        let shown = answer.json();
        let replicas: Vec<&Value> = shown["replicas"].as_array().into_iter().flatten().collect();
        let mut indices = BTreeSet::new();
        for (index, incarnation, ports) in self.granted.values() {
            assert!(
                indices.insert(index),
                "two grants at {index}: {:?}",
                self.granted
            );
            let replica = replicas.iter().find(|it| it["replica"] == *index);
            let replica = replica.unwrap_or_else(|| panic!("{index} is not in {shown:#}"));
            assert_eq!(replica["incarnation"], *incarnation, "{replica:#}");
            for (name, number) in ports {
                assert_eq!(replica["ports"][name], *number, "{replica:#}");
            }
        }
        let jobs: BTreeSet<&str> = replicas
            .iter()
            .filter_map(|it| it["job"].as_str())
            .collect();
        let living = replicas.iter().filter(|it| it["job_state"] == "RUN");
        let living = living.filter(|it| it["job"].is_string()).count();
        // One replica for each ask, however often it was made.
        assert!(living <= jobs.len(), "{shown:#}");
        self.tally.held_against += 1;
    }
}
