//! What the owner of a service may rely on: the plain meaning of the acknowledged commands, and of one in doubt.

use std::collections::BTreeSet;

use serde_json::Value;

/// A command about one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Submit(u32),
    Scale(u32),
    Start,
    Stop,
    Kill(u32),
    Delete,
}

/// A service as its owner would describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) running: bool,
    pub(super) copies: u32,
    /// Killed since the last start.
    pub(super) empty: BTreeSet<u32>,
}

/// All that the service may be: more than one while a command is in doubt.
#[derive(Clone, Debug)]
pub(super) struct Account(Vec<Option<Wanted>>);

impl Account {
    pub(super) fn empty() -> Self {
        Self(vec![None])
    }

    /// The command was acknowledged.
    pub(super) fn done(&mut self, verb: Verb) {
        for state in &mut self.0 {
            *state = after(state.as_ref(), verb);
        }
        self.0.dedup();
    }

    /// It may have been carried out.
    pub(super) fn doubted(&mut self, verb: Verb) {
        let others: Vec<_> = self.0.iter().map(|it| after(it.as_ref(), verb)).collect();
        for other in others {
            if !self.0.contains(&other) {
                self.0.push(other);
            }
        }
    }

    /// Holds it against what the controller shows (`None`: it knows no such service). Gives whether a doubt was solved
    /// and the command in doubt had been carried out.
    pub(super) fn settle(&mut self, shown: Option<&Value>) -> Result<Option<bool>, String> {
        let doubted = self.0.len() > 1;
        let matching = |state: &&Option<Wanted>| match (state, shown) {
            (None, None) => true,
            (Some(wanted), Some(shown)) => wanted.is_shown(shown),
            _ => false,
        };
        let found = self.0.iter().rposition(|state| matching(&state));
        let Some(found) = found else {
            return Err(format!("{:?} is not what is shown: {shown:?}", self.0));
        };
        self.0 = vec![self.0[found].clone()];
        Ok(doubted.then_some(found > 0))
    }

    /// What it is, as far as that is not in doubt.
    pub(super) fn sure(&self) -> Option<&Wanted> {
        match self.0.as_slice() {
            [Some(one)] => Some(one),
            _ => None,
        }
    }
}

fn after(state: Option<&Wanted>, verb: Verb) -> Option<Wanted> {
    let mut wanted = match (state, verb) {
        (_, Verb::Delete) => return None,
        (None, Verb::Submit(_)) => Wanted::default(),
        (None, _) => return None,
        (Some(wanted), _) => wanted.clone(),
    };
    match verb {
        Verb::Submit(copies) => {
            wanted.running = true;
            wanted.empty.clear();
            wanted.copies = copies;
        }
        Verb::Scale(copies) => {
            wanted.copies = copies;
            wanted.empty.retain(|index| *index < copies);
        }
        Verb::Start => {
            wanted.running = true;
            wanted.empty.clear();
        }
        Verb::Stop => wanted.running = false,
        Verb::Kill(index) => {
            wanted.empty.insert(index);
        }
        Verb::Delete => {}
    }
    Some(wanted)
}

impl Wanted {
    fn is_shown(&self, shown: &Value) -> bool {
        let replicas = shown["replicas"].as_array().into_iter().flatten();
        let state = |index: u32| {
            let mut replicas = replicas.clone();
            replicas
                .find(|it| it["replica"] == index)
                .and_then(|it| it["state"].as_str())
        };
        let is_as_wanted = |index: u32| match (state(index), self.empty.contains(&index)) {
            (Some("killed"), empty) => empty,
            (Some("stopping"), _) => true,
            // It was never begun, which none of the verbs leaves behind.
            (None, _) => false,
            (Some(state), empty) => !empty && state != "stopped",
        };
        shown["desired"] == self.copies
            && (shown["state"] == "stopped") != self.running
            && (!self.running || (0..self.copies).all(is_as_wanted))
    }
}

#[test]
fn a_command_in_doubt_is_either_done_or_not_and_nothing_else() {
    let shown = |desired: u32, state: &str| serde_json::json!({ "desired": desired, "state": state, "replicas": [] });
    let mut account = Account::empty();
    account.done(Verb::Submit(0));
    account.doubted(Verb::Scale(3));
    account.clone().settle(None).unwrap_err();
    account
        .clone()
        .settle(Some(&shown(2, "running")))
        .unwrap_err();
    assert_eq!(
        account.clone().settle(Some(&shown(0, "running"))),
        Ok(Some(false))
    );
    account.done(Verb::Stop);
    assert_eq!(account.settle(Some(&shown(3, "stopped"))), Ok(Some(true)));
    assert_eq!(account.settle(Some(&shown(3, "stopped"))), Ok(None));
    account.settle(Some(&shown(3, "running"))).unwrap_err();
}
