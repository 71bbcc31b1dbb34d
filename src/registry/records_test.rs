//! Every field of every stored record survives the way to the disk and back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::identity::{HostId, Incarnation, Run, ServiceId};
use crate::port::{Port, PortRange, Protocol};
use crate::port_pool::{GrantedPort, PortGrant};
use crate::profile::Source;
use crate::rights::{Rights, Role, Scope};
use crate::supervision::{
    ExitStatus, Failure, Final, Leaving, Reason, StartFailure, State, Status,
};
use crate::time::WallClock;

use super::ledger::Ledger;
use super::records::{
    Attached, DecodeError, Drain, EndKind, Ended, Former, Host, Lost, Meta, Orphan, Phase,
    Placement, Replica, Resting, Roll, RollKind, Service, StopOrder, StopWhy, Stranded, Tenure,
    Tombstone, WaitCause, Waiting, Wish, decode, encode,
};
use super::rig::{alice, facts, foreign, name, profile, web};
use super::truth::Truth;
use super::witness::Witness;
use super::{
    EventView, HostOwner, ReportedAddress, SecretHash, Stored, Token, TokenBearer, TokenId,
    UnusableAddress,
};

thread_local! {
    /// What the samples of this test had.
    static SEEN: Witness = Witness::default();
}

/// The record survives, and is a sample of its type.
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(record: &T) {
    let bytes = encode(record);
    let back: T = decode(&bytes).unwrap();
    assert_eq!(back, *record, "{}", String::from_utf8_lossy(&bytes));
    let written: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    SEEN.with(|seen| seen.see::<T>(&written["record"]));
}

// controller.md section 2
#[test]
fn no_field_and_no_variant_of_a_stored_record_lacks_a_sample_that_survives() {
    // Every test here that has samples; whoever adds a type adds its test.
    meta_tombstones_rests_and_events_survive();
    services_survive_with_every_profile_that_is_in_use();
    replicas_survive_in_every_phase_and_state();
    hosts_survive();
    what_is_stranded_survives();
    tokens_survive_whomever_they_speak_for();
    SEEN.with(|seen| {
        let mut missing = seen.missing();
        // They are in records of their own.
        missing.retain(|place| place != "HostFacts.replicas");
        assert!(
            missing.is_empty(),
            "of {} fields and variants no sample here has {missing:?}: add one, so that it is known to survive",
            seen.places()
        );
        every_table_has_samples(seen);
    });
}

fn every_table_has_samples(seen: &Witness) {
    fn has<K, V>(_: &Ledger<K, V>, seen: &Witness) {
        let name = std::any::type_name::<V>();
        assert!(seen.knows::<V>(), "no sample of {name}");
    }
    // Whoever adds a table is told here.
    let Truth {
        meta,
        tombstones,
        services,
        replicas,
        hosts,
        resting,
        events,
        stranded,
        host_events,
        history,
        tokens,
    } = Truth::load(&Stored::default()).unwrap();
    has(&meta, seen);
    has(&tombstones, seen);
    has(&services, seen);
    has(&replicas, seen);
    has(&hosts, seen);
    has(&resting, seen);
    has(&events, seen);
    has(&stranded, seen);
    has(&host_events, seen);
    has(&history, seen);
    has(&tokens, seen);
}

const fn at(ms: u64) -> WallClock {
    WallClock::from_unix_millis(ms)
}

fn grant() -> PortGrant {
    let number = |number: u16| Port::new(number).unwrap();
    let port = |name: &str, first, last, protocol| GrantedPort {
        name: name.parse().unwrap(),
        protocol,
        numbers: PortRange::new(number(first), number(last)).unwrap(),
    };
    PortGrant {
        ports: vec![
            port("http", 20000, 20000, Protocol::Tcp),
            port("rpc", 20004, 20007, Protocol::TcpUdp),
        ],
    }
}

fn failure() -> Failure {
    Failure {
        reason: Reason::Liveness { failures: 3 },
        exit: Some(ExitStatus::Signal {
            signal: 9,
            core: true,
            oom: true,
        }),
        run: Run(4),
        at: at(5),
        probe_output: Some("503".into()),
    }
}

