//! What a whole cluster's file means, and how its mistakes are told.

use std::time::Duration;

use portreeve::profile::Replicas;
use portreeve::registry::{DrainPace, HostVerb};
use portreeve::time::Monotonic;

use super::Scenario;
use crate::cluster::act::{Act, ControllerAct, HostAct, PersonAct, Planned, StrangerPort, Whom};
use crate::cluster::spec::WorkloadKind;

const BEGIN: &str = r#"
until = "10m"

[controller]
host_grace = "60s"
limits = { replicas = 50 }

[network]
delay = ["1ms", "5ms"]
loss = "0.5%"
reordering = { part = "1%", by = "200ms" }

[disk]
commit = "4ms"

[[host]]
name = "n[1-3]"
ports = "20000-20009"
labels = { rack = "a" }

[[host]]
name = "big"

[[service]]
kind = "service"
name = "web"
command = ["web"]
replicas = 2
owner = "alice"
groups = ["chem"]

[service.ports]
http = "any"

[[service]]
kind = "service"
name = "job[1-4]"
command = ["job"]
submitted = "never"

[[run]]
service = "web"
binds_after = "3s"

[[run]]
exit = { after = "5s", code = 1 }
"#;

fn read(text: &str) -> Scenario {
    let profile = "kind = \"service\"\nname = \"filed\"\ncommand = [\"x\"]\n";
    Scenario::from_toml(text, |_| Ok(profile.as_bytes().to_vec()))
        .unwrap_or_else(|errors| panic!("{errors}"))
}

fn acts_of(at: &str) -> Vec<(u64, Act)> {
    let text = format!("{BEGIN}\n{at}");
    let acts = read(&text).spec.acts.clone().into_iter();
    acts.skip(1)
        .map(|Planned { at, act }| (at.as_millis() / 1000, act))
        .collect()
}

fn told(text: &str) -> Vec<String> {
    let refused = Scenario::from_toml(text, |_| Err("no file".to_owned()));
    let refused = refused.expect_err("it is wrong");
    refused
        .in_file("x.toml")
        .to_string()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_whole_cluster_is_read() {
    let scenario = read(BEGIN);
    let spec = &scenario.spec;
    let hosts: Vec<_> = spec.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["n1", "n2", "n3", "big"]);
    assert_eq!(spec.hosts[0].dynamic.to_string(), "20000-20009");
    assert_eq!(spec.hosts[2].labels["rack"], "a");
    assert_eq!(spec.hosts[3].dynamic.to_string(), "20000-32767");
    let services: Vec<_> = spec
        .services
        .iter()
        .map(|one| one.name().to_string())
        .collect();
    assert_eq!(
        services,
        ["web.alice", "job1.me", "job2.me", "job3.me", "job4.me"]
    );
    assert_eq!(spec.services[0].profile.replicas, Replicas::Count(2));
    assert_eq!(spec.services[0].owner.groups, ["chem"]);
    // Its own run, and that of everybody else.
    let run = |place: usize| &spec.services[place].scripts[&None];
    let first = portreeve::identity::Run(1);
    assert_eq!(run(0).of(first).binds_after, Duration::from_secs(3));
    assert!(run(0).of(first).exit.is_none() && run(4).of(first).exit.is_some());
    assert_eq!(
        spec.network.delay,
        Duration::from_millis(1)..Duration::from_millis(5)
    );
    assert_eq!(
        (spec.network.loss, spec.network.reordering.0),
        (5_000, 10_000)
    );
    assert_eq!(spec.disk.commit.start, Duration::from_millis(4));
    assert_eq!(spec.config.limits.user.replicas, 50);
    let silence = spec.config.silence.expect("hosts are missed");
    assert_eq!(silence.host_grace(), Duration::from_secs(60));
    // Only what is not kept back is submitted.
    assert_eq!(spec.acts.len(), 1);
    assert!(matches!(
        spec.acts[0].act,
        Act::Person(PersonAct::Submit(0))
    ));
}

#[test]
fn whoever_writes_of_no_host_has_one_for_each_replica_with_what_is_asked_of_it() {
    let text = "until = \"1m\"\nreplicas = 3\n[service]\nkind = \"service\"\nname = \"web\"\ncommand = [\"x\"]\n\
                [service.placement]\nlabels = { gpu = \"h100\" }\nhosts = \"a[1-2]\"\n";
    let spec = read(text).spec;
    let hosts: Vec<_> = spec.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["a1", "a2", "n1"]);
    assert!(spec.hosts.iter().all(|host| host.labels["gpu"] == "h100"));
}

