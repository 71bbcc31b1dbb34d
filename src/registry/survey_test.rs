//! Why a replica has no place, for people and machines, and who may read what of it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::port::PortRanges;
use crate::rights::{Caller, Rights};
use crate::supervision::Final;

use super::rig::{Rig, alice, caller, facts, foreign, name, profile, submission, web, with_port};
use super::{Command, Explain, FitView, HostFacts, Input, ReasonView, Refusal};

fn stop(rig: &mut Rig, service: &str) {
    let service = name(service);
    rig.ask(Command::Stop { service }).unwrap();
}

fn reasons(rig: &Rig, service: &str, index: u32) -> Vec<ReasonView> {
    rig.replica(service, index).reasons
}

/// `HELD 1 http 8080/tcp`.
fn short(reason: &ReasonView) -> String {
    let word = |it: Option<String>| it.unwrap_or_else(|| "-".to_owned());
    format!(
        "{} {} {} {}/{}",
        reason.code,
        word(reason.code_number.map(|it| it.to_string())),
        word(reason.port.as_ref().map(ToString::to_string)),
        word(reason.number.map(|it| it.to_string())),
        word(reason.protocol.map(|it| it.to_string())),
    )
}

fn only(rig: &Rig, service: &str) -> (String, ReasonView) {
    let reasons = reasons(rig, service, 0);
    let [reason] = &reasons[..] else {
        panic!("{reasons:?}")
    };
    (short(reason), reason.clone())
}

fn explain(rig: &mut Rig, by: &Caller, what: &Explain) -> Result<FitView, Refusal> {
    rig.registry.explain(rig.now, by, what)
}

fn of_profile(toml: &str) -> Explain {
    let profile = profile(toml);
    Explain::Profile {
        service: name(profile.name.as_str()),
        profile: Box::new(profile),
    }
}

fn of_service(service: &str, replica: Option<u32>) -> Explain {
    Explain::Service {
        service: name(service),
        replica,
    }
}

fn ranges(text: &str) -> PortRanges {
    PortRanges::try_from(text.to_owned()).unwrap()
}

#[test]
fn held_releasing_and_cooling_name_the_holder_and_what_is_left() {
    // P36
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("nb", 1, "8888")).unwrap();
    rig.submit(&with_port("next", 1, "8888")).unwrap();
    let (text, held) = only(&rig, "next");
    assert_eq!(text, "HELD 1 http 8888/tcp");
    let holder = held.holder.unwrap();
    assert_eq!((holder.service, holder.replica), (name("nb"), 0));
    stop(&mut rig, "nb");
    let (text, releasing) = only(&rig, "next");
    assert_eq!(text, "RELEASING 2 http 8888/tcp");
    assert_eq!(releasing.holder.unwrap().service, name("nb"));
    rig.ends("nb", 0, Final::Stopped);
    let (text, cooling) = only(&rig, "next");
    assert_eq!(text, "COOLING 3 http 8888/tcp");
    assert_eq!((cooling.left_s, cooling.holder), (Some(60), None));
    let view = rig.registry.view();
    assert_eq!(
        view.services[&name("next")].waits_for.as_deref(),
        Some("1 replica waits: 8888/tcp COOLING 1m on n1")
    );
}

