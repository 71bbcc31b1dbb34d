//! Words of replicas that arrive late, or are numbered by who did not know the newest.

use crate::identity::Run;
use crate::supervision::{Final, State};

use super::rig::{Rig, name, web};
use super::{Command, Input};

fn running() -> Rig {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig
}

fn stop() -> Command {
    Command::Stop {
        service: name("web"),
    }
}

/// A worker sent its status twice, and the second copy came in after the end: the host was told to stop what had ended
/// there and was never told to forget it, and nothing else of the copy ever began there.
#[test]
fn a_word_from_before_the_end_that_arrives_after_it_changes_nothing() {
    let mut rig = running();
    rig.ask(stop()).unwrap();
    let late = rig.report("web", 0, |status| status.state = State::Stopping);
    rig.tell(Input::Status(late.clone()));
    rig.ends("web", 0, Final::Stopped);
    rig.ask(Command::Start {
        service: name("web"),
    })
    .unwrap();
    let orders = rig.orders("n1");
    assert_eq!(orders.len(), 2, "{orders:?}");
    rig.tell(Input::Status(late.clone()));
    assert_eq!(rig.orders("n1"), orders);

    // What is told of it after its end is another thing: it is to end.
    let mut anew = late;
    anew.status.run = Run(anew.status.run.0 + 1);
    rig.tell(Input::Status(anew));
    assert_ne!(rig.orders("n1"), orders);
}

/// A host's disk was full, so that its worker could not write its newest runs down; the worker died, and who ended the
/// replica counted on from what was written. The end was older than what the controller had heard, which acknowledged it
/// and waited for it for ever.
#[test]
fn an_end_is_believed_whatever_its_number() {
    let mut rig = running();
    rig.status("web", 0, |status| {
        status.run = Run(6);
        status.seq += 20;
    });
    rig.ask(stop()).unwrap();
    let end = rig.report("web", 0, |status| {
        status.run = Run(2);
        status.seq = 7;
        status.ready = false;
        status.state = State::Final(Final::Stopped);
    });
    let late = rig.report("web", 0, |status| {
        status.seq -= 1;
        status.state = State::Stopping;
    });
    rig.tell(Input::Status(end));
    assert_eq!(rig.states("web"), ["stopped"]);
    // What was told before it is older nevertheless.
    let orders = rig.orders("n1");
    rig.tell(Input::Status(late));
    assert_eq!(rig.orders("n1"), orders);
}
