//! What the commands mean, as plainly as it can be said: which copies of which services are wanted.

use std::collections::{BTreeMap, BTreeSet};

use crate::residency::ReplicaName;

/// A command as far as it says what is wanted.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    Submit {
        replicas: u32,
        shape: usize,
        replace: bool,
    },
    Scale(u32),
    Start,
    Stop,
    Kill(u32),
    Delete,
    Attach,
    /// It changes nothing of what is wanted.
    Nothing,
}

/// One service, as its owner would describe it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Jobs of another scheduler bring its copies along: they are none of ours.
    pub(super) attached: bool,
    pub(super) running: bool,
    pub(super) copies: u32,
    shape: usize,
    /// How many copies the profile says.
    written: u32,
    /// Ended by their owner: nothing runs there.
    pub(super) empty: BTreeSet<u32>,
    /// Ended by themselves: the rules of their restart say what follows, not their owner.
    pub(super) open: BTreeSet<u32>,
}

/// All services by name.
#[derive(Debug, Default)]
pub(super) struct Plain {
    pub(super) services: BTreeMap<usize, Wanted>,
}

impl Plain {
    /// An acknowledged command that changed something. `settled`: every end that happened was heard of before it.
    pub(super) fn apply(&mut self, service: usize, meaning: &Meaning, settled: bool) {
        let is_new = !self.services.contains_key(&service);
        let wanted = self.services.entry(service).or_default();
        match meaning {
            Meaning::Attach => {
                wanted.attached = true;
                wanted.running = true;
            }
            Meaning::Delete => {
                self.services.remove(&service);
            }
            Meaning::Submit {
                replicas,
                shape,
                replace,
            } => {
                if is_new || *shape != wanted.shape {
                    // A roll renews what ended too, unless it meets a failure first.
                    wanted.open.append(&mut wanted.empty);
                    wanted.resize(*replicas);
                    wanted.shape = *shape;
                } else {
                    wanted.run_again(settled);
                    // The profile that is known leaves it as it was scaled since.
                    if *replace || *replicas != wanted.written {
                        wanted.resize(*replicas);
                    }
                }
                wanted.written = *replicas;
                wanted.running = true;
            }
            Meaning::Scale(copies) => wanted.resize(*copies),
            Meaning::Start => {
                wanted.run_again(settled);
                wanted.running = true;
            }
            Meaning::Stop => wanted.running = false,
            Meaning::Kill(index) => {
                wanted.open.remove(index);
                wanted.empty.insert(*index);
            }
            Meaning::Nothing => {}
        }
    }

    /// A copy ended without being told to.
    pub(super) fn ended(&mut self, service: usize, name: &ReplicaName) {
        if let Some(wanted) = self.services.get_mut(&service)
            && !wanted.empty.contains(&name.index)
        {
            wanted.open.insert(name.index);
        }
    }
}

impl Wanted {
    fn resize(&mut self, copies: u32) {
        // What was ended beyond the old number may stand there, or not any more.
        let beyond = self.empty.split_off(&self.copies);
        self.open.extend(beyond);
        self.empty.retain(|index| *index < copies);
        self.open.retain(|index| *index < copies);
        self.copies = copies;
    }

    fn run_again(&mut self, settled: bool) {
        if settled {
            self.open.clear();
        } else {
            // An end on its way may be of one that was just wanted again.
            self.open.extend(&self.empty);
        }
        self.empty.clear();
    }
}