#[test]
fn an_act_says_whom_it_befalls_and_what_ends_it() {
    let whom = Whom {
        service: 0,
        index: 1,
    };
    let of = |no, act| Act::Host(no, act);
    let cases = [
        (
            "act = \"power-loss\"\nhost = \"n[1-2]\"\nlasts = \"30s\"",
            vec![
                (60, of(0, HostAct::PowerLoss)),
                (60, of(1, HostAct::PowerLoss)),
                (90, of(0, HostAct::Boot)),
                (90, of(1, HostAct::Boot)),
            ],
        ),
        (
            "act = \"cut-off\"\nservice = \"web\"\nreplica = 1\ndirection = \"to-host\"",
            vec![(
                60,
                Act::HostOf(
                    whom,
                    HostAct::CutOff {
                        from_host: false,
                        to_host: true,
                    },
                ),
            )],
        ),
        (
            "act = \"kill-worker\"\nservice = \"web\"\nreplica = 1\nafter_effects = 2",
            vec![(60, Act::HostOf(whom, HostAct::WorkerDiesAfter(whom, 2)))],
        ),
        (
            "act = \"stranger-takes\"\nhost = \"big\"\nport = \"8080\"\nlasts = \"5s\"",
            {
                let port = StrangerPort::Number(
                    "8080".parse().expect("a port"),
                    portreeve::port::Protocol::Tcp,
                );
                vec![
                    (60, of(3, HostAct::StrangerTakes(port))),
                    (65, of(3, HostAct::StrangerLeaves(port))),
                ]
            },
        ),
        (
            "act = \"kill-controller\"\nin_commit = \"written\"\nevery = \"20s\"\ntimes = 2\nlasts = \"5s\"",
            [60, 80]
                .into_iter()
                .flat_map(|at| {
                    [
                        (
                            at,
                            Act::Controller(ControllerAct::DiesInCommit { written: true }),
                        ),
                        (at + 5, Act::Controller(ControllerAct::Starts)),
                    ]
                })
                .collect(),
        ),
        (
            "act = \"replace\"\nservice = \"web\"\nevery = \"1s\"\ntimes = 2",
            vec![
                (60, Act::Person(PersonAct::Replace(0, 1))),
                (61, Act::Person(PersonAct::Replace(0, 2))),
            ],
        ),
        (
            "act = \"drain\"\nhost = \"n3\"\nwithin = \"5m\"",
            vec![(
                60,
                Act::Person(PersonAct::Host(
                    2,
                    HostVerb::Drain {
                        pace: DrainPace::Within(Duration::from_secs(300)),
                    },
                )),
            )],
        ),
        (
            "act = \"clock-jump\"\nhost = \"n1\"\nby = \"-1h\"",
            vec![(60, of(0, HostAct::ClockJumps(-3_600_000)))],
        ),
        ("act = \"heal\"", vec![(60, Act::Heal)]),
    ];
    for (written, wanted) in cases {
        let acts = acts_of(&format!("[[at]]\ntime = \"1m\"\n{written}\n"));
        assert_eq!(format!("{acts:?}"), format!("{wanted:?}"), "{written}");
    }
}

#[test]
fn a_workload_says_who_does_what_how_often() {
    let text = format!(
        "{BEGIN}[[workload]]\nfrom = \"1m\"\nkind = \"scale\"\nmost = 5\nper_minute = 6\nservices = \"job[2-4]\"\n"
    );
    let workload = &read(&text).spec.workloads[0];
    assert_eq!(
        workload.within,
        Monotonic::from_millis(60_000)..Monotonic::from_millis(600_000)
    );
    assert_eq!(workload.kind, WorkloadKind::Scale { most: 5 });
    assert_eq!((workload.per_minute, workload.services.clone()), (6, 2..5));
}

#[test]
fn a_profile_in_a_file_may_have_other_names() {
    let text = "until = \"1m\"\n[[service]]\nprofile = \"p.toml\"\n[[service]]\nprofile = \"p.toml\"\n\
                name = \"b[1-2]\"\nreplicas = 3\n";
    let spec = read(text).spec;
    let names: Vec<_> = spec
        .services
        .iter()
        .map(|one| one.name().to_string())
        .collect();
    assert_eq!(names, ["filed.me", "b1.me", "b2.me"]);
    assert_eq!(spec.services[2].profile.replicas, Replicas::Count(3));
}

