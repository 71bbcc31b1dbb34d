//! What is written down, told and done in a turn, and what a next worker makes of what one left.

use std::collections::BTreeMap;

use super::*;
use crate::attendance::{Beginning, Contact, Found, MainProcess, Order, Standing, Stranger, Token};
use crate::port::{Port, Protocol};
use crate::profile::Profile;
use crate::residency::{Pace, Want};
use crate::supervision::{Final, Leaving, ProbeOutcome, Reason, StartFailure};
use crate::time::WallClock;

/// A worker without a host: what comes out is kept, and what it asks is answered as a test says.
struct Rig {
    attendance: Attendance,
    around: Host,
    at: Monotonic,
    said: Vec<String>,
}

#[derive(Default)]
struct Host {
    pace: Pace,
    contact: Option<Contact>,
    stranger: Option<Stranger>,
}

impl Surroundings for Host {
    fn contact(&mut self) -> Option<Contact> {
        self.contact
    }

    fn restart_token(&mut self, now: Monotonic, _: Run) -> Token {
        Token::After(self.pace.restart(now))
    }

    fn stranger_after(&mut self, _: Run) -> Option<Stranger> {
        self.stranger.clone()
    }
}

fn at(ms: u64) -> Monotonic {
    Monotonic::from_millis(ms)
}

fn now(at: Monotonic) -> Now {
    Now {
        mono: at,
        wall: WallClock::from_unix_millis(1_000_000 + at.as_millis()),
    }
}

fn standing() -> Standing<'static> {
    Standing {
        user: (1000, "alice"),
        worker_uid: 1000,
        assigned_in: "boot",
        boot_id: "boot",
        restart_no: 0,
        host_address: [10, 0, 0, 1].into(),
        port_addresses: BTreeMap::new(),
    }
}

fn machine(rules: &str) -> Machine {
    let text = format!(
        "name = \"web\"\ncommand = [\"web\"]\n{rules}\n[restart]\nbackoff = {{ jitter = 0.0 }}"
    );
    Machine::new(Profile::from_toml(&text).unwrap().profile.supervision, 1)
}

const fn run_wanted() -> Beginning {
    Beginning {
        unrecorded: 0,
        is_behind: false,
        found: Found::Nothing,
        want: Want::Run,
        restart_no: 0,
    }
}

impl Rig {
    fn of(record: Record, from: u64, manner: Manner) -> Self {
        Self {
            attendance: Attendance::new(at(from), record, manner),
            around: Host::default(),
            at: at(from),
            said: Vec::new(),
        }
    }

    fn new(rules: &str) -> Self {
        Self::of(
            Record::new(machine(rules), standing()),
            0,
            Manner::default(),
        )
    }

    /// One that began and whose first run is up.
    fn up(rules: &str) -> Self {
        let mut rig = Self::new(rules);
        rig.begin(run_wanted());
        rig.started();
        rig.said.clear();
        rig
    }

    fn begin(&mut self, beginning: Beginning) {
        let mut out = Vec::new();
        self.attendance
            .begin(now(self.at), beginning, &mut self.around, &mut out);
        self.hear(out);
    }

    fn turn(&mut self, mut happened: Happened<u32>) {
        let mut out = Vec::new();
        let now = now(self.at);
        self.attendance
            .turn(now, &mut happened, &mut self.around, &mut out);
        self.hear(out);
    }

    fn hear(&mut self, out: Vec<Output<u32>>) {
        let word = |one: Output<u32>| match one {
            Output::Write { status: true } => "write both".to_owned(),
            Output::Write { status: false } => "write".to_owned(),
            Output::Tell { reports } => {
                let reports: Vec<_> = reports.iter().map(ToString::to_string).collect();
                format!("tell [{}]", reports.join(", "))
            }
            Output::Clear { run } => format!("clear {run}"),
            Output::Spawn { run } => format!("spawn {run}"),
            Output::Term { run } => format!("term {run}"),
            Output::KillGroup { run } => format!("kill {run}"),
            Output::Probe { kind, probe, .. } => format!("probe {kind} {}", probe.0),
            Output::CancelProbe { kind, probe } => format!("cancel {kind} {}", probe.0),
            Output::Answer { to, refused } => {
                format!("answer {to} {}", refused.unwrap_or_default())
            }
        };
        self.said.extend(out.into_iter().map(word));
    }

    /// What came out since this was asked last.
    fn said(&mut self) -> String {
        std::mem::take(&mut self.said).join("; ")
    }