#[test]
fn reserved_foreign_and_not_offered_numbers_are_told_apart() {
    // P36
    let mut rig = Rig::new();
    rig.tell(Input::HostReport(HostFacts {
        reserved: ranges("9000-9009"),
        foreign: vec![foreign(5236, 811, "nc")],
        ..facts("n1")
    }));
    rig.submit(&with_port("a", 1, "9003")).unwrap();
    let (text, reserved) = only(&rig, "a");
    assert_eq!(text, "RESERVED 4 http 9003/tcp");
    assert_eq!(
        reserved.sentence,
        "port 9003/tcp on host n1 is reserved by the site"
    );
    rig.submit(&with_port("b", 1, "5236")).unwrap();
    let (text, stranger) = only(&rig, "b");
    assert_eq!(text, "FOREIGN 5 http 5236/tcp");
    assert_eq!(
        (stranger.pid, stranger.comm.as_deref()),
        (Some(811), Some("nc"))
    );
    let root = Caller {
        uid: Some(0),
        ..alice()
    };
    let low = submission(&with_port("c", 1, "80"), false);
    rig.ask_as(&root, low).unwrap();
    let (text, outside) = only(&rig, "c");
    assert_eq!(text, "NOT IN POOL 6 http 80/tcp");
    assert_eq!(outside.range, Some(ranges("1024-65535")));
    assert_eq!(
        outside.sentence,
        "port 80/tcp on host n1 is outside the host's port ranges 1024-65535"
    );
    let narrow = "{ any = 1, range = \"100-200\" }";
    rig.submit(&with_port("d", 1, narrow)).unwrap();
    let (text, outside) = only(&rig, "d");
    assert_eq!(text, "NOT IN POOL 6 http -/tcp");
    assert_eq!(
        outside.sentence,
        "port http (tcp) on host n1 may only be in 100-200, outside the host's dynamic range 20000-20099"
    );
}

#[test]
fn too_few_and_no_block_say_how_many_and_where() {
    // P04, P11, P36
    let mut rig = Rig::new();
    rig.join("n1");
    let narrow = "{ any = 1, range = \"20040-20041\" }";
    rig.submit(&with_port("two", 3, narrow)).unwrap();
    let few = &reasons(&rig, "two", 2)[0];
    assert_eq!(short(few), "TOO FEW FREE 7 http -/tcp");
    assert_eq!((few.have, few.want), (Some(0), Some(1)));
    assert_eq!(few.range, Some(ranges("20040-20041")));
    rig.submit(&with_port("block", 1, "{ any = 90 }")).unwrap();
    let (text, block) = only(&rig, "block");
    assert_eq!(text, "NO BLOCK 8 http -/tcp");
    assert_eq!(
        (block.want, block.range),
        (Some(90), Some(ranges("20000-20099")))
    );
}

#[test]
fn a_number_that_is_left_to_another_waiting_replica_is_awaited() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("first", 1, "20001")).unwrap();
    rig.submit(&with_port("waits", 1, "20001")).unwrap();
    stop(&mut rig, "first");
    rig.ends("first", 0, Final::Stopped);
    let only_one = "{ any = 1, range = \"20001\" }";
    rig.submit(&with_port("any", 1, only_one)).unwrap();
    let (text, awaited) = only(&rig, "any");
    assert_eq!(text, "AWAITED 9 http 20001/tcp");
    assert_eq!(
        awaited.sentence,
        "port 20001/tcp on host n1 is left to a replica that waits for it"
    );
}

/// Found by seed 2002294: who waited for what was left to another went on waiting when that was stopped.
#[test]
fn what_is_left_to_a_replica_that_waits_is_given_to_another_once_that_waits_no_more() {
    for ends in [false, true] {
        let mut rig = Rig::new();
        rig.join("n1");
        rig.submit(&with_port("first", 1, "20002")).unwrap();
        let waits = with_port("waits", 1, "20001") + "more = 20002\n";
        rig.submit(&waits).unwrap();
        let only_one = "{ any = 1, range = \"20001\" }";
        rig.submit(&with_port("any", 1, only_one)).unwrap();
        assert_eq!(only(&rig, "any").0, "AWAITED 9 http 20001/tcp");
        if ends {
            stop(&mut rig, "waits");
        } else {
            rig.ask(Command::Scale {
                service: name("waits"),
                replicas: 0,
            })
            .unwrap();
        }
        assert_eq!(rig.states("any"), ["starting"]);
    }
}

