//! Jobs of another scheduler that bring replicas along.

use crate::endpoints::EndpointState;
use crate::port::Protocol;
use crate::rights::{Caller, Rights};
use crate::supervision::{Final, State};

use super::rig::{Rig, alice, caller, exit, name, profile, submission, web, with_port};
use super::{Answer, Attachment, Command, Desired, Input, Refusal, Want};

fn attachment(toml: &str, host: &str, index: Option<u32>, key: &str) -> Command {
    let profile = profile(toml);
    Command::Attach(Box::new(Attachment {
        service: name(profile.name.as_str()),
        profile,
        source: None,
        host: host.parse().unwrap(),
        index,
        key: key.to_owned(),
        job: Some(format!("slurm {key}")),
    }))
}

impl Rig {
    fn attach(
        &mut self,
        toml: &str,
        host: &str,
        index: Option<u32>,
        key: &str,
    ) -> Result<Desired, Refusal> {
        let answer = self.ask(attachment(toml, host, index, key))?;
        Ok(*granted(answer))
    }
}

fn granted(answer: Answer) -> Box<Desired> {
    answer
        .granted
        .expect("an attachment is answered with its grant")
}

fn first_port(desired: &Desired) -> u16 {
    desired.grant.ports[0].numbers.first().into()
}

fn conflict_on(port: u16) -> Final {
    Final::PortConflict {
        port: port.try_into().unwrap(),
        protocol: Protocol::Tcp,
        pid: Some(7),
        comm: Some("nc".into()),
    }
}

#[test]
fn a_job_gets_its_ports_on_its_own_host_and_is_listed_when_ready() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    // How many and where is the other scheduler's, whatever the profile says.
    let toml = format!("{}[placement]\nhosts = \"n1\"\n", web("web", 3));
    let desired = rig.attach(&toml, "n2", None, "k").unwrap();
    assert!(desired.attached && desired.want == Want::Run);
    assert_eq!((desired.index, desired.incarnation.0), (0, 0));
    let service = rig.registry.view().services[&name("web")].clone();
    assert!(service.attached);
    assert_eq!((service.desired, service.replicas.len()), (1, 1));
    let replica = rig.replica("web", 0);
    assert!(replica.attached);
    assert_eq!(replica.job.as_deref(), Some("slurm k"));
    assert_eq!(replica.host.unwrap().as_str(), "n2");
    assert_eq!(rig.orders("n2"), ["web.alice 0 0 run"]);
    rig.ready("web", 0);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    assert_eq!(rig.kinds("web"), ["attached", "ready"]);
}

#[test]
fn the_grant_is_answered_only_once_it_is_durable() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.slow = true;
    let ticket = rig.ask_later(&alice(), attachment(&web("web", 1), "n1", None, "k"));
    rig.settle();
    assert!(!rig.answers.contains_key(&ticket));
    rig.land();
    assert!(rig.answers.contains_key(&ticket));

    let mut rig = Rig::new();
    rig.join("n1");
    rig.store.failing_commits = 1;
    let refused = rig.attach(&web("web", 1), "n1", None, "k");
    assert!(matches!(refused, Err(Refusal::NotStored { .. })));
    assert!(!rig.registry.names.contains_key(&name("web")));
    let desired = rig.attach(&web("web", 1), "n1", None, "k").unwrap();
    assert_eq!(desired.index, 0);
}

#[test]
fn the_same_ask_again_is_answered_with_the_same_grant() {
    let mut rig = Rig::new();
    rig.join("n1");
    let first = rig.attach(&web("web", 1), "n1", None, "k").unwrap();
    let commits = rig.commits;
    let again = rig.attach(&web("web", 1), "n1", None, "k").unwrap();
    assert_eq!(again, first);
    assert_eq!(rig.commits, commits);
    // Also by another controller.
    let mut rig = rig.restart();
    let again = rig.attach(&web("web", 1), "n1", None, "k").unwrap();
    assert_eq!(again.grant, first.grant);
    // Who learned the key of another account's ask does not get that one's tokens by it.
    let before = rig.everything();
    let bob = Caller {
        uid: Some(1001),
        ..caller("bob")
    };
    let other = rig.ask_as(&bob, attachment(&web("web", 1), "n1", None, "k"));
    assert!(other.is_err(), "{other:?}");
    assert_eq!(rig.everything(), before);
}

#[test]
fn an_end_that_is_told_twice_frees_its_numbers_once() {
    let mut rig = Rig::new();
    rig.join("n1");
    let first = rig.attach(&web("web", 1), "n1", None, "a").unwrap();
    let mut end = rig.report("web", 0, |status| {
        status.state = State::Final(Final::Stopped);
    });
    end.status.seq += 1;
    // By the job itself, by its agent at its end, and in the full report of a restarted agent.
    rig.tell(Input::Status(end.clone()));
    let next = rig.attach(&web("web", 1), "n1", None, "b").unwrap();
    let held = rig.everything();
    end.status.seq += 1;
    rig.tell(Input::Status(end.clone()));
    assert_eq!(rig.everything(), held);
    let mut facts = rig.facts("n1");
    facts.replicas = vec![end];
    rig.tell(Input::HostReport(facts));
    assert_eq!((first.incarnation.0, next.incarnation.0), (0, 1));
    assert_eq!(rig.replica("web", 0).job_state.as_str(), "RUN");
    let third = rig.attach(&web("web", 1), "n1", None, "c").unwrap();
    assert_ne!(first_port(&third), first_port(&next));
}