    fn process(&mut self, event: ProcessEvent) {
        self.turn(Happened {
            processes: vec![event],
            ..Happened::default()
        });
    }

    fn order(&mut self, order: Order) {
        self.turn(Happened {
            orders: vec![(order, 7)],
            ..Happened::default()
        });
    }

    fn probed(&mut self, kind: ProbeKind, probe: u32, outcome: ProbeOutcome, text: &str) {
        self.turn(Happened {
            probes: vec![ProbeEnd {
                run: self.attendance.run(),
                kind,
                probe: ProbeNumber(probe),
                outcome,
                text: text.to_owned(),
            }],
            ..Happened::default()
        });
    }

    fn started(&mut self) {
        let run = self.attendance.run();
        self.process(ProcessEvent::Cleared { run });
        let process = MainProcess {
            pid: 4000 + run.0,
            start_ticks: 1,
            boot_id: "boot".to_owned(),
        };
        self.process(ProcessEvent::Spawned { run, process });
    }

    fn exits(&mut self, code: i32) {
        let run = self.attendance.run();
        let status = ExitStatus::Code(code);
        self.process(ProcessEvent::Exited { run, status });
    }

    fn empties(&mut self) {
        let run = self.attendance.run();
        self.process(ProcessEvent::GroupEmpty { run });
    }

    /// Lets everything that is due happen, up to and at `until`.
    fn until(&mut self, until: u64) {
        while let Some(next) = self
            .attendance
            .next_deadline()
            .filter(|next| *next <= at(until))
        {
            self.at = self.at.max(next);
            self.turn(Happened::default());
        }
        self.at = at(until);
    }

    fn state(&self) -> &State {
        &self.attendance.status().unwrap().state
    }

    /// What a next worker of the same boot makes of what is written down now.
    fn next_worker(&self) -> Self {
        let text = serde_json::to_string(self.attendance.record()).unwrap();
        let record: Record = serde_json::from_str(&text).unwrap();
        Self::of(record, self.at.as_millis(), Manner::default())
    }
}

fn stranger() -> Stranger {
    Stranger {
        port: Port::new(20_000).unwrap(),
        protocol: Protocol::Tcp,
        pid: None,
        comm: None,
    }
}

// The order of a turn.

#[test]
fn what_came_of_a_turn_is_written_down_then_told_then_done() {
    let mut rig = Rig::new("");
    rig.begin(run_wanted());
    assert_eq!(rig.said(), "write both; tell []; clear 1");
    rig.started();
    assert!(rig.said().starts_with("spawn 1"));
    rig.until(5_000);
    rig.said.clear();
    rig.exits(1);
    let said = rig.said();
    assert!(said.starts_with("write both; tell [NOTREADY"), "{said}");
    assert!(said.ends_with("; kill 1"), "{said}");
}

#[test]
fn a_disk_that_takes_nothing_holds_up_nothing_and_is_tried_again() {
    let mut rig = Rig::up("");
    rig.until(1_000);
    assert_eq!(rig.said(), "write both; tell [READY]");
    rig.attendance.not_written(rig.at);
    rig.until(2_999);
    assert_eq!(rig.said(), "");
    // The status too, which was not written either.
    rig.until(3_000);
    assert_eq!(rig.said(), "write both");
    rig.attendance.not_written(rig.at);
    rig.exits(1);
    assert!(rig.said().ends_with("; kill 1"));
    rig.empties();
    rig.until(60_000);
    assert_eq!(rig.attendance.run(), Run(2));
}

/// The story: on a full disk a replica ended, was told of, and its numbers went to the next. Its worker left, and its
/// folder still said that it runs: told so anew, the controller held the numbers for both.
#[test]
fn who_may_go_leaves_no_record_behind_that_says_less_than_was_told() {
    let mut rig = Rig::up("");
    rig.attendance.manner.hands_over = true;
    rig.until(1_000);
    rig.order(Order::Want {
        want: Want::Stop,
        restart_no: 0,
    });
    rig.exits(1);
    rig.empties();
    rig.attendance.not_written(rig.at);
    rig.order(Order::Want {
        want: Want::Forget,
        restart_no: 0,
    });
    rig.attendance.not_written(rig.at);
    assert_eq!(rig.attendance.ended(), None);
    // One that nobody takes over, as in the job of another scheduler, holds nothing up.
    rig.attendance.manner.hands_over = false;
    assert!(rig.attendance.ended().is_some());
    rig.attendance.manner.hands_over = true;
    rig.said.clear();
    rig.until(60_000);
    assert!(rig.said().starts_with("write both"));
    assert!(matches!(rig.attendance.ended(), Some(Ended::Forgotten(_))));
}