fn status(state: State) -> Status {
    Status {
        run: Run(3),
        seq: 17,
        state,
        ready: true,
        serving: true,
        not_ready_reason: Some("listens on 127.0.0.1 only".into()),
        restarts: 2,
        user_restarts: 1,
        restart_no: 6,
        pid: Some(4711),
        first_failure: Some(failure()),
        last_failure: Some(failure()),
        next_start: Some(at(9)),
    }
}

fn replica(phase: Phase, state: State) -> Replica {
    Replica {
        incarnation: Incarnation(7),
        generation: 3,
        phase,
        restart_no: 6,
        since: at(1),
        ready_since: Some(at(2)),
        status: Some(status(state)),
        restarts_earlier: 11,
        failure_earlier: Some(failure()),
        requeues: 2,
        former: Some(Former {
            host: HostId(4),
            grant: grant(),
        }),
    }
}

#[test]
fn meta_tombstones_rests_and_events_survive() {
    survives(&Meta {
        epoch: "4f1c".into(),
        ceiling: 1 << 52,
        next_service: 9,
        rights: 1 << 51,
        incarnation_base: 7,
    });
    for revision in [None, Some(1 << 52)] {
        survives(&Tombstone {
            removed: at(3),
            incarnation_floor: 8,
            revision,
        });
    }
    survives(&Resting {
        service: ServiceId(5),
        numbers: grant().ports[1].numbers,
    });
    survives(&EventView {
        at: at(4),
        replica: Some(2),
        incarnation: Some(Incarnation(3)),
        host: Some("n1".parse().unwrap()),
        kind: "ready".into(),
        text: "ready".into(),
        times: 7,
        first: Some(at(2)),
    });
    for until in [None, Some(at(9))] {
        survives(&Tenure {
            host: "n1".parse().unwrap(),
            service: name("web"),
            user: "alice".into(),
            uid: 1000,
            job: until.map(|_| "slurm 4711".to_owned()),
            grant: grant(),
            from: at(3),
            until,
            how: until.map(|_| "stopped by alice".to_owned()),
        });
    }
}

#[test]
fn an_event_of_an_earlier_version_happened_once() {
    let bytes = br#"{"format":1,"record":{"at":4,"replica":2,"incarnation":3,"kind":"ready","text":"ready"}}"#;
    let event: EventView = decode(bytes).unwrap();
    assert_eq!((event.times, event.first, event.host), (1, None, None));
}

#[test]
fn services_survive_with_every_profile_that_is_in_use() {
    let rich = "visibility = [\"group:chem\", \"user:bob\"]\nlogs = [\"group:bio\"]\nrerunnable = false\n\
        env = { A = \"${port.http}\" }\nenv_secret = [\"TOKEN\"]\nlabels = { model = \"m1\" }\n";
    let mut profiles = BTreeMap::new();
    profiles.insert(2, Arc::new(profile(&web("web", 3))));
    profiles.insert(3, Arc::new(profile(&format!("{rich}{}", web("web", 3)))));
    let mut service = Service {
        id: ServiceId(5),
        name: name("web"),
        owner: alice().owner(),
        uid: 1001,
        profiles,
        source: None,
        generation: 3,
        desired: 4,
        wish: Wish::Stopped,
        submitted: at(1),
        roll: None,
        incarnation_floor: 6,
        skipped: vec![(2, 5)],
        skipped_anew: vec![(1, 5)],
        attached: false,
        moving: None,
    };
    survives(&service);
    // As records before it were: without a source, and never attached.
    let text = String::from_utf8_lossy(&encode(&service)).into_owned();
    let later = ["source", "attached", "moving"];
    assert!(later.iter().all(|field| !text.contains(field)), "{text}");
    service.attached = true;
    service.moving = Some(3);
    service.wish = Wish::Running;
    service.owner.admin = true;
    survives(&service);
    service.source = Some(Arc::new(Source {
        text: web("web", 4),
        flags: vec!["replicas=3".to_owned()],
        extends: vec!["gpu-service".parse().unwrap()],
    }));
    survives(&service);
    for kind in [RollKind::Replace, RollKind::Restart] {
        service.roll = Some(Roll {
            kind,
            by: "bob".into(),
            current: Some(3),
            remaining: BTreeSet::from([0, 1]),
        });
        survives(&service);
    }
}