#[test]
fn two_jobs_of_one_service_get_the_next_free_index_and_other_numbers() {
    let mut rig = Rig::new();
    rig.join("n1");
    let one = rig.attach(&web("web", 1), "n1", None, "a").unwrap();
    let two = rig.attach(&web("web", 1), "n1", None, "b").unwrap();
    assert_eq!((one.index, two.index), (0, 1));
    assert_ne!(first_port(&one), first_port(&two));
    assert_eq!(rig.registry.view().services[&name("web")].desired, 2);
    // The lowest that is free, as the next incarnation.
    rig.ends("web", 0, Final::Succeeded);
    assert_eq!(rig.registry.view().services[&name("web")].desired, 1);
    let again = rig.attach(&web("web", 1), "n1", None, "c").unwrap();
    assert_eq!((again.index, again.incarnation.0), (0, 1));
}

#[test]
fn an_index_that_lives_is_refused_with_its_host() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    rig.attach(&web("web", 1), "n1", Some(3), "a").unwrap();
    let before = rig.everything();
    let refused = rig.attach(&web("web", 1), "n2", Some(3), "b").unwrap_err();
    assert!(
        matches!(&refused, Refusal::Taken { index: 3, host, .. } if host.as_str() == "n1"),
        "{refused}"
    );
    assert_eq!(rig.everything(), before);
    let far = rig.attach(&web("web", 1), "n1", Some(u32::MAX), "c");
    assert!(matches!(far, Err(Refusal::Unfit { .. })));
}

#[test]
fn a_host_without_room_says_what_is_in_the_way_and_nothing_changes() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.join("n2");
    rig.attach(&with_port("db", 1, "5432"), "n1", None, "a")
        .unwrap();
    let before = rig.everything();
    let refused = rig.attach(&with_port("web", 1, "5432"), "n1", None, "b");
    let refused = refused.unwrap_err();
    let Refusal::NoRoom { host, reason, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(host.as_str(), "n1");
    assert!(
        reason.contains("5432/tcp on host n1 is held by db.alice"),
        "{reason}"
    );
    // Other hosts have room, and are not spoken of.
    assert!(!reason.contains("n2"), "{reason}");
    assert_eq!(rig.everything(), before);
    let unknown = rig.attach(&web("web", 1), "n9", None, "c").unwrap_err();
    assert!(
        unknown.to_string().contains("has not reported"),
        "{unknown}"
    );
}

#[test]
fn after_a_controllers_start_a_host_takes_no_job_before_its_full_report() {
    let mut rig = Rig::new();
    rig.join("n1");
    let mut rig = rig.restart();
    let refused = rig.attach(&web("web", 1), "n1", None, "a").unwrap_err();
    assert!(refused.to_string().contains("not reported"), "{refused}");
    // It will: who asks again is served.
    assert!(matches!(refused, Refusal::NoRoom { .. }), "{refused}");
    rig.join("n1");
    rig.attach(&web("web", 1), "n1", None, "a").unwrap();
}

#[test]
fn a_strangers_port_ends_the_incarnation_and_the_job_asks_for_the_next() {
    let mut rig = Rig::new();
    rig.join("n1");
    let first = rig.attach(&web("web", 1), "n1", None, "a").unwrap();
    rig.ends("web", 0, conflict_on(first_port(&first)));
    let replica = rig.replica("web", 0);
    assert_eq!(
        (replica.job_state.as_str(), replica.state.as_str()),
        ("EXIT", "port conflict")
    );
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 forget"]);
    let next = rig.attach(&web("web", 1), "n1", Some(0), "a2").unwrap();
    assert_eq!(next.incarnation.0, 1);
    assert_ne!(first_port(&next), first_port(&first));
}

#[test]
fn what_ends_is_never_begun_anew_from_here() {
    let mut rig = Rig::new();
    rig.join("n1");
    let requeues = format!(
        "{}[restart]\ngive_up = {{ max_restarts = 1, then = \"requeue\", rest = \"1m\" }}\n",
        web("web", 1)
    );
    rig.attach(&requeues, "n1", None, "a").unwrap();
    let reason = exit(1);
    rig.ends("web", 0, Final::GaveUp { reason, count: 1 });
    assert_eq!(rig.states("web"), ["gave up"]);
    // A host that was booted neither.
    rig.attach(&requeues, "n1", None, "b").unwrap();
    let mut facts = rig.facts("n1");
    facts.boot_id = "boot-2".into();
    facts.replicas.clear();
    rig.tell(Input::HostReport(facts));
    assert_eq!(rig.states("web"), ["host rebooted"]);
    let service = rig.registry.view().services[&name("web")].clone();
    assert_eq!((service.state.as_str(), service.desired), ("ended", 0));
}