/// Found by seed 8001319: two hosts joined at once. Numbers of both were left to one that names them, which took those of
/// the first; who could have those of the second went on waiting.
#[test]
fn what_was_left_to_a_replica_that_finds_a_place_elsewhere_is_given_to_another() {
    let mut rig = Rig::new();
    let only_one = "{ any = 1, range = \"20001\" }";
    rig.submit(&with_port("any", 1, only_one)).unwrap();
    rig.submit(&with_port("names", 1, "20001")).unwrap();
    rig.take(Input::HostReport(facts("n1")));
    rig.take(Input::HostReport(facts("n2")));
    rig.settle();
    assert_eq!(rig.states("names"), ["starting"]);
    assert_eq!(rig.states("any"), ["starting"]);
}

#[test]
fn causes_of_the_host_come_before_its_ports() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.pass(Duration::from_secs(2));
    let mut rig = rig.restart();
    rig.tell(Input::HostReport(HostFacts {
        published: None,
        ..facts("n2")
    }));
    rig.submit(&web("web", 1)).unwrap();
    let all: Vec<String> = reasons(&rig, "web", 0).iter().map(short).collect();
    assert_eq!(all, ["HOST NOT REPORTED 15 - -/-", "NO ADDRESS 14 - -/-"]);
    let each = web("node", 1).replace("replicas = 1", "replicas = \"per-host\"");
    rig.join("n3");
    rig.submit(&each).unwrap();
    let fit = explain(&mut rig, &alice(), &of_service("node", None)).unwrap();
    let on_n3 = fit.hosts.iter().find(|it| it.host.as_str() == "n3");
    let reason = &on_n3.unwrap().reasons[0];
    assert_eq!(short(reason), "ONE PER HOST - - -/-");
}

#[test]
fn every_blocked_port_of_a_host_is_named_and_alike_ones_in_one_sentence() {
    // P36: only the first was.
    let mut rig = Rig::new();
    rig.tell(Input::HostReport(HostFacts {
        foreign: vec![foreign(5236, 811, "nc")],
        ..facts("n1")
    }));
    let three = |name: &str| {
        format!(
            "{}second = 65480\nthird = {{ fixed = 65481, protocol = \"tcp+udp\" }}\n",
            with_port(name, 1, "8888")
        )
    };
    rig.submit(&three("nb")).unwrap();
    rig.submit(&format!("{}fourth = 5236\n", three("next")))
        .unwrap();
    let all: Vec<String> = reasons(&rig, "next", 0).iter().map(short).collect();
    assert_eq!(
        all,
        [
            "HELD 1 http 8888/tcp",
            "HELD 1 second 65480/tcp",
            "HELD 1 third 65481/tcp+udp",
            "FOREIGN 5 fourth 5236/tcp"
        ]
    );
    assert_eq!(
        rig.replica("next", 0).reason.unwrap(),
        "ports 8888/tcp, 65480/tcp and 65481/tcp+udp on host n1 are held by nb.alice replica 0; \
         port 5236/tcp on host n1 is in use by a process outside portreeve (pid 811, nc)"
    );
    assert_eq!(
        rig.registry.view().services[&name("next")]
            .waits_for
            .as_deref(),
        Some("1 replica waits: 8888/tcp HELD by nb.alice/0 on n1 and 3 more")
    );
}