#[test]
fn events_of_one_instant_come_in_their_order_whatever_order_they_were_found_in() {
    // supervision 1.1: the spawn before the exit before the empty group.
    let mut rig = Rig::new("");
    rig.begin(run_wanted());
    let run = Run(1);
    rig.process(ProcessEvent::Cleared { run });
    let status = ExitStatus::Code(1);
    rig.turn(Happened {
        processes: vec![
            ProcessEvent::GroupEmpty { run },
            ProcessEvent::Exited { run, status },
            ProcessEvent::SpawnFailed {
                run,
                why: StartFailure::Errno(2),
            },
        ],
        ..Happened::default()
    });
    let failure = rig.attendance.status().unwrap().last_failure.as_ref();
    let reason = Reason::StartFailed(StartFailure::Errno(2));
    assert_eq!(failure.unwrap().reason, reason);
}

#[test]
fn probes_that_find_what_they_found_before_lead_to_nothing_but_the_next_one() {
    let mut rig = Rig::up("readiness = { tcp = {}, interval = \"5s\" }\n[ports]\nhttp = \"any\"");
    rig.probed(ProbeKind::Readiness, 1, ProbeOutcome::Ok, "");
    assert_eq!(rig.said(), "write both; tell [READY]");
    let writes = rig.attendance.work().writes;
    for probe in 2..100 {
        rig.until(u64::from(probe - 1) * 5_000);
        rig.probed(ProbeKind::Readiness, probe, ProbeOutcome::Ok, "");
        assert_eq!(rig.said(), format!("probe readiness {probe}"));
    }
    assert_eq!(rig.attendance.work(), Work { probes: 99, writes });
}

#[test]
fn a_text_that_changes_all_the_time_is_told_at_most_every_ten_seconds() {
    let mut rig = Rig::up("readiness = { tcp = {}, interval = \"1s\" }\n[ports]\nhttp = \"any\"");
    rig.said.clear();
    let mut told = Vec::new();
    for probe in 1..=32 {
        rig.until(u64::from(probe - 1) * 1_000);
        rig.probed(
            ProbeKind::Readiness,
            probe,
            ProbeOutcome::Fail,
            &probe.to_string(),
        );
        if rig.said().contains("tell") {
            told.push(probe);
        }
    }
    assert_eq!(told, [1, 11, 21, 31]);
}

#[test]
fn a_wake_up_that_came_too_late_excuses_the_probe_that_timed_out_meanwhile() {
    // supervision 1.3 rule 14
    let rules = "liveness = { tcp = {}, interval = \"5s\", timeout = \"3s\", failure_threshold = 1 }\n[ports]\nhttp = \"any\"";
    for (late, restarted) in [(0, true), (10_000, false)] {
        let mut rig = Rig::up(rules);
        rig.until(0);
        rig.at = at(3_000 + late);
        rig.probed(ProbeKind::Liveness, 1, ProbeOutcome::Timeout, "");
        assert_eq!(rig.said().contains("term 1"), restarted, "{late}");
    }
}

// Starts.

#[test]
fn nothing_of_earlier_runs_lives_beside_a_new_one() {
    let mut rig = Rig::new("");
    rig.begin(run_wanted());
    rig.said.clear();
    // The answer to another question, as of a worker before.
    rig.process(ProcessEvent::Cleared { run: Run(9) });
    assert_eq!(rig.said(), "");
    rig.process(ProcessEvent::Cleared { run: Run(1) });
    assert_eq!(rig.said(), "spawn 1");
    rig.process(ProcessEvent::Cleared { run: Run(1) });
    assert_eq!(rig.said(), "");
}

#[test]
fn a_restart_in_a_storm_waits_for_its_token_and_a_stop_ends_the_wait() {
    let mut rig = Rig::up("");
    rig.until(5_000);
    rig.exits(1);
    rig.empties();
    for _ in 0..200 {
        rig.around.pace.restart(at(6_000));
    }
    rig.said.clear();
    rig.until(6_000);
    assert_eq!(
        rig.said(),
        "write",
        "the restart is decided and written down"
    );
    rig.until(7_000);
    assert_eq!(rig.said(), "");
    rig.order(Order::Stop { grace: None });
    rig.until(7_000);
    rig.empties();
    let said = rig.said();
    assert!(!said.contains("spawn") && !said.contains("clear"), "{said}");
    assert_eq!(*rig.state(), State::Final(Final::Stopped));
}

