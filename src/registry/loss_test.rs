//! Hosts that fall silent, are given up, and come back.

use std::time::Duration;

use crate::endpoints::EndpointState;
use crate::rights::Rights;
use crate::supervision::{Final, State};

use super::records::Phase;
use super::rig::{Rig, alice, caller, config, facts, name, now, web, with_port};
use super::{
    Allowance, Attachment, Command, Config, Effect, HostFacts, HostVerb, Input, Limits,
    MemoryStore, ReplicaReport, Silence, Suspects,
};

const SUSPECT_AFTER: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(90);

pub(super) fn graced() -> Config {
    Config {
        silence: Some(Silence::default()),
        stale_for: Some(GRACE),
        ..config()
    }
}

/// Hosts of these names and nothing else.
pub(super) fn cluster(hosts: &[&str]) -> Rig {
    let mut rig = Rig::at(MemoryStore::default(), now(0), graced());
    for host in hosts {
        rig.join(host);
    }
    rig
}

pub(super) fn lease(rig: &mut Rig, host: &str) {
    rig.tell(Input::Lease {
        host: host.parse().unwrap(),
        skew_ms: None,
    });
}

/// Time passes in which only these hosts give signs of life.
pub(super) fn pass(rig: &mut Rig, seconds: u64, alive: &[&str]) {
    for _ in 0..seconds / 5 {
        rig.pass(Duration::from_secs(5));
        for host in alive {
            lease(rig, host);
        }
    }
    rig.pass(Duration::from_secs(seconds % 5));
}

pub(super) fn host_state(rig: &Rig, host: &str) -> String {
    rig.registry.view().hosts[&host.parse().unwrap()]
        .state
        .clone()
}

/// Where a replica is placed.
pub(super) fn at(rig: &Rig, service: &str, index: u32) -> String {
    let host = rig.replica(service, index).host;
    host.map_or_else(String::new, |host| host.to_string())
}

pub(super) fn other<'a>(host: &str, of: [&'a str; 2]) -> &'a str {
    if of[0] == host { of[1] } else { of[0] }
}

fn publishes(rig: &Rig) -> usize {
    let all = rig.effects.iter();
    all.filter(|it| matches!(it, Effect::Publish { .. }))
        .count()
}

/// A service of one ready replica on one of two hosts; its host and the other one.
pub(super) fn one_of_two() -> (Rig, String, String) {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(2));
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]).to_owned();
    (rig, host, rest)
}

/// What a full report of a host says that runs these: the newest status of each as it was at the loss.
pub(super) fn back(rig: &mut Rig, host: &str, runs: &[ReplicaReport]) {
    let known = rig.facts(host);
    rig.tell(Input::HostReport(HostFacts {
        replicas: runs.to_vec(),
        full: true,
        ..known
    }));
}

pub(super) fn held(rig: &mut Rig, host: &str) -> u32 {
    rig.ports(host, &alice()).counts.held
}

// It was looked at again only when the grace of its first silence was over.
#[test]
fn a_host_that_falls_silent_again_is_suspect_as_soon_as_the_first_time() {
    let (mut rig, host, rest) = one_of_two();
    for _ in 0..3 {
        pass(&mut rig, 10, &[&host, &rest]);
        assert_eq!(host_state(&rig, &host), "up");
        pass(&mut rig, 25, &[&rest]);
        assert_eq!(host_state(&rig, &host), "suspect");
        lease(&mut rig, &host);
        assert_eq!(host_state(&rig, &host), "up");
    }
    // And is lost after its newest silence alone.
    pass(&mut rig, 85, &[&rest]);
    assert_eq!(host_state(&rig, &host), "suspect");
    pass(&mut rig, 10, &[&rest]);
    assert_eq!(host_state(&rig, &host), "lost");
}

