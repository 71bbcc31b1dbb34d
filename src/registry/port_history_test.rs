//! Who had which port of which host, and when.

use std::time::Duration;

use crate::rights::{Caller, Rights};
use crate::supervision::Final;
use crate::time::WallClock;

use super::rig::{Rig, alice, caller, exit, name, profile, web, with_port};
use super::{Attachment, Command, HistoryQuestion, PortHistory, TenureView, tables};

fn admin() -> Caller {
    caller("root").with_rights(Rights::ADMIN)
}

fn history(rig: &Rig, reader: &Caller, asked: HistoryQuestion) -> PortHistory {
    let host = "n1".parse().unwrap();
    rig.registry.port_history(reader, &host, &asked).unwrap()
}

fn all(rig: &Rig) -> Vec<TenureView> {
    history(rig, &admin(), HistoryQuestion::default()).tenures
}

fn at(moment: WallClock) -> HistoryQuestion {
    HistoryQuestion {
        at: Some(moment),
        ..HistoryQuestion::default()
    }
}

fn stop(rig: &mut Rig, service: &str) {
    let stop = Command::Stop {
        service: name(service),
    };
    rig.ask(stop).unwrap();
    rig.ends(service, 0, Final::Stopped);
}

/// One number that two services have one after the other: `a` for a minute, and after a minute of nobody `b`.
fn two_tenants() -> (Rig, [WallClock; 4]) {
    let mut rig = Rig::new();
    rig.join("n1");
    let minute = Duration::from_secs(60);
    rig.submit(&with_port("a", 1, "7000")).unwrap();
    let begun = rig.now.wall;
    rig.pass(minute);
    stop(&mut rig, "a");
    let ended = rig.now.wall;
    rig.pass(2 * minute);
    rig.submit(&with_port("b", 1, "7000")).unwrap();
    let second = rig.now.wall;
    rig.pass(minute);
    let now = rig.now.wall;
    (rig, [begun, ended, second, now])
}

#[test]
fn who_had_a_number_is_known_by_its_moment() {
    let (rig, [begun, ended, second, now]) = two_tenants();
    let who = |moment| -> Vec<String> {
        let asked = HistoryQuestion {
            port: Some(7000.try_into().unwrap()),
            ..at(moment)
        };
        let found = history(&rig, &admin(), asked).tenures;
        found
            .into_iter()
            .map(|it| it.service.unwrap().to_string())
            .collect()
    };
    assert_eq!(who(begun.before(Duration::from_millis(1))), [""; 0]);
    assert_eq!(who(begun), ["a.alice"]);
    assert_eq!(who(ended), ["a.alice"]);
    assert_eq!(who(second.before(Duration::from_secs(1))), [""; 0]);
    assert_eq!(who(second), ["b.alice"]);
    assert_eq!(who(now), ["b.alice"]);
    let [first, last] = &all(&rig)[..] else {
        panic!("{:?}", all(&rig))
    };
    assert_eq!((first.from, first.until), (begun, Some(ended)));
    assert_eq!(first.how.as_deref(), Some("stopped by alice"));
    assert_eq!(
        (first.user.as_deref(), first.uid),
        (Some("alice"), Some(1000))
    );
    assert_eq!((last.from, last.until), (second, None));
    let since = HistoryQuestion {
        since: Some(second),
        ..HistoryQuestion::default()
    };
    assert_eq!(
        history(&rig, &admin(), since).tenures,
        std::slice::from_ref(last)
    );
    let other = HistoryQuestion {
        port: Some(7001.try_into().unwrap()),
        ..HistoryQuestion::default()
    };
    assert!(history(&rig, &admin(), other).tenures.is_empty());
}

#[test]
fn it_outlives_the_service_and_a_start_and_only_the_ends_of_one_s_own_are_told_of_what_is_deleted()
{
    let (mut rig, _) = two_tenants();
    let a = name("a");
    rig.ask(Command::Delete { service: a }).unwrap();
    let before = all(&rig);
    let rig = rig.restart();
    assert_eq!(all(&rig), before);
    assert_eq!(before[0].service, Some(name("a")));
    let mine = history(&rig, &alice(), HistoryQuestion::default());
    assert_eq!(mine.tenures, before);
    // Somebody else sees that the number was had, and nothing of whom.
    let others = history(&rig, &caller("bob"), HistoryQuestion::default());
    for (seen, whole) in others.tenures.iter().zip(&before) {
        let hidden = TenureView {
            numbers: whole.numbers,
            protocol: whole.protocol,
            from: whole.from,
            until: whole.until,
            service: None,
            replica: None,
            incarnation: None,
            name: None,
            job: None,
            user: None,
            uid: None,
            how: None,
        };
        assert_eq!(*seen, hidden);
    }
    let unknown = "n9".parse().unwrap();
    let asked = HistoryQuestion::default();
    assert_eq!(rig.registry.port_history(&admin(), &unknown, &asked), None);
}

