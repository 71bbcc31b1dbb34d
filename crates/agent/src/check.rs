//! Whether an agent could start here and join, found out without doing either.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use portreeve::host_addr::Published;
use portreeve::residency::skew;
use portreeve::time::Spelled;
use portreeve_api::body::{HostView, WhoAmI};
use portreeve_api::containment::Ladder;
use portreeve_api::sockets;
use portreeve_api::{Client, ClientError, paths};
use rustix::fs::{Access, access};
use serde::Serialize;
use tokio::sync::watch;

mod credential;

use crate::Config;
use crate::clock;
use crate::facts::{self, Granted, Observer};
use crate::identity;
use crate::neighbours;

/// How long the controller may take to answer each question.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What: `state`, `address`, `ports`, `neighbours`, `processes`, `controller`, `token`, `name` or `clock`; callers may add theirs.
    pub what: &'static str,
    /// Whether it is well.
    pub verdict: Verdict,
    /// What was found, and what to do where it is not well.
    pub words: String,
}

/// What a finding means for an agent here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing is to be done.
    Ok,
    /// It works, with something to know.
    Warning,
    /// An agent here would not start, not join, or publish nothing.
    NotReady,
}

impl Finding {
    fn new(what: &'static str, verdict: Verdict, words: impl Into<String>) -> Self {
        let words = words.into();
        Self {
            what,
            verdict,
            words,
        }
    }

    fn ok(what: &'static str, words: impl Into<String>) -> Self {
        Self::new(what, Verdict::Ok, words)
    }

    fn warning(what: &'static str, words: impl Into<String>) -> Self {
        Self::new(what, Verdict::Warning, words)
    }

    fn not_ready(what: &'static str, words: impl Into<String>) -> Self {
        Self::new(what, Verdict::NotReady, words)
    }
}

/// The address that an agent of this configuration would publish now, with all candidates. Asks nobody but the
/// kernel and the configured command; blocks as long as that takes, at most 10 s.
///
/// # Errors
///
/// The system's, when it does not tell the host's addresses.
pub fn chosen_address(config: &Config) -> io::Result<Published> {
    observer(config).choose()
}

fn observer(config: &Config) -> Observer {
    let (_, granted) = watch::channel(Granted::new());
    Observer::new(config.clone().into(), granted)
}

/// Everything that must be well for an agent of this configuration. Joins nothing, starts nothing, changes nothing.
///
/// Call it inside a tokio runtime with IO and time. Bounded: some 10 s for each question to the controller, a second
/// for each other agent of this network.
pub async fn check(config: &Config, client: &Client) -> Vec<Finding> {
    let here = config.clone();
    let here = tokio::task::spawn_blocking(move || {
        let mut findings = vec![state(&here), address(&here)];
        findings.extend(ports(&here));
        findings.push(neighbourhood(&here));
        findings.push(processes(&here));
        findings
    });
    let mut findings = here.await.expect("looking at the host does not panic");
    findings.extend(controller(config, client).await);
    findings
}

/// Whether the state folder can be used or made, found out without writing.
fn state(config: &Config) -> Finding {
    const WHAT: &str = "state";
    let state = &config.state;
    let refused = |path: &Path, cause: &dyn std::fmt::Display| {
        let words = format!(
            "{}: {cause}; name another folder with --data",
            path.display()
        );
        Finding::not_ready(WHAT, words)
    };
    // What stands where a folder should be is found next.
    let missing = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    let exists = |path: &&Path| !matches!(path.symlink_metadata(), Err(cause) if missing.contains(&cause.kind()));
    let place = state.ancestors().find(exists).unwrap_or(Path::new("/"));
    match place.metadata() {
        Err(cause) => return refused(place, &cause),
        Ok(found) if !found.is_dir() => return refused(place, &"not a folder"),
        Ok(_) => {}
    }
    let needed = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    match access(place, needed) {
        Err(cause) => refused(place, &io::Error::from(cause)),
        Ok(()) if place == state => Finding::ok(WHAT, state.display().to_string()),
        Ok(()) => Finding::ok(WHAT, format!("{}, to be made", state.display())),
    }
}