#[test]
fn every_mistake_of_a_cluster_is_told_with_its_place() {
    let text = "until = \"1m\"\nexpect = [\"1m @wbe listed 1\"]\n\
                [network]\nloss = \"200%\"\ndelay = [\"5ms\", \"1ms\"]\n\
                [[host]]\nname = \"n[1-2\"\n\
                [[host]]\nname = \"n1\"\nprots = \"80\"\n\
                [[service]]\nkind = \"service\"\nname = \"web\"\ncommand = [\"x\"]\nownr = \"alice\"\n";
    assert_eq!(
        told(text)
            .iter()
            .map(|line| line.split(';').next().unwrap_or_default())
            .collect::<Vec<_>>(),
        [
            "x.toml:4:8: network.loss: \"200%\" is no part",
            "x.toml:5:9: network.delay: not the shortest and the longest time",
            "x.toml:7:8: host.name: the brackets of \"n[1-2\" do not pair, or are more than 8",
            "x.toml:10:1: host.prots: unknown field",
            "x.toml:15:1: service.ownr: unknown key",
        ]
    );
    let act = |act: &str| told(&format!("{BEGIN}[[at]]\ntime = \"1m\"\n{act}\n")).join("\n");
    for (wrong, says) in [
        ("act = \"explode\"", "at.act: \"explode\" is not known"),
        ("act = \"boot\"", "at.host: missing"),
        (
            "act = \"kil-worker\"",
            "at.act: \"kil-worker\" is not known; did you mean \"kill-worker\"?",
        ),
        (
            "act = \"boot\"\nhost = \"n9\"",
            "at.host: n9 is no host here",
        ),
        (
            "act = \"boot\"\nhost = \"n1\"\nlasts = \"1s\"",
            "at.lasts: this act has no end",
        ),
        ("act = \"scale\"\nservice = \"web\"", "at.replicas: missing"),
        ("act = \"stop\"", "at.service: missing"),
        (
            "act = \"stop\"\nservice = \"wbe\"",
            "at.service: \"wbe\" is no service here",
        ),
        (
            "act = \"kill-worker\"\nservice = \"web\"",
            "at.replica: missing",
        ),
        (
            "act = \"heal\"\ntimes = 3",
            "at.every: every and times belong together",
        ),
        ("act = \"heal\"\nhost = \"n1\"", "at.host: unknown field"),
        (
            "act = \"power-loss\"\nhost = \"n1\"\nservice = \"web\"\nreplica = 0",
            "at.host: there is also a replica",
        ),
        (
            "act = \"clock-jump\"\nhost = \"n1\"\nby = \"soon\"",
            "at.by: \"soon\"",
        ),
    ] {
        let told = act(wrong);
        assert!(told.contains(says), "{wrong}: {told}");
        assert_eq!(told.lines().count(), 1, "{wrong}: {told}");
    }
    let twice = told(&format!("{BEGIN}[[host]]\nname = \"n2\"\n"));
    assert_eq!(twice.len(), 1);
    assert!(
        twice[0].contains("host.name: n2 is there twice"),
        "{twice:?}"
    );
    // Without the @ it would be taken for words, and `never` met by everything.
    let lines = "expect = [\"1m web/0 READY\"]\nnever = [\"controller killed\", \"1m READY\"]\n";
    let lacking = told(&format!("{lines}{BEGIN}")).join("\n");
    for says in [
        "expect: no words begin with web/0; did you mean @web/0?",
        "never: no words begin with controller; did you mean @controller?",
        "never: \"1m READY\" has a time",
    ] {
        assert!(lacking.contains(says), "{lacking}");
    }
    // Every run would keep what can never be seen.
    let misspelt =
        "never = [\"REDAY\", \"@web restarted\", \"PORT_CONFLICT\", \"roll-stopped: web\"]\n";
    let never = told(&format!("{misspelt}{BEGIN}"));
    assert_eq!(never.len(), 2, "{never:?}");
    let all = "no words begin with REDAY; what is seen begins with BACKOFF, FAILED, GAVEUP, ";
    assert!(never[0].contains(all), "{never:?}");
    let one = "no words begin with restarted; did you mean RESTARTED?";
    assert!(never[1].contains(one), "{never:?}");
    let unknown = told(&format!("expect = [\"1m @wbe/0 READY\"]\n{BEGIN}"));
    assert!(
        unknown[0].contains("\"wbe/0\" is no service, replica or host here"),
        "{unknown:?}"
    );
}