#[test]
fn replicas_survive_in_every_phase_and_state() {
    let placed = |stop| {
        Phase::Placed(Placement {
            host: HostId(2),
            boot_id: "boot-2".into(),
            grant: grant(),
            placed_at: at(8),
            stop,
            attached: None,
        })
    };
    let mut phases = vec![placed(None)];
    for why in [
        StopWhy::Stopped,
        StopWhy::Killed,
        StopWhy::ScaledDown,
        StopWhy::Renewed,
        StopWhy::Drained,
        StopWhy::HostShutdown,
    ] {
        let by = "alice".into();
        phases.push(placed(Some(StopOrder { why, by })));
    }
    for cause in [
        WaitCause::Asked,
        WaitCause::HostLost("host n1 lost".into()),
        WaitCause::Left(Leaving::CutOff),
        WaitCause::Left(Leaving::Shutdown),
        WaitCause::Conflict("port 80/tcp".into()),
        WaitCause::GaveUp("gave up".into()),
        WaitCause::Rebooted,
        WaitCause::Moved("host n1 is drained by root".into()),
    ] {
        let rest = Some(Duration::from_millis(1500));
        phases.push(Phase::Waiting(Waiting { cause, rest }));
    }
    for how in [
        EndKind::Done,
        EndKind::Completed,
        EndKind::Failed,
        EndKind::GaveUp,
        EndKind::Stopped,
        EndKind::Killed,
        EndKind::HostRebooted,
        EndKind::HostLost,
        EndKind::LeftHost,
        EndKind::PortConflict,
        EndKind::HostDrained,
        EndKind::HostShutdown,
    ] {
        phases.push(Phase::Ended(Ended {
            how,
            reason: "gave up".into(),
            host: Some(HostId(1)),
        }));
    }
    let Phase::Placed(ours) = placed(None) else {
        panic!("it is placed")
    };
    for job in [None, Some("slurm 4711".to_owned())] {
        let key = "a1b2".into();
        let attached = Some(Attached { key, job });
        phases.push(Phase::Placed(Placement {
            attached,
            ..ours.clone()
        }));
    }
    for phase in phases {
        survives(&replica(phase, State::Up));
    }
    for state in [
        State::Idle,
        State::Starting,
        State::Startup,
        State::Stopping,
        State::Reaping,
        State::Backoff,
        State::Stuck,
        State::Final(Final::Succeeded),
        State::Final(Final::Stopped),
        State::Final(Final::Left(Leaving::CutOff)),
        State::Final(Final::Left(Leaving::Shutdown)),
        State::Final(Final::GaveUp {
            reason: Reason::Exit(ExitStatus::Unknown),
            count: 10,
        }),
        State::Final(Final::PortConflict {
            port: 80.try_into().unwrap(),
            protocol: Protocol::Udp,
            pid: Some(811),
            comm: Some("nc".into()),
        }),
    ] {
        survives(&replica(placed(None), state));
    }
    for reason in [
        Reason::Exit(ExitStatus::Code(-3)),
        Reason::StartFailed(StartFailure::Errno(13)),
        Reason::StartFailed(StartFailure::Exec {
            program: "serve".into(),
            errno: 2,
        }),
        Reason::StartFailed(StartFailure::PreExec(ExitStatus::Code(1))),
        Reason::StartFailed(StartFailure::Prepare("no room".into())),
        Reason::Startup { failures: 3 },
        Reason::Probe { failures: 3 },
        Reason::User,
        Reason::Stop,
        Reason::StaleRecord,
    ] {
        let failed = State::Final(Final::Failed(reason));
        survives(&replica(placed(None), failed));
    }
}