fn address(config: &Config) -> Finding {
    match chosen_address(config) {
        Err(cause) => Finding::not_ready("address", format!("it cannot be read: {cause}")),
        Ok(choice) => match choice.address {
            Some(address) => Finding::ok("address", format!("{address} ({})", choice.rule)),
            None => Finding::not_ready(
                "address",
                format!(
                    "{}; see --check-address, and name one with --address",
                    choice.rule
                ),
            ),
        },
    }
}

fn ports(config: &Config) -> Vec<Finding> {
    let told = format!("any: {}; fixed: {}", config.dynamic, config.fixed);
    let told = if config.reserved.is_empty() {
        told
    } else {
        format!("{told}; reserved: {}", config.reserved)
    };
    let ephemeral = match sockets::ephemeral() {
        Ok(ephemeral) => ephemeral,
        Err(cause) => {
            let words = format!("{told}; the kernel's ephemeral range cannot be read: {cause}");
            return vec![Finding::warning("ports", words)];
        }
    };
    let left = config.drawn(&ephemeral).difference(&config.reserved);
    let none = left.is_empty() && !config.dynamic.is_empty();
    let mut findings = vec![if none {
        Finding::not_ready("ports", format!("{told}; nothing is left to draw from"))
    } else {
        Finding::ok("ports", told)
    }];
    let warning = config.ephemeral_warning(&ephemeral);
    findings.extend(warning.map(|words| Finding::warning("ports", words)));
    findings
}

fn neighbourhood(config: &Config) -> Finding {
    const WHAT: &str = "neighbours";
    let own = identity::known(&config.state).ok().flatten();
    let others = neighbours::others(None);
    let is_own =
        |other: &neighbours::Neighbour| own.as_ref().is_some_and(|own| other.has_folder(own));
    if let Some(own) = others.iter().find(|other| is_own(other)) {
        let pid = own.pid.map(|pid| format!(", as process {pid}"));
        let words = format!("this agent runs already{}", pid.unwrap_or_default());
        return Finding::ok(WHAT, words);
    }
    match neighbours::in_the_way(&others, &config.dynamic) {
        Err(shared) => Finding::not_ready(WHAT, shared.to_string()),
        Ok(()) if others.is_empty() => Finding::ok(WHAT, "no other agent in this network"),
        Ok(()) => {
            let names = others.iter().filter_map(neighbours::Neighbour::host);
            let names: Vec<_> = names.map(ToString::to_string).collect();
            let words = format!("{} in this network, with other numbers", names.join(", "));
            Finding::ok(WHAT, words)
        }
    }
}

/// What a host may be able to do, by the word of its report, and what it means where that is missing.
pub const ABILITIES: [(&str, &str); 3] = [
    (
        "pidfd",
        "a process is signalled by its number, after a look at its start time",
    ),
    (
        "cgroup-v2-kill",
        "processes that leave their group are searched for by their ancestors and their environment; run the agent \
         in a cgroup that it may write (`Delegate=yes`)",
    ),
    (
        "owner-proof",
        "a stranger that answers on a replica's port is not told apart; mount /proc without hidepid for the agent",
    ),
];

/// The words of a host's report for people: what it can do, then what holds processes together and what could.
#[must_use]
pub fn told_abilities(can: &[String]) -> String {
    let behind = |prefix: &str| -> Vec<&str> {
        let words = can.iter().filter_map(|word| word.strip_prefix(prefix));
        words.collect()
    };
    let (used, possible) = (behind("containment:"), behind("rung:"));
    let others = can.iter().map(String::as_str);
    let others =
        others.filter(|word| !word.starts_with("containment:") && !word.starts_with("rung:"));
    let mut text = others.collect::<Vec<_>>().join(", ");
    if !used.is_empty() {
        text.push_str(&format!("; containment: {}", used.join(", ")));
    }
    // A unit is held by its manager, whatever else is possible.
    if !possible.is_empty() && !used.iter().any(|word| word.starts_with("systemd")) {
        text.push_str(&format!(" (possible: {})", possible.join(", ")));
    }
    text
}

fn processes(config: &Config) -> Finding {
    // The state folder is made by the agent itself; until then any folder stands for it.
    let mut above = config.state.ancestors();
    let state = above
        .find(|folder| folder.is_dir())
        .unwrap_or(Path::new("/"));
    let ladder = match Ladder::climb(config.containment, state) {
        Ok(ladder) => ladder,
        Err(cause) => {
            let words = format!(
                "containment {} is not possible: {cause}",
                config.containment
            );
            return Finding::not_ready("processes", words);
        }
    };
    let can = facts::capabilities(&ladder, config.backend);
    let lacks = ABILITIES
        .iter()
        .filter(|(word, _)| !can.iter().any(|it| it == word));
    let lacks: Vec<_> = lacks
        .map(|(word, means)| format!("without {word}: {means}"))
        .collect();
    if lacks.is_empty() {
        Finding::ok("processes", told_abilities(&can))
    } else {
        Finding::warning("processes", lacks.join("; "))
    }
}

