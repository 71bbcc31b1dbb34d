//! What was given up with its host: when its numbers are freed, what is taken back, and what is stopped.

use super::loss_test::{at, attach, back, cluster, held, one_of_two, pass};
use super::rig::{Rig, alice, name, web, with_port};
use super::{Command, HostFacts, Input, ReplicaReport};
use crate::supervision::{Final, State};

#[test]
fn a_start_frees_no_number_of_what_a_host_ran_before_the_host_has_told_everything() {
    let (mut rig, host, rest) = one_of_two();
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[&rest]);
    back(&mut rig, &host, std::slice::from_ref(&alive));
    pass(&mut rig, 5, &[&host, &rest]);
    // The host is not lost any more, and what was replaced there still ends.
    let mut rig = rig.restart();
    assert_eq!(
        held(&mut rig, &host),
        1,
        "nobody knows yet whether it ended"
    );
    back(&mut rig, &host, std::slice::from_ref(&alive));
    assert_eq!(held(&mut rig, &host), 1);
    back(&mut rig, &host, &[]);
    assert_eq!(held(&mut rig, &host), 0);
}

#[test]
fn what_is_stopped_in_the_moment_in_which_its_host_is_back_is_stopped_there() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[]);
    let told = HostFacts {
        replicas: vec![alive],
        ..rig.facts("n1")
    };
    // Both in one round: the report finds it waiting, the decision finds it ended.
    rig.take(Input::HostReport(told));
    let service = name("web");
    rig.ask_later(&alice(), Command::Stop { service });
    rig.settle();
    assert_eq!(rig.states("web"), ["stopped"]);
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 stop"]);
    assert_eq!(held(&mut rig, "n1"), 1);
}

/// The story: an agent gave its full report up, and the kernel sent it later. It was taken for news, and so the numbers of
/// what was stranded there, and had been told as alive meanwhile, were freed while it lived.
#[test]
fn a_full_report_that_arrives_after_a_newer_one_frees_nothing() {
    let (mut rig, host, rest) = one_of_two();
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[&rest]);
    let told = |rig: &Rig, seq, boot: &str, runs: &[ReplicaReport]| {
        Input::HostReport(HostFacts {
            replicas: runs.to_vec(),
            boot_id: boot.into(),
            seq,
            ..rig.facts(&host)
        })
    };
    let runs = std::slice::from_ref(&alive);
    let newest = told(&rig, Some(8_000), "boot-1", runs);
    rig.tell(newest);
    assert_eq!(held(&mut rig, &host), 1);
    // One of before, and the newest once more as it was sent.
    for seq in [7_999, 8_000] {
        let mut old = told(&rig, Some(seq), "boot-1", &[]);
        if let Input::HostReport(facts) = &mut old {
            facts.published = Some([10, 0, 0, 99].into());
            facts.shutting_down = true;
        }
        rig.tell(old);
        assert_eq!(held(&mut rig, &host), 1, "{seq}");
        let view = rig.registry.view();
        let shown = &view.hosts[&host.parse().unwrap()];
        assert_ne!(shown.address, Some([10, 0, 0, 99].into()));
        assert!(!rig.facts(&host).shutting_down);
    }
    // Of another boot numbers begin anew, and an older agent tells none: both are news.
    let booted = told(&rig, Some(3), "boot-2", &[]);
    rig.tell(booted);
    assert_eq!(held(&mut rig, &host), 0);
    for (seq, labels) in [(None, "a"), (Some(1), "b"), (Some(2), "c")] {
        let mut facts = rig.facts(&host);
        facts.seq = seq;
        facts.labels.insert("rack".into(), labels.into());
        rig.tell(Input::HostReport(facts));
        assert_eq!(rig.facts(&host).labels["rack"], labels);
    }
}

/// The story: a host was back and told everything twice, as when the first answer was lost. What it runs was to be taken
/// back, and the store refused that: the second report was not known as one of something stranded, so its numbers were
/// freed and given to the next incarnation while it lived.
#[test]
fn what_was_not_taken_back_since_the_store_refused_it_still_holds_its_numbers() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&with_port("web", 1, "8888")).unwrap();
    rig.ready("web", 0);
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[]);
    assert_eq!(rig.replica("web", 0).job_state, "PEND");
    rig.slow = true;
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    rig.store.failing_commits = 1;
    rig.slow = false;
    rig.land();
    rig.settle();
    pass(&mut rig, 5, &["n1"]);
    let web = rig.replica("web", 0);
    assert_eq!((web.incarnation.0, web.job_state.as_str()), (0, "RUN"));
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 run"]);
    assert_eq!(held(&mut rig, "n1"), 1);
}