// P19, P21, P22, endpoints 32
#[test]
fn a_silent_host_is_unconfirmed_within_its_grace_and_its_return_changes_nothing_at_all() {
    let (mut rig, host, rest) = one_of_two();
    pass(&mut rig, 10, &[&host, &rest]);
    let before = (
        rig.registry.revision(),
        rig.commits,
        rig.events("web").len(),
        rig.registry.view().services[&name("web")].clone(),
        rig.table.clone(),
    );
    pass(&mut rig, 30, &[&rest]);
    assert_eq!(host_state(&rig, &host), "suspect");
    let seen = rig.replica("web", 0);
    assert_eq!(
        (seen.state.as_str(), seen.ready, seen.job_state.as_str()),
        ("unknown", true, "RUN")
    );
    let told = seen.reason.unwrap();
    assert!(told.starts_with("unknown since 2023-11-14T22:"), "{told}");
    assert!(seen.unknown_since.is_some());
    let endpoint = rig.endpoint("web", 0).unwrap();
    assert_eq!(endpoint.state, EndpointState::Unconfirmed);
    assert_eq!(rig.registry.revision(), before.0, "nobody is woken");
    pass(&mut rig, 40, &[&rest]);
    lease(&mut rig, &host);
    assert_eq!(host_state(&rig, &host), "up");
    let after = (
        rig.registry.revision(),
        rig.commits,
        rig.events("web").len(),
        rig.registry.view().services[&name("web")].clone(),
        rig.table.clone(),
    );
    assert_eq!(after.3.revision, before.3.revision);
    assert_eq!(after, before);
}

// P19, endpoints 32
#[test]
fn a_lost_hosts_endpoints_leave_in_one_revision_and_its_replicas_go_elsewhere() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&web("web", 4)).unwrap();
    for index in 0..4 {
        rig.ready("web", index);
    }
    rig.pass(Duration::from_secs(2));
    let mine: Vec<u32> = (0..4).filter(|it| at(&rig, "web", *it) == "n1").collect();
    assert_eq!(mine.len(), 2);
    rig.slow = true;
    let revision = rig.registry.revision();
    pass(&mut rig, 95, &["n2"]);
    // The store has not answered yet: the withdrawal is news.
    assert!(rig.with_store.is_some());
    assert_eq!(rig.registry.revision(), revision + 1);
    for index in &mine {
        let endpoint = rig.endpoint("web", *index).unwrap();
        assert_eq!(endpoint.state, EndpointState::NotReady);
        let reason = endpoint.reason.unwrap();
        assert!(
            reason.starts_with("host lost, last contact 2023-11-14T22:13:2"),
            "{reason}"
        );
        assert_eq!(rig.replica("web", *index).state, "host lost");
    }
    assert_eq!(held(&mut rig, "n1"), 2);
    rig.slow = false;
    rig.land();
    rig.settle();
    assert_eq!(host_state(&rig, "n1"), "lost");
    for index in &mine {
        let replica = rig.replica("web", *index);
        assert_eq!(
            (at(&rig, "web", *index).as_str(), replica.incarnation.0),
            ("n2", 1)
        );
    }
    let warnings = rig.registry.view().hosts[&"n1".parse().unwrap()]
        .warnings
        .clone();
    assert!(
        warnings[0].contains("its numbers stay held"),
        "{warnings:?}"
    );
    let told: Vec<_> = rig
        .events("web")
        .into_iter()
        .filter(|it| it.kind == "requeued")
        .collect();
    assert_eq!(told.len(), 2);
    assert!(
        told[0].text.starts_with("host n1 lost, last contact"),
        "{told:?}"
    );
    // The numbers stay held, by the name of their old holders, also over a start.
    assert_eq!(held(&mut rig, "n1"), 2);
    let ports = rig.ports("n1", &alice()).ports;
    assert!(
        ports
            .iter()
            .all(|it| it.stranded.is_some() && it.service == Some(name("web")))
    );
    let mut rig = rig.restart();
    assert_eq!(held(&mut rig, "n1"), 2);
    assert_eq!(host_state(&rig, "n1"), "lost");
}