#[test]
fn stop_restart_and_kill_reach_an_attached_replica_and_placement_does_not() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.attach(&web("web", 1), "n1", None, "a").unwrap();
    rig.attach(&web("web", 1), "n1", None, "b").unwrap();
    let service = name("web");
    for refused in [
        Command::Scale {
            service: service.clone(),
            replicas: 3,
        },
        Command::Start {
            service: service.clone(),
        },
        submission(&web("web", 1), true),
    ] {
        let text = format!("{refused:?}");
        let before = rig.everything();
        let refusal = rig.ask(refused).unwrap_err();
        assert!(refusal.to_string().contains("portreeve run"), "{text}");
        assert_eq!(rig.everything(), before, "{text}");
    }
    let restart = Command::Restart {
        service: service.clone(),
        index: Some(0),
    };
    rig.ask(restart).unwrap();
    rig.ready("web", 0);
    rig.ready("web", 1);
    let kill = Command::Kill {
        service: service.clone(),
        index: 1,
    };
    let told = rig.ask(kill).unwrap();
    // Nobody is sent to `portreeve start`, which is refused here.
    assert_eq!(told.notes, ["stopping replica 1; its job ends with it"]);
    rig.ends("web", 1, Final::Stopped);
    let stop = Command::Stop {
        service: service.clone(),
    };
    rig.ask(stop).unwrap();
    assert_eq!(rig.states("web"), ["stopping", "killed"]);
    rig.ends("web", 0, Final::Stopped);
    assert_eq!(rig.states("web"), ["stopped", "killed"]);
    // A new job is a new wish.
    rig.attach(&web("web", 1), "n1", None, "c").unwrap();
    assert_eq!(rig.registry.view().services[&service].state, "running");
    assert_eq!(rig.orders("n1").last().unwrap(), "web.alice 1 0 forget");
}

#[test]
fn a_name_is_either_placed_or_attached_and_never_both() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let before = rig.everything();
    let refused = rig.attach(&web("web", 1), "n1", None, "a").unwrap_err();
    assert!(refused.to_string().contains("--name"), "{refused}");
    assert_eq!(rig.everything(), before);
}

#[test]
fn tasks_may_differ_in_their_command_and_not_in_what_clients_meet() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.attach(&web("web", 1), "n1", None, "a").unwrap();
    let other_rank = web("web", 1).replace("[\"serve\"]", "[\"serve\", \"--rank\", \"1\"]");
    let second = rig.attach(&other_rank, "n1", None, "b").unwrap();
    let shown = serde_json::to_string(&second.profile).unwrap();
    assert!(shown.contains("rank"), "{shown}");
    let other_port = with_port("web", 1, "{ any = 2 }");
    let refused = rig.attach(&other_port, "n1", None, "c").unwrap_err();
    assert!(refused.to_string().contains("(ports)"), "{refused}");
    // Once none of them lives, the name is free for another shape.
    rig.ends("web", 0, Final::Succeeded);
    rig.ends("web", 1, Final::Succeeded);
    rig.attach(&other_port, "n1", None, "c").unwrap();
}

#[test]
fn only_the_account_of_a_service_brings_replicas_along() {
    let mut rig = Rig::new();
    rig.join("n1");
    let seen = format!("visibility = \"cluster\"\n{}", web("web", 1));
    rig.attach(&seen, "n1", None, "a").unwrap();
    let before = rig.everything();
    let bob = rig.ask_as(&caller("bob"), attachment(&seen, "n1", None, "b"));
    assert!(matches!(bob, Err(Refusal::NotAllowed { .. })), "{bob:?}");
    let mut root = caller("root");
    (root.rights, root.uid) = (Rights::ADMIN, Some(0));
    let refused = rig.ask_as(&root, attachment(&seen, "n1", None, "c"));
    assert!(refused.unwrap_err().to_string().contains("uid 1000"));
    let elsewhere = rig.ask_as(&caller("bob"), attachment(&web("new", 1), "n1", None, "d"));
    assert!(matches!(elsewhere, Err(Refusal::NotAllowed { .. })));
    assert_eq!(rig.everything(), before);
}

#[test]
fn the_end_that_its_host_tells_is_the_last_word_whatever_its_number() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.attach(&web("web", 1), "n1", None, "a").unwrap();
    rig.status("web", 0, |status| {
        status.seq = 900;
        status.ready = true;
        status.state = State::Up;
    });
    let mut late = rig.report("web", 0, |status| status.state = State::Up);
    late.status.seq = 901;
    // The job was killed whole, and its host heard less of it than we did.
    let mut end = rig.report("web", 0, |status| {
        status.state = State::Final(Final::Failed(exit(9)));
    });
    end.status.seq = 3;
    rig.take(Input::Status(end));
    rig.take(Input::Status(late));
    rig.settle();
    assert_eq!(rig.states("web"), ["failed"]);
}