#[test]
fn of_several_incarnations_that_a_host_comes_back_with_only_the_newest_goes_on() {
    let mut rig = cluster(&["n1"]);
    // Without ports, so that their grants are alike.
    rig.submit("name = \"web\"\ncommand = [\"serve\"]\n")
        .unwrap();
    rig.ready("web", 0);
    let first = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[]);
    let service = name("web");
    rig.ask(Command::Stop {
        service: service.clone(),
    })
    .unwrap();
    rig.ask(Command::Start { service }).unwrap();
    back(&mut rig, "n1", std::slice::from_ref(&first));
    assert_eq!(
        rig.orders("n1"),
        ["web.alice 0 0 stop", "web.alice 0 2 run"]
    );
    rig.ready("web", 0);
    let second = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[]);
    assert_eq!(rig.replica("web", 0).incarnation.0, 3);
    back(&mut rig, "n1", &[first, second]);
    assert_eq!(
        rig.orders("n1"),
        ["web.alice 0 0 stop", "web.alice 0 2 run"]
    );
    assert_eq!(rig.replica("web", 0).incarnation.0, 2);
}

#[test]
fn a_job_of_another_scheduler_that_was_stopped_while_its_host_was_lost_is_ended_when_that_is_back()
{
    let mut rig = cluster(&["n1"]);
    attach(&mut rig, "n1");
    rig.ready("job", 0);
    let alive = rig.report("job", 0, |_| ());
    pass(&mut rig, 95, &[]);
    let service = name("job");
    rig.ask(Command::Stop { service }).unwrap();
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    assert_eq!(rig.replica("job", 0).job_state, "EXIT");
    assert_eq!(rig.orders("n1"), ["job.alice 0 0 stop"]);
}

// Taken back, it would count as restarted although its host never heard of the restart.
#[test]
fn what_was_to_be_restarted_when_its_host_was_lost_begins_anew_and_is_not_taken_back() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    let alive = rig.report("web", 0, |_| ());
    let service = name("web");
    let index = None;
    rig.ask(Command::Restart { service, index }).unwrap();
    pass(&mut rig, 95, &[]);
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    assert_eq!(
        rig.orders("n1"),
        ["web.alice 0 0 stop", "web.alice 0 1 run"]
    );
    rig.ready("web", 0);
    assert!(rig.kinds("web").contains(&"rolled".to_owned()));
}

#[test]
fn an_incarnation_that_people_were_told_of_names_no_other_placement_after_a_taking_back() {
    let mut rig = cluster(&["n1", "n2"]);
    rig.submit(&format!(
        "placement.hosts = [\"n1\", \"n3\"]\n{}",
        web("web", 1)
    ))
    .unwrap();
    rig.ready("web", 0);
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &["n2"]);
    assert_eq!(rig.replica("web", 0).incarnation.0, 1);
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    assert_eq!(rig.replica("web", 0).incarnation.0, 0);
    let mut rig = rig.restart();
    rig.join("n3");
    pass(&mut rig, 95, &["n3"]);
    let replica = rig.replica("web", 0);
    assert_eq!(
        (at(&rig, "web", 0).as_str(), replica.incarnation.0),
        ("n3", 2)
    );
}

#[test]
fn numbers_whose_freeing_the_store_refused_are_freed_once_it_writes_again() {
    let (mut rig, host, rest) = one_of_two();
    pass(&mut rig, 95, &[&rest]);
    assert_eq!(at(&rig, "web", 0), rest);
    rig.store.failing_commits = 1;
    back(&mut rig, &host, &[]);
    assert_eq!(held(&mut rig, &host), 1);
    pass(&mut rig, 5, &[&host, &rest]);
    assert_eq!(held(&mut rig, &host), 0);
}