#[test]
fn what_a_returned_host_runs_no_more_is_freed_and_what_was_replaced_is_stopped_first() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&with_port("gone", 1, "\"any\"")).unwrap();
    rig.submit(&with_port("alive", 1, "\"any\"")).unwrap();
    let mut told = Vec::new();
    // Both on n1.
    for service in ["gone", "alive"] {
        if at(&rig, service, 0) != "n1" {
            rig.ask(Command::Kill {
                service: name(service),
                index: 0,
            })
            .unwrap();
            rig.ends(service, 0, Final::Stopped);
            rig.replace(&format!(
                "placement.hosts = [\"n1\", \"n3\"]\n{}",
                with_port(service, 1, "\"any\"")
            ))
            .unwrap();
        }
        assert_eq!(at(&rig, service, 0), "n1");
        rig.ready(service, 0);
        told.push(rig.report(service, 0, |_| ()));
    }
    rig.join("n3");
    pass(&mut rig, 95, &["n2", "n3"]);
    assert_eq!(host_state(&rig, "n1"), "lost");
    assert_eq!(held(&mut rig, "n1"), 2);
    assert_ne!(at(&rig, "alive", 0), "n1");
    // A sign of life alone is not enough.
    lease(&mut rig, "n1");
    assert_eq!(host_state(&rig, "n1"), "lost");
    assert!(rig.registry.desired(&"n1".parse().unwrap()).unwrap().1);
    let alive = told[1].clone();
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    assert_eq!(host_state(&rig, "n1"), "up");
    let old = alive.incarnation;
    assert_eq!(rig.orders("n1"), [format!("alive.alice 0 {old} stop")]);
    assert_eq!(held(&mut rig, "n1"), 1, "one is gone, one still runs");
    assert!(rig.kinds("gone").contains(&"released".to_owned()));
    // Its end is what frees its numbers.
    let mut ended = alive;
    ended.status.seq += 1;
    ended.status.state = State::Final(Final::Stopped);
    rig.tell(Input::Status(ended));
    assert_eq!(held(&mut rig, "n1"), 0);
    assert_eq!(rig.orders("n1"), [format!("alive.alice 0 {old} forget")]);
    assert_eq!(rig.ports("n1", &alice()).counts.cooling, 2);
}

// endpoints 32: a fixed number of a lost host is given to nobody before the host is known to be without it.
#[test]
fn numbers_of_a_lost_host_are_not_given_before_it_reports() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&with_port("a", 1, "8443")).unwrap();
    rig.submit(&with_port("b", 1, "8443")).unwrap();
    rig.ready("a", 0);
    let alive = rig.report("a", 0, |_| ());
    rig.ask(Command::Stop { service: name("a") }).unwrap();
    pass(&mut rig, 95, &[]);
    let gone = rig.replica("a", 0);
    assert_eq!(
        (gone.job_state.as_str(), gone.state.as_str()),
        ("EXIT", "stopped")
    );
    assert!(
        gone.reason
            .unwrap()
            .starts_with("stopped by alice; host n1 lost")
    );
    let mut rig = rig.restart();
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    assert_eq!(rig.replica("b", 0).job_state, "PEND");
    assert_eq!(rig.orders("n1"), ["a.alice 0 0 stop"]);
    let mut ended = alive;
    ended.status.seq += 1;
    ended.status.state = State::Final(Final::Stopped);
    rig.tell(Input::Status(ended));
    assert_eq!(rig.replica("b", 0).job_state, "PEND");
    pass(&mut rig, 65, &["n1"]);
    assert_eq!(rig.replica("b", 0).job_state, "RUN");
}