async fn controller(config: &Config, client: &Client) -> Vec<Finding> {
    const WHAT: &str = "controller";
    let credential = match credential::of(config) {
        Ok(credential) => credential,
        Err(cause) => return vec![Finding::not_ready("token", cause.to_string())],
    };
    let client = client.clone().with_token(credential.token());
    let asked = clock::now();
    let who: WhoAmI = match client.get(&paths::whoami(), PATIENCE).await {
        Ok(who) => who,
        Err(ClientError::Refused(problem)) if problem.status == 401 => {
            let reached = Finding::ok(WHAT, format!("{} answers", client.target()));
            return vec![reached, credential.refused(config, &problem)];
        }
        Err(cause) => {
            let mut words = cause.to_string();
            if matches!(cause, ClientError::Unreachable { .. }) {
                words.push_str("; start it, or name the right one with --controller or as `controller` in the agent's configuration file");
            }
            return vec![Finding::not_ready(WHAT, words)];
        }
    };
    let skew = who
        .now
        .and_then(|theirs| skew::skew_ms(asked, clock::now(), theirs));
    let reached = format!("{} answers, as {}", client.target(), who.user);
    let mut findings = Vec::new();
    if let Some(token) = credential.known(config, &who) {
        findings.extend([Finding::ok(WHAT, reached), token]);
    } else if who.admin {
        findings.push(Finding::ok(WHAT, reached));
        findings.extend(name(config, &client).await);
    } else {
        let cure = "run the agent as root or as the controller's account, or have it join with --join-token-file";
        findings.push(Finding::not_ready(
            WHAT,
            format!("{reached}, who may not speak for a host; {cure}"),
        ));
        findings.extend(name(config, &client).await);
    }
    findings.extend(skew.map(clock_of));
    findings
}

/// Whether the host's name is free for this agent.
async fn name(config: &Config, client: &Client) -> Option<Finding> {
    const WHAT: &str = "name";
    let host = &config.host;
    let known: HostView = match client.get(&paths::host(host), PATIENCE).await {
        Ok(known) => known,
        Err(ClientError::Refused(problem)) if problem.status == 404 => {
            return Some(Finding::ok(
                WHAT,
                format!("{host} is new to the controller"),
            ));
        }
        Err(cause) => return Some(Finding::not_ready(WHAT, cause.to_string())),
    };
    let own = identity::known(&config.state).ok().flatten();
    let machine = facts::machine_id();
    Some(match known.agent {
        Some(agent) if agent.machine != machine || Some(&agent.folder) != own.as_ref() => {
            let words = format!(
                "{host} is the agent on machine {}, with another state folder; unless that one has ended, name this \
                 host with --host",
                agent.machine
            );
            Finding::warning(WHAT, words)
        }
        _ => Finding::ok(
            WHAT,
            format!("{host} is known to the controller as this host"),
        ),
    })
}

fn clock_of(skew_ms: i64) -> Finding {
    let off = Spelled(Duration::from_millis(skew_ms.unsigned_abs()));
    let side = if skew_ms < 0 { "behind" } else { "ahead of" };
    let words = format!("{off} {side} the controller's");
    if skew::is_off(skew_ms) {
        Finding::warning("clock", format!("{words}; keep both by NTP"))
    } else {
        Finding::ok("clock", words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_processes_is_told_apart_from_what_could() {
        let told = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            told_abilities(&words)
        };
        assert_eq!(
            told(&[
                "pidfd",
                "owner-proof",
                "containment:freezer",
                "rung:freezer",
                "rung:process-tree"
            ]),
            "pidfd, owner-proof; containment: freezer (possible: freezer, process-tree)"
        );
        assert_eq!(
            told(&["pidfd", "containment:systemd-user", "rung:process-tree"]),
            "pidfd; containment: systemd-user"
        );
        assert_eq!(told(&["pidfd"]), "pidfd");
    }
}
