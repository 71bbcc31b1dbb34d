//! Commands that hold only as long as a service is as the asker knows it.

use super::rig::{Rig, caller, name, submission, web};
use super::{Answer, Command, Precondition, Refusal};

fn tag(rig: &Rig, service: &str) -> String {
    let view = rig.registry.view();
    view.services[&name(service)].definition().to_owned()
}

fn only_if(tags: &[&str], command: Command) -> Command {
    let tags = tags.iter().map(ToString::to_string).collect();
    Command::OnlyIf {
        precondition: Precondition {
            is_there: Some(tags),
            is_absent: false,
        },
        command: Box::new(command),
    }
}

fn only_new(command: Command) -> Command {
    Command::OnlyIf {
        precondition: Precondition {
            is_there: None,
            is_absent: true,
        },
        command: Box::new(command),
    }
}

fn scale(replicas: u32) -> Command {
    let service = name("web");
    Command::Scale { service, replicas }
}

fn present(refused: Result<Answer, Refusal>) -> Option<String> {
    match refused.unwrap_err() {
        Refusal::Changed { tag, .. } => tag,
        other => panic!("{other}"),
    }
}

#[test]
fn of_two_who_read_the_same_only_the_first_changes_it() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    let read = tag(&rig, "web");
    rig.ready("web", 0);
    assert_eq!(tag(&rig, "web"), read, "how a replica fares is no change");
    // Both arrive in one round: the second is held against what the first made.
    let first = rig.ask_later(&super::rig::alice(), only_if(&[&read], scale(3)));
    let second = rig.ask_later(&super::rig::alice(), only_if(&[&read], scale(5)));
    rig.settle();
    assert!(rig.answers.remove(&first).unwrap().is_ok());
    let refused = rig.answers.remove(&second).unwrap();
    assert_eq!(present(refused), Some(tag(&rig, "web")));
    assert_eq!(rig.registry.view().services[&name("web")].desired, 3);
    let now = tag(&rig, "web");
    rig.ask(only_if(&["other", &now], scale(5))).unwrap();
}

#[test]
fn every_change_of_what_is_wanted_has_a_tag_of_its_own() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let mut tags = vec![tag(&rig, "web")];
    let service = || name("web");
    let replaced = web("web", 1).replace("serve", "other");
    for command in [
        scale(2),
        submission(&replaced, true),
        submission(&web("web", 4).replace("serve", "other"), true),
        Command::Stop { service: service() },
    ] {
        rig.ask(command).unwrap();
        tags.push(tag(&rig, "web"));
    }
    let count = tags.len();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), count);
    let again = tag(&rig, "web");
    rig.ask(Command::Start { service: service() }).unwrap();
    rig.ask(Command::Stop { service: service() }).unwrap();
    assert_eq!(tag(&rig, "web"), again, "the same is wanted");
}

#[test]
fn creating_only_refuses_what_is_there_and_matching_what_is_not() {
    let mut rig = Rig::new();
    rig.join("n1");
    let submit = || submission(&web("web", 1), false);
    assert_eq!(present(rig.ask(only_if(&[], submit()))), None);
    rig.ask(only_new(submit())).unwrap();
    assert_eq!(present(rig.ask(only_new(submit()))), Some(tag(&rig, "web")));
    // Unchanged is no change, also for who asks for this very version.
    let now = tag(&rig, "web");
    assert!(!rig.ask(only_if(&[&now], submit())).unwrap().changed);
    assert!(!rig.ask(only_if(&[], submit())).unwrap().changed);
}

#[test]
fn a_condition_tells_nothing_of_what_one_may_not_see_or_manage() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let bob = caller("bob");
    let refused = rig.ask_as(&bob, only_if(&["x"], scale(2))).unwrap_err();
    assert!(
        matches!(refused, Refusal::NoSuchService { .. }),
        "{refused}"
    );
    let refused = rig.ask_as(&bob, only_new(scale(2))).unwrap_err();
    assert!(
        matches!(refused, Refusal::NoSuchService { .. }),
        "{refused}"
    );
    let seen = format!("visibility = \"cluster\"\n{}", web("open", 1));
    rig.submit(&seen).unwrap();
    let service = name("open");
    let stop = only_if(&["x"], Command::Stop { service });
    let refused = rig.ask_as(&bob, stop).unwrap_err();
    assert!(matches!(refused, Refusal::NotAllowed { .. }), "{refused}");
}