#[test]
fn who_is_at_its_limit_moves_off_a_lost_host_and_what_is_left_there_counts_once_it_is_over() {
    let limits = Limits {
        user: Allowance {
            ports: 1,
            ..Allowance::default()
        },
        ..Limits::default()
    };
    let mut rig = Rig::at(
        MemoryStore::default(),
        now(0),
        Config { limits, ..graced() },
    );
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.join("n2");
    pass(&mut rig, 95, &["n2"]);
    assert_eq!(at(&rig, "web", 0), "n2", "it is not counted twice");
    let service = name("web");
    rig.ask(Command::Stop { service }).unwrap();
    rig.ends("web", 0, Final::Stopped);
    rig.submit(&web("next", 1)).unwrap();
    let reason = rig.replica("next", 0).reason;
    assert_eq!(reason.as_deref(), Some("LIMIT: alice holds 1 of 1 ports"));
    let rebooted = HostFacts {
        boot_id: "boot-2".into(),
        ..facts("n1")
    };
    rig.tell(Input::HostReport(rebooted));
    assert_eq!(rig.replica("next", 0).job_state, "RUN", "room came");
}

#[test]
fn a_new_boot_of_a_lost_host_frees_everything_that_is_stranded_there() {
    let (mut rig, host, rest) = one_of_two();
    pass(&mut rig, 95, &[&rest]);
    assert_eq!(held(&mut rig, &host), 1);
    let known = rig.facts(&host);
    // Not even a full report: the boot says it all.
    rig.tell(Input::HostReport(HostFacts {
        boot_id: "boot-2".into(),
        full: false,
        ..known
    }));
    assert_eq!(held(&mut rig, &host), 0);
    assert_eq!(host_state(&rig, &host), "lost");
    assert_eq!(at(&rig, "web", 0), rest);
}

#[test]
fn what_was_not_replaced_yet_is_taken_back_by_its_host() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let alive = rig.report("web", 0, |status| status.restarts = 3);
    let number = rig.replica("web", 0).ports;
    pass(&mut rig, 95, &[]);
    assert_eq!(rig.states("web"), ["pending"]);
    assert_eq!(rig.replica("web", 0).incarnation.0, 1);
    assert_eq!(rig.replica("web", 0).reasons[0].code, "HOST LOST");
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.state.as_str(), replica.incarnation.0),
        ("ready", 0)
    );
    assert_eq!((replica.restarts, replica.restarts_total), (3, 3));
    assert_eq!(replica.ports, number);
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 run"]);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    assert!(rig.kinds("web").contains(&"taken-back".to_owned()));
    let mut rig = rig.restart();
    assert_eq!(held(&mut rig, "n1"), 1);
}

#[test]
fn what_its_owner_stopped_meanwhile_is_not_taken_back() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[]);
    rig.ask(Command::Stop {
        service: name("web"),
    })
    .unwrap();
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    assert_eq!(rig.states("web"), ["stopped"]);
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 stop"]);
}

#[test]
fn a_deleted_service_is_still_stopped_where_it_lives_and_holds_its_numbers_until_then() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let alive = rig.report("web", 0, |_| ());
    rig.ask(Command::Stop {
        service: name("web"),
    })
    .unwrap();
    pass(&mut rig, 95, &[]);
    rig.ask(Command::Delete {
        service: name("web"),
    })
    .unwrap();
    let mut rig = rig.restart();
    assert_eq!(held(&mut rig, "n1"), 1);
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 stop"]);
    back(&mut rig, "n1", &[]);
    assert_eq!(held(&mut rig, "n1"), 0);
}

#[test]
fn what_is_not_to_be_run_again_ends_with_its_host() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&format!("rerunnable = false\n{}", web("web", 1)))
        .unwrap();
    rig.ready("web", 0);
    let host = at(&rig, "web", 0);
    let rest = other(&host, ["n1", "n2"]);
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[rest]);
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.job_state.as_str(), replica.state.as_str()),
        ("EXIT", "host lost")
    );
    assert_eq!(held(&mut rig, &host), 1);
    back(&mut rig, &host, &[alive]);
    assert_eq!(rig.orders(&host), ["web.alice 0 0 stop"]);
}