/// The story: a service was restarted while the host of one of its replicas was lost. That came back and was told to stop
/// it, since the restart has it begin anew; the restart was over before it ended, and it was taken back while it stopped.
/// So it ended as one that was asked to stop, and no other began.
#[test]
fn what_its_host_was_told_to_stop_is_not_taken_back_though_what_forbade_it_is_over() {
    let mut rig = cluster(&["n1", "n2"]);
    // Both places are taken, so that the lost one waits.
    rig.submit(&with_port("web", 2, "8888")).unwrap();
    for index in [0, 1] {
        rig.ready("web", index);
    }
    let lost = at(&rig, "web", 0);
    let rest = at(&rig, "web", 1);
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[&rest]);
    let service = name("web");
    let index = None;
    rig.ask(Command::Restart { service, index }).unwrap();
    back(&mut rig, &lost, std::slice::from_ref(&alive));
    assert_eq!(rig.orders(&lost), ["web.alice 0 0 stop"]);
    rig.ready("web", 1);
    assert!(rig.kinds("web").contains(&"rolled".to_owned()));
    let told = |state: State, seq| {
        let mut told = alive.clone();
        told.status.seq += seq;
        told.status.ready = false;
        told.status.state = state;
        Input::Status(told)
    };
    rig.tell(told(State::Stopping, 1));
    assert_eq!(rig.replica("web", 0).incarnation.0, 1);
    assert_eq!(rig.orders(&lost), ["web.alice 0 0 stop"]);
    rig.tell(told(State::Final(Final::Stopped), 2));
    pass(&mut rig, 5, &[&lost, &rest]);
    assert_eq!(
        rig.orders(&lost),
        ["web.alice 0 0 forget", "web.alice 0 1 run"]
    );
}

#[test]
fn what_stops_when_its_host_is_back_is_taken_back_only_if_it_begins_anew() {
    for goes_on in [true, false] {
        let mut rig = cluster(&["n1"]);
        rig.submit(&with_port("web", 1, "8888")).unwrap();
        rig.ready("web", 0);
        let mut told = rig.report("web", 0, |_| ());
        pass(&mut rig, 95, &[]);
        (told.status.state, told.status.ready) = (State::Stopping, false);
        told.status.seq += 1;
        back(&mut rig, "n1", std::slice::from_ref(&told));
        assert_eq!(rig.orders("n1"), [""; 0], "it is left alone");
        assert_eq!(held(&mut rig, "n1"), 1);
        told.status.seq += 1;
        told.status.state = if goes_on {
            State::Up
        } else {
            State::Final(Final::Stopped)
        };
        rig.tell(Input::Status(told));
        pass(&mut rig, 5, &["n1"]);
        let web = rig.replica("web", 0).incarnation.0;
        assert_eq!(web, u32::from(!goes_on));
        let order = format!("web.alice 0 {web} run");
        assert!(rig.orders("n1").contains(&order), "{:?}", rig.orders("n1"));
    }
}

/// The story: a service was deleted while its host was lost, and submitted anew. Its host came back and was told to stop
/// what runs there as one of the new service. Its worker spoke of the old one and was not heard, so that its end was
/// never known, and nothing began in its place.
#[test]
fn what_is_left_of_a_deleted_service_is_stopped_as_one_of_that_though_another_has_its_name() {
    let mut rig = cluster(&["n1"]);
    rig.submit(&with_port("web", 1, "8888")).unwrap();
    rig.ready("web", 0);
    let services_of = |rig: &Rig, incarnation: u32| {
        let (_, _, wanted) = rig.registry.desired(&"n1".parse().unwrap()).unwrap();
        let wanted = wanted.iter().filter(|it| it.incarnation.0 == incarnation);
        wanted.map(|it| it.service_id).collect::<Vec<_>>()
    };
    let first = services_of(&rig, 0);
    let alive = rig.report("web", 0, |_| ());
    pass(&mut rig, 95, &[]);
    let service = name("web");
    rig.ask(Command::Stop {
        service: service.clone(),
    })
    .unwrap();
    rig.ask(Command::Delete {
        service: service.clone(),
    })
    .unwrap();
    rig.submit(&web("web", 1)).unwrap();
    // Whatever it begins with, what it has now is a later one.
    rig.ask(Command::Stop {
        service: service.clone(),
    })
    .unwrap();
    rig.ask(Command::Start { service }).unwrap();
    assert_ne!(rig.replica("web", 0).incarnation.0, 0);
    back(&mut rig, "n1", std::slice::from_ref(&alive));
    assert_eq!(services_of(&rig, 0), first, "{:?}", rig.orders("n1"));
    assert!(rig.orders("n1").contains(&"web.alice 0 0 stop".to_owned()));
}