#[test]
fn hosts_beyond_the_third_are_summed_by_their_first_cause() {
    let mut rig = Rig::new();
    for host in ["n1", "n2", "n3", "n4"] {
        rig.join(host);
    }
    rig.tell(Input::HostReport(HostFacts {
        foreign: vec![foreign(8080, 811, "nc")],
        ..facts("n5")
    }));
    rig.submit(&with_port("web", 6, "8080")).unwrap();
    let waiting = rig.replica("web", 4);
    let reason = waiting.reason.unwrap();
    assert!(
        reason.starts_with("fixed port 8080/tcp: at most one replica per host; 5 hosts eligible; "),
        "{reason}"
    );
    assert!(
        reason.ends_with("; 2 more hosts do not fit: 1 HELD, 1 FOREIGN"),
        "{reason}"
    );
    assert_eq!(waiting.reasons.len(), 3);
    let sums = waiting.reason_sums.unwrap();
    assert_eq!((sums.hosts, sums.asked, sums.fitting), (5, 5, 0));
    let causes: Vec<(&str, u32)> = sums
        .causes
        .iter()
        .map(|it| (it.code.as_str(), it.hosts))
        .collect();
    assert_eq!(causes, [("HELD", 4), ("FOREIGN", 1)]);
    assert_eq!(
        rig.registry.view().services[&name("web")]
            .waits_for
            .as_deref(),
        Some(
            "2 replicas wait: 8080/tcp HELD by web.alice/0 on n1; 0 of 5 hosts fit; 4 HELD, 1 FOREIGN"
        )
    );
    // P37: scaling back clears it.
    rig.ask(Command::Scale {
        service: name("web"),
        replicas: 4,
    })
    .unwrap();
    assert_eq!(rig.registry.view().services[&name("web")].waits_for, None);
}

#[test]
fn a_reason_is_no_news_while_only_time_passes() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("nb", 1, "8888")).unwrap();
    rig.submit(&with_port("next", 1, "8888")).unwrap();
    stop(&mut rig, "nb");
    rig.ends("nb", 0, Final::Stopped);
    let revision = rig.registry.revision();
    rig.pass(Duration::from_millis(18_500));
    // Everybody who waits is looked at again, and finds the same.
    rig.registry.waits.wake();
    rig.settle();
    assert_eq!(rig.registry.revision(), revision);
    let view = rig.registry.view();
    let told = view.services[&name("next")].told_to(&alice(), rig.now.mono);
    assert_eq!(
        told.replicas[0].reason.as_deref(),
        Some("port 8888/tcp on host n1 was just freed and rests 42s")
    );
    assert_eq!(told.replicas[0].reasons[0].left_s, Some(42));
}

#[test]
fn a_holder_is_named_to_readers_by_their_own_rights() {
    let mut rig = Rig::new();
    rig.join("n1");
    let Command::Submit(mut bobs) = submission(&with_port("nb", 1, "8888"), false) else {
        unreachable!()
    };
    bobs.service = "nb.bob".parse().unwrap();
    rig.ask_as(&caller("bob"), Command::Submit(bobs)).unwrap();
    rig.submit(&with_port("next", 1, "8888")).unwrap();
    let view = rig.registry.view();
    let next = &view.services[&name("next")];
    let admin = caller("root").with_rights(Rights::ADMIN);
    for (reader, holder) in [
        (alice(), "a service of another user"),
        (admin, "nb.bob replica 0"),
    ] {
        let told = next.told_to(&reader, rig.now.mono);
        assert_eq!(
            told.replicas[0].reason.as_deref(),
            Some(format!("port 8888/tcp on host n1 is held by {holder}").as_str())
        );
        let named = told.replicas[0].reasons[0].holder.is_some();
        assert_eq!(named, holder.contains("bob"));
        let whole = format!("{told:?}");
        let fit = explain(&mut rig, &reader, &of_profile(&with_port("x", 1, "8888"))).unwrap();
        let json = serde_json::to_string(&fit).unwrap();
        assert_eq!(json.contains("nb.bob"), named, "{json}");
        let json = serde_json::to_string(&told).unwrap();
        assert_eq!(json.contains("nb.bob"), named, "{json} {whole}");
    }
    assert_eq!(rig.ports("n1", &alice()).ports[0].service, None);
    assert!(rig.ports("n1", &caller("bob")).ports[0].service.is_some());
}

