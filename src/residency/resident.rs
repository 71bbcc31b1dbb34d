//! One incarnation that has a folder on this host.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::identity::{Incarnation, ServiceName};
use crate::supervision::{State, Status};

use super::action::Action;

/// One incarnation by name: what a host knows of it without the controller's numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaName {
    /// Whose copy.
    pub service: ServiceName,
    /// Which copy.
    pub index: u32,
    /// Which placement.
    pub incarnation: Incarnation,
}

impl ReplicaName {
    /// What all incarnations of one copy share.
    #[must_use]
    pub const fn copy(&self) -> (&ServiceName, u32) {
        (&self.service, self.index)
    }
}

impl fmt::Display for ReplicaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{} (incarnation {})",
            self.service, self.index, self.incarnation
        )
    }
}

/// What is wanted of a placed replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Want {
    /// Keep it running.
    Run,
    /// Unpublished; stop it after its drain time.
    Stop,
    /// It ended and the controller knows: the host may forget it.
    Forget,
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// What is wanted.
    pub want: Want,
    /// A number above the one acted on is a restart by the user.
    pub restart_no: u64,
}

/// What a host knows of one incarnation that has a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Whether somebody watches it.
    pub life: Life,
    /// What its living worker acknowledged; `None` if that is not known.
    pub told: Option<Told>,
    /// The restart by the user that its assignment carries.
    pub restart_no: u64,
    /// Its newest known status.
    pub status: Option<Status>,
    /// Whether the controller acknowledged the final status from this host's agent.
    pub reported: bool,
}

/// Whether somebody watches an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its worker lives, by boot, process number and start time.
    Watched,
    /// Its worker is gone; its service may still run.
    Orphaned,
    /// It was left by an earlier boot: nothing of it runs.
    Rebooted,
    /// It ended and the controller knows; only logs are left.
    Ended,
}

impl Resident {
    /// Whether nothing of its service runs any more.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| matches!(status.state, State::Final(_)))
    }

    /// Whether a process of it may be there: its worker or its service.
    #[must_use]
    pub fn may_live(&self) -> bool {
        match self.life {
            Life::Watched => true,
            Life::Orphaned => !self.is_final(),
            Life::Rebooted | Life::Ended => false,
        }
    }

    /// What to do about it if this is wanted of it; `None`: the wanted set does not name it.
    pub(super) fn difference(
        &self,
        name: ReplicaName,
        wanted: Option<Told>,
        actions: &mut Vec<Action>,
    ) {
        match self.life {
            Life::Watched => {
                if let Some(told) = wanted.filter(|told| self.told != Some(*told)) {
                    actions.push(Action::Tell { name, told });
                }
            }
            Life::Orphaned if !self.is_final() => actions.push(Action::TakeOver {
                name,
                // The service may run although it may be forgotten; only a worker can end it.
                told: wanted.map(|told| Told {
                    want: told.want.min(Want::Stop),
                    ..told
                }),
            }),
            Life::Orphaned => match wanted.map(|told| told.want) {
                Some(Want::Forget) => actions.push(Action::End { name }),
                _ if !self.reported => actions.push(Action::Report { name }),
                // The controller has the final status and will say that it may be forgotten.
                Some(Want::Run | Want::Stop) => {}
                None => actions.push(Action::End { name }),
            },
            // The new boot id told the controller that every run ended.
            Life::Rebooted => actions.push(Action::End { name }),
            Life::Ended => {
                // A controller that lost the word of this end waits for it.
                let waited_for = wanted.is_some_and(|told| told.want != Want::Forget);
                if waited_for && self.is_final() && !self.reported {
                    actions.push(Action::Report { name });
                }
            }
        }
    }

    /// What to do about it because a newer incarnation is to run and the controller says nothing else of
    /// this one: stop it, tell its end, let it go.
    pub(super) fn make_way(&self, name: ReplicaName, actions: &mut Vec<Action>) {
        if self.life != Life::Watched {
            let stop = self.told_to(Want::Stop);
            // Without a worker it goes the way of any that is to stop, or, once final, of one that is not named.
            return self.difference(name, Some(stop).filter(|_| !self.is_final()), actions);
        }
        let next = match (self.is_final(), self.reported) {
            (false, _) => Want::Stop,
            (true, false) => return actions.push(Action::Report { name }),
            (true, true) => Want::Forget,
        };
        let told = self.told_to(next);
        actions.push(if self.told == Some(told) {
            Action::Ask { name }
        } else {
            Action::Tell { name, told }
        });
    }

    const fn told_to(&self, want: Want) -> Told {
        Told {
            want,
            restart_no: self.restart_no,
        }
    }
}
