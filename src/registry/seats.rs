//! Who speaks for a host: one agent at a time, and another one only once the first has been silent.
//!
//! Two agents under one name would tell of two machines in turns, and each would act on what is wanted of the
//! other. Pure and kept in memory: after a start the stored agent of each host has its seat for one more lease.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::HostName;
use crate::time::{Monotonic, Spelled};

/// An agent that cannot be mistaken for another one of the same host name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentIdentity {
    /// A number of the machine, `-` where it has none. Copies of a machine may share it.
    pub machine: String,
    /// New at each boot of the machine.
    pub boot_id: String,
    /// Random, and kept in the agent's state folder.
    pub folder: String,
}

impl AgentIdentity {
    /// The most bytes of the written form.
    pub const MAX: usize = 256;
}

impl fmt::Display for AgentIdentity {
    /// The form that [`AgentIdentity::from_str`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.machine, self.boot_id, self.folder)
    }
}

impl FromStr for AgentIdentity {
    type Err = ParseAgentError;

    fn from_str(text: &str) -> Result<Self, ParseAgentError> {
        let parts: Vec<&str> = text.split('/').take(4).collect();
        let plain = |part: &&str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_graphic());
        match parts[..] {
            [machine, boot_id, folder] if text.len() <= Self::MAX && parts.iter().all(plain) => {
                Ok(Self {
                    machine: machine.to_owned(),
                    boot_id: boot_id.to_owned(),
                    folder: folder.to_owned(),
                })
            }
            _ => Err(ParseAgentError),
        }
    }
}

/// Not the written form of an agent's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no agent: write MACHINE/BOOT/FOLDER, at most {} bytes",
    AgentIdentity::MAX
)]
pub struct ParseAgentError;

/// The agents that speak for hosts, by host.
#[derive(Debug, Default)]
pub struct Seats(BTreeMap<HostName, Seat>);

#[derive(Debug)]
struct Seat {
    agent: AgentIdentity,
    since: Monotonic,
    heard: Monotonic,
    /// It is kept for the stored agent of the host, which was not heard of since this start.
    is_expected: bool,
}

impl Seat {
    const fn taken(agent: AgentIdentity, now: Monotonic) -> Self {
        Self {
            agent,
            since: now,
            heard: now,
            is_expected: false,
        }
    }

    /// Whether `agent` may sit here although another one has sat here.
    fn is_open_to(&self, agent: &AgentIdentity, now: Monotonic) -> bool {
        // Booted while the controller was away, on a single host together with it: no copy that tells in turns.
        let is_booted =
            (&self.agent.machine, &self.agent.folder) == (&agent.machine, &agent.folder);
        now.since(self.heard) >= Seats::HELD_FOR || self.is_expected && is_booted
    }
}

impl Seats {
    /// How long an agent keeps its seat after its last sign of life: four leases.
    pub const HELD_FOR: Duration = Duration::from_secs(20);

    /// Notes a sign of life of `agent` for `host`, which takes the seat if it is free.
    ///
    /// # Errors
    ///
    /// [`SeatTaken`]: another agent has it. Nothing changed.
    pub fn claim(
        &mut self,
        host: &HostName,
        agent: &AgentIdentity,
        now: Monotonic,
    ) -> Result<(), Box<SeatTaken>> {
        match self.0.get_mut(host) {
            Some(seat) if seat.agent == *agent => {
                seat.heard = now;
                seat.is_expected = false;
            }
            Some(seat) if !seat.is_open_to(agent, now) => {
                return Err(Box::new(SeatTaken {
                    host: host.clone(),
                    holder: seat.agent.clone(),
                    asker: agent.clone(),
                    for_ms: whole_ms(now.since(seat.since)),
                    silent_ms: whole_ms(now.since(seat.heard)),
                }));
            }
            _ => {
                self.0.insert(host.clone(), Seat::taken(agent.clone(), now));
            }
        }
        Ok(())
    }

    /// Keeps the seat of `host` for its stored agent, as if it had just been heard of.
    pub fn expect(&mut self, host: HostName, agent: AgentIdentity, now: Monotonic) {
        let seat = Seat {
            is_expected: true,
            ..Seat::taken(agent, now)
        };
        self.0.insert(host, seat);
    }
}

fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Another agent speaks for the host. Nothing was taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "host {host} has another agent, on {} for {} and heard of {} ago; stop that one, or start this one with another --host; \
     the name is free {} after its last sign of life",
    place(holder, asker),
    Spelled(whole_seconds(*for_ms)),
    Spelled(whole_seconds(*silent_ms)),
    Spelled(Seats::HELD_FOR)
)]
pub struct SeatTaken {
    /// The host.
    pub host: HostName,
    /// Who speaks for it.
    pub holder: AgentIdentity,
    /// Who asked to.
    pub asker: AgentIdentity,
    /// For how long the holder has spoken for it.
    pub for_ms: u64,
    /// How long ago it last did.
    pub silent_ms: u64,
}

const fn whole_seconds(ms: u64) -> Duration {
    Duration::from_secs(ms / 1000)
}

/// What is different about the holder, most telling first.
fn place(holder: &AgentIdentity, asker: &AgentIdentity) -> String {
    if holder.machine != asker.machine {
        format!("machine {}", holder.machine)
    } else if holder.boot_id != asker.boot_id {
        format!("boot {} of this machine or of a copy of it", holder.boot_id)
    } else {
        "this machine with another state folder".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(text: &str) -> AgentIdentity {
        text.parse().unwrap()
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_millis(seconds * 1000)
    }

    #[test]
    fn a_second_agent_of_a_name_is_refused_until_the_first_is_silent() {
        let mut seats = Seats::default();
        let host: HostName = "n1".parse().unwrap();
        let (first, second) = (agent("m1/b1/f1"), agent("m2/b2/f2"));
        seats.claim(&host, &first, at(0)).unwrap();
        seats.claim(&host, &first, at(90)).unwrap();
        let taken = seats.claim(&host, &second, at(95)).unwrap_err();
        assert_eq!(
            taken.to_string(),
            "host n1 has another agent, on machine m1 for 1m35s and heard of 5s ago; stop that one, or start this one \
             with another --host; the name is free 20s after its last sign of life"
        );
        // A refusal is no sign of life, and takes nothing.
        seats.claim(&host, &second, at(109)).unwrap_err();
        seats.claim(&host, &second, at(110)).unwrap();
        seats.claim(&host, &first, at(111)).unwrap_err();
        // Another name is free.
        seats
            .claim(&"n2".parse().unwrap(), &first, at(111))
            .unwrap();
    }

    #[test]
    fn copies_of_a_machine_and_second_folders_are_told_apart() {
        let mut seats = Seats::default();
        let host: HostName = "n1".parse().unwrap();
        seats.claim(&host, &agent("m/b1/f"), at(0)).unwrap();
        let copy = seats.claim(&host, &agent("m/b2/f"), at(1)).unwrap_err();
        assert!(copy.to_string().contains("on boot b1 of"), "{copy}");
        let folder = seats.claim(&host, &agent("m/b1/g"), at(1)).unwrap_err();
        assert!(folder.to_string().contains("another state folder"));
    }

    #[test]
    fn the_stored_agent_of_a_host_is_expected_also_after_a_boot_and_another_one_is_not() {
        let mut seats = Seats::default();
        let host: HostName = "n1".parse().unwrap();
        seats.expect(host.clone(), agent("m/b1/f"), at(0));
        seats.claim(&host, &agent("m2/b2/f"), at(1)).unwrap_err();
        seats.claim(&host, &agent("m/b2/f"), at(1)).unwrap();
        // Heard of, it is kept as any other.
        seats.claim(&host, &agent("m/b1/f"), at(2)).unwrap_err();
    }

    #[test]
    fn the_written_form_is_read_back_and_anything_else_is_refused() {
        let one = agent("0123/4-5/6");
        assert_eq!(agent(&one.to_string()), one);
        let long = format!("m/b/{}", "f".repeat(AgentIdentity::MAX));
        for bad in ["", "a/b", "a/b/c/d", "a//c", "a b/c/d", long.as_str()] {
            assert_eq!(
                bad.parse::<AgentIdentity>(),
                Err(ParseAgentError),
                "{bad:?}"
            );
        }
    }
}