#[test]
fn explain_finds_what_pends_for_the_same_reasons_and_changes_nothing() {
    let mut rig = Rig::new();
    for host in ["n1", "n2"] {
        rig.join(host);
    }
    rig.submit(&with_port("web", 3, "8080")).unwrap();
    let (before, revision) = (rig.everything(), rig.registry.revision());
    let fit = explain(&mut rig, &alice(), &of_service("web", None)).unwrap();
    assert_eq!(fit.replica, Some(2));
    assert_eq!(fit.sentence, "0 of 2 hosts fit; 2 HELD");
    let explained: Vec<ReasonView> = fit.hosts.into_iter().flat_map(|it| it.reasons).collect();
    assert_eq!(explained, reasons(&rig, "web", 2));
    rig.join("n3");
    let any = explain(&mut rig, &alice(), &of_profile(&web("new", 1))).unwrap();
    assert_eq!(any.sentence, "3 of 3 hosts fit");
    assert!(any.hosts.iter().all(|it| it.fits && it.reasons.is_empty()));
    let pinned = format!(
        "{}[placement]\nhosts = \"n[2-3]\"\n",
        with_port("p", 1, "8080")
    );
    let pinned = explain(&mut rig, &alice(), &of_profile(&pinned)).unwrap();
    assert_eq!(
        pinned.sentence,
        "0 of 2 hosts that the placement allows fit (3 known); 2 HELD"
    );
    let nowhere = format!("{}[placement]\nhosts = \"x1\"\n", web("p", 1));
    let nowhere = explain(&mut rig, &alice(), &of_profile(&nowhere)).unwrap();
    assert_eq!(
        nowhere.sentence,
        "no host matches the profile's placement; 3 hosts known"
    );
    rig.settle();
    assert_ne!(rig.everything(), before, "n3 joined and took the third");
    let (before, revision2) = (rig.everything(), rig.registry.revision());
    assert!(revision2 > revision);
    explain(&mut rig, &alice(), &of_service("web", Some(1))).unwrap();
    rig.settle();
    assert_eq!(
        (rig.everything(), rig.registry.revision()),
        (before, revision2)
    );
}

#[test]
fn explain_counts_a_services_own_resting_numbers_as_its_own() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("nb", 1, "8888")).unwrap();
    stop(&mut rig, "nb");
    rig.ends("nb", 0, Final::Stopped);
    let own = explain(&mut rig, &alice(), &of_profile(&with_port("nb", 1, "8888"))).unwrap();
    assert_eq!(own.sums.fitting, 1);
    assert_eq!(
        own.notes,
        ["it is known already; this is for one more replica"]
    );
    let other = explain(&mut rig, &alice(), &of_profile(&with_port("x", 1, "8888"))).unwrap();
    assert_eq!(other.sentence, "0 of 1 host fits; 1 COOLING");
    rig.pass(Duration::from_secs(60));
    let other = explain(&mut rig, &alice(), &of_profile(&with_port("x", 1, "8888"))).unwrap();
    assert_eq!(other.sentence, "1 of 1 host fits");
}

#[test]
fn explain_refuses_what_submit_refuses_and_what_is_not_there() {
    let mut rig = Rig::new();
    let none = explain(&mut rig, &alice(), &of_profile(&web("web", 1))).unwrap();
    assert_eq!(
        none.sentence,
        "no host has reported yet; a host does once its agent runs"
    );
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let unknown = explain(&mut rig, &alice(), &of_service("nothing", None)).unwrap_err();
    assert!(matches!(unknown, Refusal::NoSuchService { .. }));
    let unknown = explain(&mut rig, &alice(), &of_service("web", Some(1))).unwrap_err();
    assert!(matches!(unknown, Refusal::NoSuchReplica { index: 1, .. }));
    let network = of_profile(&with_port("x", 1, "{ any = 1, network = \"data\" }"));
    let unfit = explain(&mut rig, &alice(), &network).unwrap_err();
    assert!(matches!(unfit, Refusal::Unfit { .. }));
}