#[test]
fn a_stranger_at_an_early_exit_is_a_conflict_but_not_when_the_shim_was_lost() {
    let status = ExitStatus::Code(1);
    for (status, is_conflict) in [(status, true), (ExitStatus::Unknown, false)] {
        let mut rig = Rig::up("");
        rig.around.stranger = Some(stranger());
        let run = Run(1);
        rig.process(ProcessEvent::Exited { run, status });
        rig.empties();
        let ended = matches!(rig.state(), State::Final(Final::PortConflict { .. }));
        assert_eq!(ended, is_conflict, "{status:?}");
    }
    // Found before the start, it is one as well.
    let mut rig = Rig::new("");
    rig.begin(run_wanted());
    let (run, stranger) = (Run(1), stranger());
    rig.process(ProcessEvent::PortConflict { run, stranger });
    rig.empties();
    assert!(matches!(
        rig.state(),
        State::Final(Final::PortConflict { .. })
    ));
}

#[test]
fn what_may_not_run_here_ends_without_a_start_and_says_why() {
    let another_user = Standing {
        worker_uid: 0,
        ..standing()
    };
    let another_boot = Standing {
        boot_id: "another",
        ..standing()
    };
    for (standing, why) in [(another_user, "it is to run as alice"), (another_boot, "")] {
        let record = Record::new(machine(""), standing);
        let mut rig = Rig::of(record, 0, Manner::default());
        rig.begin(run_wanted());
        assert_eq!(rig.said(), "write both; tell []");
        let State::Final(Final::Failed(reason)) = rig.state() else {
            panic!("{:?}", rig.state());
        };
        assert!(reason.to_string().contains(why), "{reason}");
        assert_eq!(rig.attendance.next_deadline(), None);
    }
}

// Taking over.

#[test]
fn a_worker_that_died_between_writing_and_doing_is_replaced_by_one_that_does_it() {
    let mut rig = Rig::new("");
    rig.begin(run_wanted());
    let mut next = rig.next_worker();
    assert!(next.attendance.takes_over());
    next.begin(run_wanted());
    assert_eq!(next.said(), "write; clear 1; tell []");
    next.started();
    assert_eq!(next.attendance.run(), Run(1));
}

#[test]
fn a_run_that_had_begun_and_of_which_nothing_is_found_ended_unknown() {
    let mut next = Rig::up("").next_worker();
    next.begin(run_wanted());
    next.until(0);
    assert!(next.said().ends_with("kill 1"));
    let failure = next.attendance.status().unwrap().last_failure.as_ref();
    let reason = Reason::Exit(ExitStatus::Unknown);
    assert_eq!(failure.unwrap().reason, reason);
}

#[test]
fn a_run_that_goes_on_stays_ready_unless_nobody_watched_it_for_longer_than_the_grace() {
    for (alone_s, stays) in [(89, true), (91, false)] {
        let mut rig = Rig::up("");
        rig.until(200_000);
        let mut next = rig.next_worker();
        next.begin(Beginning {
            found: Found::Begun {
                alone_since: Some(at(200_000 - alone_s * 1_000)),
            },
            ..run_wanted()
        });
        assert_eq!(
            next.attendance.status().unwrap().ready,
            stays,
            "{alone_s} s"
        );
        let said = next.said();
        assert!(said.contains("tell") && !said.contains("clear"), "{said}");
    }
}

/// On a full disk a worker restarted its service five times and could write none of it down; it was killed, and the next
/// one took up run 1. What that told, its end included, was older than run 6 for a controller that had heard of that.
#[test]
fn what_follows_runs_that_nobody_wrote_down_is_newer_than_all_that_was_told_of_them() {
    let rig = Rig::up("");
    let told = rig.attendance.status().unwrap().seq;
    let mut next = rig.next_worker();
    next.begin(Beginning {
        unrecorded: 5,
        ..run_wanted()
    });
    let status = next.attendance.status().unwrap();
    assert_eq!((status.run, status.ready), (Run(6), false));
    assert!(status.seq > told + 5_000_000, "{status:?}");
    // Nobody knows how the last of them ended.
    let failure = status.last_failure.as_ref().unwrap();
    assert_eq!(
        (failure.run, failure.exit),
        (Run(6), Some(ExitStatus::Unknown))
    );
    next.empties();
    next.until(next.at.as_millis() + 5_000);
    next.started();
    assert!(next.said().contains("spawn 7"), "{}", next.said());

    // The same where the first record could not be written, and where it was to be stopped.
    let mut first = Rig::new("");
    first.begin(Beginning {
        unrecorded: 2,
        ..run_wanted()
    });
    assert_eq!(first.attendance.run(), Run(3));
    let mut stopped = rig.next_worker();
    stopped.begin(Beginning {
        unrecorded: 5,
        want: Want::Stop,
        ..run_wanted()
    });
    stopped.empties();
    let status = stopped.attendance.status().unwrap();
    assert!(status.has_ended() && status.run == Run(6), "{status:?}");
}