pub(super) fn attach(rig: &mut Rig, host: &str) {
    let toml = web("job", 1);
    let attachment = Attachment {
        service: name("job"),
        profile: super::rig::profile(&toml),
        source: None,
        host: host.parse().unwrap(),
        index: None,
        key: "k".into(),
        job: Some("slurm 7".into()),
    };
    rig.ask(Command::Attach(Box::new(attachment))).unwrap();
}

#[test]
fn a_job_of_another_scheduler_ends_with_its_host_and_goes_on_if_that_comes_back_with_it() {
    let mut rig = cluster(&["n1", "n2"]);
    attach(&mut rig, "n1");
    rig.ready("job", 0);
    let alive = rig.report("job", 0, |_| ());
    pass(&mut rig, 95, &["n2"]);
    let replica = rig.replica("job", 0);
    assert_eq!(
        (replica.job_state.as_str(), replica.state.as_str()),
        ("EXIT", "host lost")
    );
    assert_eq!(held(&mut rig, "n1"), 1);
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    let replica = rig.replica("job", 0);
    assert_eq!(
        (replica.state.as_str(), replica.job.as_deref()),
        ("ready", Some("slurm 7"))
    );
}

#[test]
fn a_full_disk_keeps_no_endpoint_of_a_lost_host_listed_and_heals_by_itself() {
    let (mut rig, host, rest) = one_of_two();
    rig.store.failing_commits = 1_000;
    pass(&mut rig, 95, &[&rest]);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
    assert_eq!(at(&rig, "web", 0), host);
    assert_eq!(host_state(&rig, &host), "lost");
    rig.store.failing_commits = 0;
    pass(&mut rig, 5, &[&rest]);
    assert_eq!(at(&rig, "web", 0), rest);
    assert_eq!(held(&mut rig, &host), 1);
}

#[test]
fn a_host_that_is_back_before_its_loss_could_be_stored_keeps_everything() {
    let (mut rig, host, rest) = one_of_two();
    let alive = rig.report("web", 0, |_| ());
    rig.store.failing_commits = 1_000;
    pass(&mut rig, 95, &[&rest]);
    back(&mut rig, &host, std::slice::from_ref(&alive));
    rig.store.failing_commits = 0;
    pass(&mut rig, 5, &[&host, &rest]);
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.state.as_str(), replica.incarnation.0),
        ("ready", 0)
    );
    assert_eq!(rig.orders(&host), ["web.alice 0 0 run"]);
}

// hosts.md 4: a batch that was on its way when the host came back, and was refused.
#[test]
fn what_a_host_says_while_its_loss_is_with_a_store_that_refuses_is_not_lost() {
    let (mut rig, host, rest) = one_of_two();
    let mut alive = rig.report("web", 0, |_| ());
    rig.slow = true;
    pass(&mut rig, 95, &[&rest]);
    assert!(rig.with_store.is_some());
    alive.status.ready = false;
    back(&mut rig, &host, std::slice::from_ref(&alive));
    rig.store.failing_commits = 1;
    rig.slow = false;
    rig.land();
    rig.settle();
    // Nothing of what it said is lost with the batch.
    assert_eq!(rig.orders(&host), ["web.alice 0 0 run"]);
    assert_eq!(rig.states("web"), ["not ready"]);
    assert_eq!(rig.replica("web", 0).incarnation.0, 0);
}