#[test]
fn a_block_that_no_host_can_ever_give_is_refused_at_submit() {
    let mut rig = Rig::new();
    let long = |size: u32| with_port("web", 1, &format!("{{ any = {size} }}"));
    // Nobody knows what hosts will offer.
    assert!(rig.submit(&long(101)).is_ok());
    let mut rig = Rig::new();
    rig.join("n1");
    let before = rig.everything();
    let refused = rig.submit(&long(101)).unwrap_err().to_string();
    assert!(
        refused.contains("a block of 101, and no host offers more than 100 consecutive numbers"),
        "{refused}"
    );
    assert_eq!(rig.everything(), before);
    assert!(rig.submit(&long(100)).is_ok());
}

#[test]
fn a_number_below_1024_needs_privilege_unless_a_host_offers_it() {
    // P37
    let mut rig = Rig::new();
    rig.join("n1");
    let before = rig.everything();
    let refused = rig.submit(&with_port("web", 1, "80")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "web.alice: port 80/tcp needs privilege: alice may bind 1024 to 65535, and no host offers a lower number"
    );
    assert_eq!(rig.everything(), before);
    rig.tell(Input::HostReport(HostFacts {
        fixed: ranges("80,1024-65535"),
        ..facts("n2")
    }));
    rig.submit(&with_port("web", 1, "80")).unwrap();
    assert_eq!(rig.replica("web", 0).host.unwrap().as_str(), "n2");
}

#[test]
fn a_hosts_ports_come_with_its_ranges_counts_and_reserved_numbers() {
    let mut rig = Rig::new();
    rig.tell(Input::HostReport(HostFacts {
        reserved: ranges("20010-20019"),
        foreign: vec![foreign(5236, 811, "nc")],
        ..facts("n1")
    }));
    rig.submit(&format!(
        "{}block = {{ any = 4 }}\ndns = {{ fixed = 5300, protocol = \"tcp+udp\" }}\n",
        web("web", 1)
    ))
    .unwrap();
    rig.submit(&web("gone", 1)).unwrap();
    stop(&mut rig, "gone");
    rig.ends("gone", 0, Final::Stopped);
    let shown = rig.ports("n1", &alice());
    assert_eq!(shown.state, "up");
    assert_eq!(shown.ranges.reserved, ranges("20010-20019"));
    let lines: Vec<String> = shown
        .ports
        .iter()
        .map(|it| {
            let name = it.name.as_ref().map_or("-", |name| name.as_str());
            format!("{}/{} {} {name}", it.numbers, it.protocol, it.state)
        })
        .collect();
    assert_eq!(
        lines,
        [
            "5236/tcp foreign -",
            "5300/tcp+udp held dns",
            "20000-20003/tcp held block",
            "20004/tcp held http",
            "20005/tcp cooling -",
            "20010-20019/tcp+udp reserved -"
        ]
    );
    let counts = shown.counts;
    assert_eq!(
        (
            counts.dynamic,
            counts.free_tcp,
            counts.free_udp,
            counts.free_both
        ),
        (100, 84, 90, 84)
    );
    assert_eq!(
        (
            counts.held,
            counts.releasing,
            counts.cooling,
            counts.foreign,
            counts.reserved
        ),
        (6, 0, 1, 1, 10)
    );
    let host = "n1".parse().unwrap();
    assert_eq!(rig.registry.view().hosts[&host].counts, counts);
    let unknown = "n9".parse().unwrap();
    assert_eq!(rig.registry.host_ports(rig.now, &alice(), &unknown), None);
}

#[test]
fn a_number_that_another_port_of_the_replica_needs_is_told_as_such() {
    // The block takes all of the pool, 20009 with it; "0 of 1 held" alone sounds like a fault of ours.
    let mut rig = Rig::new();
    rig.tell(Input::HostReport(HostFacts {
        dynamic: ranges("20000-20019"),
        ..facts("n1")
    }));
    let block = with_port("web", 1, "{ any = 20 }") + "one = { any = 1, range = \"20009\" }\n";
    rig.submit(&block).unwrap();
    assert_eq!(
        rig.replica("web", 0).reason.unwrap(),
        "no free port in 20009 on host n1 (0 of 1 held, 1 left to other ports)"
    );
}