#[test]
fn a_name_that_is_another_s_by_now_tells_nothing_of_who_had_it_before() {
    let (mut rig, _) = two_tenants();
    rig.ask(Command::Delete { service: name("a") }).unwrap();
    let open = format!("visibility = \"cluster\"\n{}", web("a", 1));
    rig.submit(&open).unwrap();
    let seen = history(&rig, &caller("bob"), HistoryQuestion::default()).tenures;
    let named: Vec<_> = seen.iter().map(|it| it.service.is_some()).collect();
    assert_eq!(named, [false, false, true], "{seen:?}");
}

#[test]
fn a_grant_that_was_not_stored_was_none_and_one_that_was_made_again_is_one() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.pass(Duration::from_secs(2));
    rig.store.failing_commits = 1;
    rig.submit(&web("web", 1)).unwrap_err();
    assert!(all(&rig).is_empty());
    rig.submit(&web("web", 1)).unwrap();
    assert_eq!(all(&rig).len(), 1);
    // Its end is refused, and decided again.
    rig.store.failing_commits = 1;
    rig.ends("web", 0, Final::Failed(exit(3)));
    assert_eq!(all(&rig)[0].until, None);
    rig.pass(Duration::from_secs(5));
    let tenures = all(&rig);
    assert_eq!(tenures.len(), 1, "{tenures:?}");
    assert!(tenures[0].until.is_some());
    assert!(tenures[0].how.as_ref().unwrap().contains("exit 3"));
}

#[test]
fn a_grant_is_no_history_before_it_is_durable() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.pass(Duration::from_secs(2));
    rig.slow = true;
    rig.ask_later(&alice(), super::rig::submission(&web("web", 1), false));
    rig.settle();
    assert!(all(&rig).is_empty());
    rig.land();
    assert_eq!(all(&rig).len(), 1);
}

#[test]
fn a_job_of_another_scheduler_is_named() {
    let mut rig = Rig::new();
    rig.join("n1");
    let profile = profile(&web("web", 1));
    let attachment = Attachment {
        service: name("web"),
        profile,
        source: None,
        host: "n1".parse().unwrap(),
        index: None,
        key: "k".into(),
        job: Some("slurm 4711".into()),
    };
    rig.ask(Command::Attach(Box::new(attachment))).unwrap();
    rig.ends("web", 0, Final::Failed(exit(1)));
    let tenure = all(&rig).remove(0);
    assert_eq!(tenure.job.as_deref(), Some("slurm 4711"));
    assert!(tenure.until.is_some());
}

#[test]
fn of_a_store_of_an_earlier_version_it_is_known_who_has_ports_now() {
    let (mut rig, [_, _, second, _]) = two_tenants();
    rig.pass(Duration::from_secs(2));
    rig.store_table(tables::PORT_HISTORY).clear();
    let rig = rig.restart();
    let tenures = all(&rig);
    assert_eq!(tenures.len(), 1);
    assert_eq!(
        (tenures[0].from, &tenures[0].service),
        (second, &Some(name("b")))
    );
}

#[test]
fn what_ended_90_days_ago_is_forgotten_and_what_is_held_is_not() {
    let (mut rig, [_, _, second, _]) = two_tenants();
    for _day in 0..89 {
        rig.pass(Duration::from_secs(86_400));
    }
    assert_eq!(all(&rig).len(), 2);
    rig.pass(Duration::from_secs(2 * 86_400));
    let left = all(&rig);
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].from, left[0].until), (second, None));
    rig.pass(Duration::from_secs(2));
    assert_eq!(all(&rig.restart()), left);
}

#[test]
fn a_host_with_very_many_placements_forgets_the_earliest_that_ended() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("kept", 1)).unwrap();
    let first = all(&rig).remove(0);
    rig.submit(&web("web", 20)).unwrap();
    for _ in 0..260 {
        let service = name("web");
        rig.ask(Command::Stop { service }).unwrap();
        (0..20).for_each(|index| rig.ends("web", index, Final::Stopped));
        let service = name("web");
        rig.ask(Command::Start { service }).unwrap();
        rig.pass(Duration::from_millis(10));
    }
    let known = rig.registry.truth.history.len();
    assert!((4_000..=5_064).contains(&known), "{known}");
    let host = "n1".parse().unwrap();
    let told = rig
        .registry
        .port_history(&admin(), &host, &HistoryQuestion::default());
    let told = told.unwrap();
    assert_eq!(told.tenures.len(), 1000);
    // Beside what is over there is what the two services have now.
    assert_eq!(usize::try_from(told.left_out), Ok(known + 21 - 1000));
    // What is held stays, however early it began.
    let asked = at(first.from);
    assert_eq!(history(&rig, &admin(), asked).tenures, [first]);
}