#[test]
fn a_controller_that_was_away_gives_every_host_its_whole_grace_again() {
    let (rig, host, rest) = one_of_two();
    let mut rig = Rig::at(rig.store, now(10 * 3_600_000), graced());
    let revision = rig.registry.revision();
    rig.pass(Duration::from_secs(89));
    assert_eq!(host_state(&rig, &host), "not reported");
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Unconfirmed));
    assert_eq!(rig.registry.revision(), revision);
    let told = rig.facts(&host);
    rig.tell(Input::HostReport(told));
    pass(&mut rig, 20, &[&host]);
    assert_eq!(host_state(&rig, &rest), "lost");
    assert_eq!(rig.states("web"), ["ready"]);
    assert_eq!(at(&rig, "web", 0), host);
}

#[test]
fn a_controller_that_was_halted_takes_its_own_absence_for_no_silence_of_hosts() {
    let (mut rig, host, rest) = one_of_two();
    rig.now = now(rig.now.mono.as_millis() + 3_600_000);
    let mut out = Vec::new();
    rig.registry.on_deadline(rig.now, &mut out);
    rig.settle();
    pass(&mut rig, 60, &[&rest]);
    assert_eq!(host_state(&rig, &host), "suspect");
    assert_eq!(at(&rig, "web", 0), host);
    // One that stays silent is lost all the same.
    pass(&mut rig, 40, &[&rest]);
    assert_eq!(host_state(&rig, &host), "lost");
}

// Where every host is suspect, nothing else is due for the rest of the grace.
#[test]
fn a_controller_that_was_halted_while_all_hosts_were_suspect_gives_none_of_them_up() {
    let (mut rig, host, rest) = one_of_two();
    rig.pass(Duration::from_secs(25));
    assert_eq!(host_state(&rig, &host), "suspect");
    assert_eq!(host_state(&rig, &rest), "suspect");
    // Both come back meanwhile, and their signs of life wait to be taken in.
    rig.now = now(rig.now.mono.as_millis() + 70_000);
    let mut out = Vec::new();
    rig.registry.on_deadline(rig.now, &mut out);
    rig.settle();
    lease(&mut rig, &host);
    lease(&mut rig, &rest);
    assert_eq!(host_state(&rig, &host), "up");
    assert_eq!(rig.replica("web", 0).incarnation.0, 0);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
}

#[test]
fn a_loss_that_was_half_decided_at_a_crash_is_decided_by_the_next_start() {
    let (mut rig, host, rest) = one_of_two();
    rig.slow = true;
    pass(&mut rig, 95, &[&rest]);
    assert!(rig.with_store.is_some());
    // It dies before the batch is there.
    let mut rig = rig.restart();
    let told = rig.facts(&rest);
    rig.tell(Input::HostReport(told));
    pass(&mut rig, 95, &[&rest]);
    assert_eq!(at(&rig, "web", 0), rest);
    assert_eq!(held(&mut rig, &host), 1);
}

#[test]
fn a_site_may_have_suspects_withdrawn_at_once() {
    let silence = Silence::new(SUSPECT_AFTER, GRACE, Suspects::AreWithdrawn).unwrap();
    let config = Config {
        silence: Some(silence),
        ..graced()
    };
    let mut rig = Rig::at(MemoryStore::default(), now(0), config);
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(21));
    let endpoint = rig.endpoint("web", 0).unwrap();
    assert_eq!(endpoint.state, EndpointState::NotReady);
    assert!(endpoint.reason.unwrap().ends_with("host n1 is silent"));
    assert!(!rig.replica("web", 0).ready);
    lease(&mut rig, "n1");
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    assert_eq!(rig.replica("web", 0).incarnation.0, 0);
}

// endpoints 33
#[test]
fn an_agent_that_is_away_for_less_than_a_suspicion_changes_no_version() {
    let (mut rig, host, rest) = one_of_two();
    let before = (rig.registry.revision(), publishes(&rig), rig.commits);
    pass(&mut rig, 15, &[&rest]);
    let told = rig.facts(&host);
    rig.tell(Input::HostReport(told));
    assert_eq!(
        (rig.registry.revision(), publishes(&rig), rig.commits),
        before
    );
}