#[test]
fn neighbours_that_rest_equally_long_to_the_second_are_one_line() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("web", 3, "\"any\"")).unwrap();
    stop(&mut rig, "web");
    for index in 0..3 {
        rig.ends("web", index, Final::Stopped);
        rig.pass(Duration::from_millis(1));
    }
    let resting = |rig: &mut Rig| -> Vec<(String, Option<u64>)> {
        let ports = rig.ports("n1", &alice()).ports.into_iter();
        let resting = ports.filter(|port| port.state == "cooling");
        resting
            .map(|port| (port.numbers.to_string(), port.left_s))
            .collect()
    };
    assert_eq!(resting(&mut rig), [("20000-20002".to_owned(), Some(60))]);
    // A second is between the first and the others.
    rig.pass(Duration::from_millis(997));
    assert_eq!(
        resting(&mut rig),
        [
            ("20000".to_owned(), Some(59)),
            ("20001-20002".to_owned(), Some(60))
        ]
    );
    assert_eq!(rig.ports("n1", &alice()).counts.cooling, 3);
}

#[test]
fn explain_says_how_many_causes_it_leaves_out() {
    let mut rig = Rig::new();
    rig.join("n1");
    let seventy = |name: &str| {
        let ports = (0..70).map(|at| format!("p{at} = {}\n", 9000 + at));
        with_port(name, 1, "8999") + &ports.collect::<String>()
    };
    rig.submit(&seventy("one")).unwrap();
    let fit = explain(&mut rig, &alice(), &of_profile(&seventy("other"))).unwrap();
    assert_eq!((fit.hosts[0].reasons.len(), fit.hosts[0].left_out), (64, 7));
    let fit = explain(
        &mut rig,
        &alice(),
        &of_profile(&with_port("third", 1, "8999")),
    )
    .unwrap();
    let text = serde_json::to_string(&fit.hosts).unwrap();
    assert!(!text.contains("left_out"), "{text}");
}

#[test]
fn who_waits_behind_very_many_hosts_is_told_of_the_first() {
    let mut rig = Rig::new();
    for host in 1..=9 {
        rig.join(&format!("n{host}"));
    }
    rig.submit(&with_port("web", 10, "8080")).unwrap();
    let id = rig.registry.names[&name("web")];
    let profile = profile(&with_port("web", 10, "8080"));
    let crowd = rig.registry.crowd();
    let candidates = rig.registry.candidates(id, &profile, &crowd);
    let request = profile.request();
    let seeker = super::pending::Seeker {
        service: id,
        profile: &profile,
        request: &request,
        candidates: &candidates,
        limited: &BTreeMap::new(),
        desired: 10,
    };
    let depth = super::pending::Depth::pending(8);
    let survey = rig.registry.survey(&seeker, depth);
    let told = survey.told(&alice(), rig.now.mono);
    assert!(
        told.sentence
            .ends_with("; 6 more hosts were not asked one by one"),
        "{}",
        told.sentence
    );
    assert_eq!((told.sums.asked, told.sums.hosts), (3, 9));
    assert_eq!(told.short, "none of 9 hosts fits");
}

#[test]
fn a_question_after_the_end_of_a_rest_takes_the_number_from_nobody_who_waits() {
    // The question ends the rest in the pool before the deadline does.
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("nb", 1, "8888")).unwrap();
    rig.submit(&with_port("next", 1, "8888")).unwrap();
    stop(&mut rig, "nb");
    rig.ends("nb", 0, Final::Stopped);
    let over = Duration::from_secs(61);
    rig.now.mono = rig.now.mono + over;
    let fit = explain(&mut rig, &alice(), &of_service("next", None)).unwrap();
    assert_eq!(fit.sums.fitting, 1);
    assert!(rig.ports("n1", &alice()).ports.is_empty());
    rig.pass(Duration::ZERO);
    assert_eq!(rig.states("next"), ["starting"]);
    assert_eq!(rig.registry.truth.resting.iter().count(), 0);
}
