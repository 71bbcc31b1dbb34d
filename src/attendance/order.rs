//! What a worker is told to do, and what of it can be done.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::port::PortName;
use crate::residency::Want;
use crate::supervision::{Effect, Event, Leaving};
use crate::time::Now;

use super::turn::Attendance;

/// What a worker is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// What is wanted now; idempotent.
    Want {
        /// Run or stop; `Forget` after a final status: the controller knows.
        want: Want,
        /// Above the one acted on: restart.
        restart_no: u64,
    },
    /// Where clients are sent now; takes effect at the next start and for probes.
    Address {
        /// The host's published address.
        address: IpAddr,
        /// Those of ports that name a network; what was told of a port before stands where it is left out.
        ports: BTreeMap<PortName, IpAddr>,
    },
    /// Stop, and wait no longer: what is left of drain and grace is skipped.
    Hurry,
    /// The end, within this time rather than the profile's; a later one can only shorten it.
    Stop {
        /// From now until the group is killed; `None`: the profile's.
        grace: Option<Duration>,
    },
    /// The host ends the replica by itself: a stop by the profile's rule, told as what it is.
    Leave {
        /// Why.
        why: Leaving,
    },
    /// One restart, now.
    Restart,
    /// Only tell the newest status.
    Tell,
}

impl Attendance {
    /// Does what is said; gives why not, where it cannot be done.
    pub(super) fn obey(
        &mut self,
        now: Now,
        order: Order,
        effects: &mut Vec<Effect>,
    ) -> Option<String> {
        match order {
            Order::Stop { grace } => {
                if self.record.is_final() {
                    return Some("it has ended".into());
                }
                if grace.is_some() {
                    self.event(now, Event::Stop { grace }, effects);
                } else {
                    self.stop(now, effects);
                }
            }
            Order::Restart => {
                if self.record.is_final() {
                    return Some("it has ended; a new incarnation begins again".into());
                }
                if self.record.machine.is_stop_wanted() {
                    return Some("it was told to stop".into());
                }
                self.record.restart_no += 1;
                self.event(now, Event::UserRestart, effects);
            }
            Order::Leave { why } => self.leave(why, now, effects),
            Order::Tell => {}
            Order::Hurry => {
                let grace = Some(Duration::ZERO);
                self.event(now, Event::Stop { grace }, effects);
                // The drain, which that leaves alone, is skipped too.
                if !self.record.is_final() {
                    let run = self.record.machine.run();
                    effects.push(Effect::KillGroup { run });
                }
            }
            Order::Address { address, ports } => self.learn_addresses(address, ports),
            Order::Want { want, restart_no } => self.want(now, want, restart_no, effects),
        }
        None
    }

    pub(super) fn want(
        &mut self,
        now: Now,
        want: Want,
        restart_no: u64,
        effects: &mut Vec<Effect>,
    ) {
        match want {
            Want::Run => {
                if restart_no > self.record.restart_no {
                    self.record.restart_no = restart_no;
                    self.event(now, Event::UserRestart, effects);
                }
            }
            Want::Stop => self.stop(now, effects),
            Want::Forget => {
                // The controller has given its ports away, so nothing of it may go on.
                self.stop(now, effects);
                self.forget = true;
            }
        }
    }

    /// Repeating a stop would only make its grace shorter in words; it is one stop.
    pub(super) fn stop(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.record.machine.is_stop_wanted() && !self.record.is_final() {
            self.event(now, Event::Stop { grace: None }, effects);
        }
    }

    fn learn_addresses(&mut self, address: IpAddr, ports: BTreeMap<PortName, IpAddr>) {
        let known = &mut self.record.port_addresses;
        for (port, address) in ports {
            self.changed |= known.insert(port, address) != Some(address);
        }
        if address != self.record.host_address {
            self.changed = true;
            self.record.host_address = address;
            self.record.address_seen = false;
        }
    }
}