// P39
#[test]
fn one_fixed_number_lives_on_two_hosts_also_after_one_service_was_moved_by_a_loss() {
    let mut rig = cluster(&["n1", "n2", "n3"]);
    let pinned = |service: &str, hosts: &str| {
        format!(
            "placement.hosts = [{hosts}]\n{}",
            with_port(service, 1, "8443")
        )
    };
    rig.submit(&pinned("a", "\"n1\", \"n3\"")).unwrap();
    rig.submit(&pinned("b", "\"n2\"")).unwrap();
    for service in ["a", "b"] {
        rig.ready(service, 0);
    }
    let first = at(&rig, "a", 0);
    let second = other(&first, ["n1", "n3"]);
    pass(&mut rig, 95, &["n2", second]);
    assert_eq!(
        (at(&rig, "a", 0).as_str(), at(&rig, "b", 0).as_str()),
        (second, "n2")
    );
    for service in ["a", "b"] {
        rig.ready(service, 0);
        assert_eq!(rig.condition(service, 0), Some(EndpointState::Ready));
    }
}

#[test]
fn many_hosts_that_fall_silent_together_are_found_in_few_looks() {
    let names: Vec<String> = (0..200).map(|it| format!("h{it}")).collect();
    let mut rig = cluster(&[]);
    for (number, host) in names.iter().enumerate() {
        rig.tell(Input::HostReport(HostFacts {
            published: Some([10, 0, 1, u8::try_from(number).unwrap()].into()),
            boot_id: host.clone(),
            ..facts(host)
        }));
        rig.pass(Duration::from_millis(1));
    }
    rig.submit(&web("web", 200)).unwrap();
    let revision = rig.registry.revision();
    let mut looks = 0;
    while let Some(due) = rig.registry.next_deadline()
        && due.as_millis() < 100_000
    {
        rig.pass(due.since(rig.now.mono));
        looks += 1;
    }
    assert!(looks < 20, "{looks}");
    let lost = rig.registry.view();
    let lost = lost.hosts.values().filter(|it| it.state == "lost").count();
    assert_eq!(lost, 200);
    assert!(rig.registry.revision() - revision < 10);
    let waits = |it: &Phase| matches!(it, Phase::Waiting(_));
    let mut all = rig.registry.truth.replicas.iter();
    assert!(all.all(|(_, it)| waits(&it.phase)));
}

#[test]
fn spans_that_make_no_sense_together_are_refused_with_their_values() {
    let second = Duration::from_secs(1);
    for (suspect, grace) in [(Duration::ZERO, second), (second, second), (GRACE, second)] {
        let refused = Silence::new(suspect, grace, Suspects::default()).unwrap_err();
        assert_eq!(
            (refused.suspect_after, refused.host_grace),
            (suspect, grace)
        );
    }
}

#[test]
fn a_silent_host_is_given_up_while_the_store_still_writes_that_an_operator_declared_it_down() {
    let (mut rig, host, other) = one_of_two();
    let listed = |rig: &Rig| {
        let set = &rig.table[&name("web")];
        set.endpoints.iter().any(|it| it.state.is_listed())
    };
    rig.slow = true;
    let verb = HostVerb::Down { fenced: false };
    let host_name = host.parse().unwrap();
    let command = Command::Host {
        host: host_name,
        verb,
    };
    let admin = caller("root").with_rights(Rights::ADMIN);
    let ticket = rig.ask_later(&admin, command);
    rig.settle();
    pass(&mut rig, 60, &[&other]);
    assert!(listed(&rig), "neither on disk nor silent for the grace");
    pass(&mut rig, 40, &[&other]);
    assert!(!listed(&rig), "news waits for no store");
    assert!(!rig.answers.contains_key(&ticket));

    rig.slow = false;
    rig.land();
    rig.settle();
    assert!(rig.answers[&ticket].is_ok());
    assert_eq!(at(&rig, "web", 0), other);
}