#[test]
fn what_follows_statuses_that_could_not_be_written_down_is_newer_than_they_were() {
    let rig = Rig::up("");
    let mut next = rig.next_worker();
    next.begin(Beginning {
        is_behind: true,
        found: Found::Begun { alone_since: None },
        ..run_wanted()
    });
    let (old, new) = (rig.attendance.status(), next.attendance.status());
    let (old, new) = (old.unwrap(), new.unwrap());
    assert_eq!((new.run, &new.state), (old.run, &old.state));
    assert!(new.seq >= old.seq + 1_000_000, "{new:?}");
}

#[test]
fn what_is_over_does_not_begin_again_and_tells_its_end() {
    for before in [Rig::up(""), Rig::new("")] {
        let record = before.attendance.record().clone().over();
        let mut next = Rig::of(record, 100_000, Manner::default());
        next.begin(run_wanted());
        next.until(200_000);
        let said = next.said();
        assert!(!said.contains("clear") && !said.contains("spawn"), "{said}");
        assert!(next.attendance.status().unwrap().has_ended(), "{said}");
    }
}

#[test]
fn a_record_of_another_boot_ends_unknown_and_an_end_stays_what_it_was() {
    let mut rig = Rig::up("");
    let lost = rig.attendance.record().clone().in_boot("another");
    assert!(lost.is_final());
    rig.order(Order::Stop { grace: None });
    rig.exits(0);
    rig.empties();
    let ended = rig.attendance.record().clone();
    assert_eq!(ended.clone().in_boot("another"), ended);
}

/// The record as the first version wrote it: without what came later.
#[test]
fn the_record_of_an_older_worker_is_taken_over() {
    let text = include_str!("record_of_first_version.json");
    let record: Record = serde_json::from_str(text).unwrap();
    assert!(!record.is_address_seen());
    assert_eq!((record.leaving(), record.began()), (None, at(0)));
    let mut rig = Rig::of(record, 100_000, Manner::default());
    assert!(rig.attendance.takes_over());
    rig.begin(Beginning {
        found: Found::Begun { alone_since: None },
        ..run_wanted()
    });
    assert_eq!(rig.said(), "write; tell []");
    let status = rig.attendance.status().unwrap();
    assert_eq!(
        (status.ready, status.pid, status.run),
        (true, Some(4001), Run(1))
    );
}

#[test]
fn what_is_written_down_is_read_back_as_it_was() {
    let mut rig = Rig::up("");
    rig.order(Order::Leave {
        why: Leaving::Shutdown,
    });
    rig.exits(3);
    let record = rig.attendance.record();
    let text = serde_json::to_string(record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), *record);
}

// Orders.

#[test]
fn a_restart_by_the_user_is_acted_on_once() {
    let mut rig = Rig::up("");
    rig.until(5_000);
    let want = Order::Want {
        want: Want::Run,
        restart_no: 1,
    };
    rig.order(want.clone());
    assert!(rig.said().contains("term 1"));
    rig.order(want);
    assert_eq!(rig.said(), "answer 7 ");
    assert_eq!(rig.attendance.status().unwrap().restart_no, 1);
}

#[test]
fn orders_to_one_that_ended_or_is_ending_are_refused_with_the_reason() {
    let mut rig = Rig::up("");
    rig.order(Order::Stop { grace: None });
    rig.said.clear();
    rig.order(Order::Restart);
    assert_eq!(rig.said(), "answer 7 it was told to stop");
    rig.exits(0);
    rig.empties();
    rig.said.clear();
    rig.order(Order::Restart);
    rig.order(Order::Stop { grace: None });
    assert_eq!(
        rig.said(),
        "answer 7 it has ended; a new incarnation begins again; answer 7 it has ended"
    );
}

#[test]
fn hurry_waits_for_neither_drain_nor_grace() {
    let mut rig = Rig::up("[stop]\ndrain = \"30s\"\ngrace = \"30s\"");
    rig.until(5_000);
    rig.order(Order::Stop { grace: None });
    assert!(!rig.said().contains("term"));
    rig.order(Order::Hurry);
    assert!(rig.said().contains("kill 1"));
}