#[test]
fn hosts_survive() {
    let mut facts = facts("n1");
    facts.reserved = "22,80-81".parse().unwrap();
    facts.foreign = vec![foreign(52365, 811, "nc")];
    facts.labels.insert("gpu".into(), "h100".into());
    facts.addresses = vec![ReportedAddress {
        interface: "eth0".into(),
        address: "fd00::1".parse().unwrap(),
        prefix: 64,
        default_route: true,
    }];
    facts.unusable = vec![UnusableAddress {
        interface: "lo".into(),
        address: "127.0.0.1".parse().unwrap(),
        prefix: 8,
        reason: "loopback".into(),
    }];
    facts.conditions = vec!["its disk is full".into()];
    facts.agent = Some("m/b/f".parse().unwrap());
    let mut host = Host {
        id: HostId(3),
        facts,
        reported_at: at(6),
        lost: None,
        fences: BTreeSet::new(),
        drain: None,
        removed: None,
    };
    survives(&host);
    // As records before it were: in service, and there.
    let text = String::from_utf8_lossy(&encode(&host)).into_owned();
    let later = ["drain", "removed", "shutting_down", "lost", "fences"];
    assert!(later.iter().all(|field| !text.contains(field)), "{text}");
    // Not stored: it is of a report. What is read must survive all the same.
    host.facts.seq = Some(7);
    host.facts.shutting_down = true;
    host.facts.owner = HostOwner::Plugin;
    host.removed = Some(at(9));
    host.fences.insert(crate::residency::ReplicaName {
        service: name("web"),
        index: 1,
        incarnation: Incarnation(2),
    });
    for until in [None, Some(at(8))] {
        host.drain = Some(Drain {
            by: "root".into(),
            since: at(7),
            until,
            replicas: 5,
        });
        survives(&host);
    }
    for by in [None, Some("root".to_owned())] {
        host.lost = Some(Lost {
            at: at(12),
            last_contact: at(11),
            before: by.is_some(),
            fenced: by.is_some(),
            by,
        });
        survives(&host);
    }
}

#[test]
fn what_is_stranded_survives() {
    let mut stranded = Stranded {
        name: name("web"),
        grant: grant(),
        boot_id: "boot-2".into(),
        generation: 3,
        restarts: 2,
        since: at(7),
        why: "host n1 lost".into(),
        attached: None,
        orphan: None,
    };
    survives(&stranded);
    stranded.attached = Some(Attached {
        key: "a1b2".into(),
        job: Some("slurm 4711".into()),
    });
    stranded.orphan = Some(Orphan {
        user: "alice".into(),
        uid: 1000,
        profile: Arc::new(profile(&web("web", 1))),
    });
    survives(&stranded);
}

#[test]
fn garbage_is_no_record() {
    for bytes in [&b""[..], b"{}", b"{\"format\":1}", b"[1,2", b"\xff"] {
        let read = decode::<Meta>(bytes);
        assert!(matches!(read, Err(DecodeError::Damaged(_))), "{bytes:?}");
    }
    let newer = decode::<Meta>(b"{\"format\":7,\"record\":null}");
    assert_eq!(newer, Err(DecodeError::Newer(7)));
}

#[test]
fn tokens_survive_whomever_they_speak_for() {
    let mut token = Token {
        hash: SecretHash([0xa5; 32]),
        bearer: TokenBearer::User {
            user: "alice".into(),
            uid: Some(1000),
            rights: Rights {
                role: Role::Viewer,
                view: "group,group:bio".parse().unwrap(),
                manage: Scope::Own,
            },
        },
        by: alice().with_rights(Rights::ADMIN).owner(),
        created: at(1),
        expires: Some(at(2)),
        parent: Some(TokenId(7)),
        label: Some("prometheus".into()),
    };
    survives(&token);
    for role in Role::ALL {
        for scope in ["own", "group", "group:chem", "all"] {
            let scope: Scope = scope.parse().unwrap();
            token.bearer = TokenBearer::User {
                user: "alice".into(),
                uid: None,
                rights: Rights {
                    role,
                    view: scope.clone(),
                    manage: scope,
                },
            };
            survives(&token);
        }
    }
    token.bearer = TokenBearer::Join {
        uses_left: 200,
        relay: true,
    };
    (token.expires, token.parent, token.label) = (None, None, None);
    survives(&token);
    token.bearer = TokenBearer::Host {
        host: "n1".parse().unwrap(),
        machine: "4f1c".into(),
        relay: true,
    };
    survives(&token);
}