#[test]
fn an_address_that_is_told_anew_is_written_down_and_looked_for_again() {
    let mut rig = Rig::up("");
    rig.attendance.saw_address();
    let told = |address: [u8; 4]| Order::Address {
        address: address.into(),
        ports: BTreeMap::from([("http".parse().unwrap(), [10, 9, 0, 1].into())]),
    };
    rig.order(told([10, 0, 0, 1]));
    assert_eq!(rig.said(), "write; answer 7 ");
    assert!(rig.attendance.record().is_address_seen());
    rig.order(told([10, 0, 0, 1]));
    assert_eq!(rig.said(), "answer 7 ");
    rig.order(told([10, 0, 0, 2]));
    assert_eq!(rig.said(), "write; answer 7 ");
    assert!(!rig.attendance.record().is_address_seen());
}

// The end.

#[test]
fn an_attendance_ends_when_the_controller_knows_and_says_how_the_newest_run_ended() {
    let mut rig = Rig::up("");
    rig.order(Order::Want {
        want: Want::Forget,
        restart_no: 0,
    });
    assert_eq!(rig.attendance.ended(), None, "it still runs");
    rig.exits(3);
    rig.empties();
    let ended = Ended::Forgotten(Some(ExitStatus::Code(3)));
    assert_eq!(rig.attendance.ended(), Some(ended));
}

#[test]
fn it_ends_with_its_replica_or_its_lifeline_where_nobody_else_has_to_know() {
    let manner = Manner {
        ends_with_replica: true,
        ..Manner::default()
    };
    let mut alone = Rig::of(Record::new(machine(""), standing()), 0, manner);
    let mut bound = Rig::new("");
    for rig in [&mut alone, &mut bound] {
        rig.begin(run_wanted());
        rig.started();
    }
    alone.order(Order::Stop { grace: None });
    bound.turn(Happened {
        lifeline_ended: true,
        ..Happened::default()
    });
    assert!(bound.said().contains("term 1"));
    for rig in [&mut alone, &mut bound] {
        assert_eq!(rig.attendance.ended(), None);
        rig.exits(0);
        rig.empties();
    }
    assert_eq!(alone.attendance.ended(), Some(Ended::Over(Final::Stopped)));
    assert_eq!(bound.attendance.ended(), Some(Ended::LifelineGone));
}

// Cut off: hosts 4.

/// One that ends cut off, on a host that was heard of at `heard_s`; and the state after some more seconds.
fn cut_off(heard_s: &[u64], until_s: u64) -> Rig {
    let manner = Manner {
        ends_cut_off: true,
        ..Manner::default()
    };
    let mut rig = Rig::of(Record::new(machine(""), standing()), 0, manner);
    rig.begin(run_wanted());
    rig.started();
    for second in heard_s {
        rig.until((second * 1_000).saturating_sub(1));
        rig.around.contact = Some(Contact {
            at: at(second * 1_000),
            grace: Duration::from_secs(90),
        });
    }
    rig.until(until_s * 1_000);
    rig
}

#[test]
fn a_service_ends_once_its_host_was_not_heard_of_for_the_grace_and_says_why() {
    let mut rig = cut_off(&[0, 5, 10, 100], 189);
    assert_eq!(*rig.state(), State::Up);
    rig.said.clear();
    rig.until(190_000);
    assert!(rig.said().contains("term 1"));
    rig.exits(0);
    rig.empties();
    assert_eq!(*rig.state(), State::Final(Final::Left(Leaving::CutOff)));
    let why = "stopped: cut off from the controller for longer than the grace";
    let told = rig.attendance.status().unwrap().not_ready_reason.as_deref();
    assert_eq!(told, Some(why));
}

#[test]
fn a_host_that_is_heard_of_within_the_grace_or_of_which_nobody_notes_it_ends_nothing() {
    assert_eq!(*cut_off(&[0, 89, 178, 267], 300).state(), State::Up);
    assert_eq!(*cut_off(&[], 300).state(), State::Up);
}

#[test]
fn what_was_told_to_end_before_is_not_called_cut_off() {
    let mut rig = cut_off(&[0], 89);
    rig.order(Order::Want {
        want: Want::Stop,
        restart_no: 0,
    });
    rig.until(91_000);
    rig.exits(0);
    rig.empties();
    assert_eq!(*rig.state(), State::Final(Final::Stopped));
}
