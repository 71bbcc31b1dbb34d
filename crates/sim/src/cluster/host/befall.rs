//! What befalls a host from outside.

use portreeve::attendance::Order;
use portreeve::time::Now;

use super::worker::By;
use super::{Host, HostOut, Place, power};
use crate::cluster::act::{HostAct, Whom};
use crate::cluster::sight::What;

impl Host {
    /// Something befalls it; `now` shows its own display clock. [`HostAct::CutOff`], [`HostAct::Rejoin`] and
    /// [`HostAct::ClockJumps`] are the caller's and change nothing here.
    pub(crate) fn act(&mut self, now: Now, act: &HostAct, out: &mut Vec<HostOut>) {
        let at = now.mono;
        match act {
            HostAct::PowerLoss => self.power_off(at, "loses power", out),
            HostAct::Boot if !self.is_up => {
                self.power_on();
                self.saw_host(at, "boots", out);
                self.agent_starts(now, out);
            }
            HostAct::Shutdown if self.is_up => {
                self.saw_host(at, "is shut down", out);
                self.begin_shutdown(at);
                self.agent_closes(now, out);
            }
            HostAct::Boot | HostAct::Shutdown => {}
            HostAct::CutOff { .. } | HostAct::Rejoin | HostAct::ClockJumps(_) => {}
            HostAct::AgentKilled => self.agent_dies(at, "killed", out),
            HostAct::AgentHalted => self.agent_halts(at, out),
            HostAct::AgentContinued => self.agent_continues(now, out),
            HostAct::AgentStarts => self.agent_starts(now, out),
            HostAct::WorkerKilled(whom) => {
                if let Some(place) = self.worker_of(*whom) {
                    self.worker_dies(now, place, "killed", out);
                }
            }
            HostAct::NextWorkerBegins(whom, begins) => {
                let place = self.place_of_whom(*whom);
                if let Some(replica) = place.and_then(|place| self.replicas.get_mut(&place)) {
                    replica.begins = *begins;
                }
            }
            HostAct::WorkerHalted(whom) => {
                if let Some(place) = self.worker_of(*whom) {
                    self.worker_halts(now, place, out);
                }
            }
            HostAct::WorkerContinued(whom) => {
                if let Some(place) = self.worker_of(*whom) {
                    self.worker_continues(now, place, out);
                }
            }
            HostAct::AgentDiesAfter(things) => {
                if let Some(agent) = &mut self.agent {
                    agent.dies_after = Some(*things);
                }
            }
            HostAct::WorkerDiesAfter(whom, things) => {
                let place = self.worker_of(*whom);
                let replica = place.and_then(|place| self.replicas.get_mut(&place));
                if let Some(worker) = replica.and_then(|replica| replica.worker.as_mut()) {
                    worker.dies_after = Some(*things);
                }
            }
            HostAct::ProcessEnds(whom, status) => {
                let place = self.place_of_whom(*whom);
                if let Some(place) = place {
                    self.with_processes(place, |processes, ground| {
                        processes.end_later(at, processes.run(), *status, ground);
                    });
                }
            }
            HostAct::WorkerStop(whom, grace) => {
                let stop = Order::Stop { grace: *grace };
                self.by_hand(now, *whom, "stop", stop, out);
            }
            HostAct::WorkerRestart(whom) => {
                self.by_hand(now, *whom, "restart", Order::Restart, out);
            }
            HostAct::DiskFull(is_full) => {
                self.is_disk_full = *is_full;
                let words = if *is_full {
                    "its disk is full"
                } else {
                    "its disk has room again"
                };
                self.saw_host(at, words, out);
            }
            HostAct::StrangerTakes(port) => {
                self.strangers.come(*port);
                if self.is_up {
                    self.numbers_changed(at);
                }
            }
            HostAct::StrangerLeaves(port) => {
                self.strangers.leave(*port, &mut self.listeners);
                if self.is_up {
                    self.numbers_changed(at);
                }
            }
            HostAct::Heals => self.heals(now, out),
            HostAct::AddressBecomes(address) => {
                self.address = *address;
                self.look_at_addresses(at);
            }
        }
        self.look_after_shutdown(at, out);
    }

    /// Everything is right again.
    fn heals(&mut self, now: Now, out: &mut Vec<HostOut>) {
        self.is_disk_full = false;
        self.strangers.leave_all(&mut self.listeners);
        self.address = Some(power::address_of(self.no));
        if self.is_up {
            let places: Vec<_> = self.replicas.keys().copied().collect();
            for place in places {
                let replica = self.replicas.get_mut(&place);
                if let Some(worker) = replica.and_then(|replica| replica.worker.as_mut()) {
                    worker.dies_after = None;
                    self.worker_continues(now, place, out);
                }
            }
            if let Some(agent) = &mut self.agent {
                agent.dies_after = None;
            }
            self.agent_continues(now, out);
        } else {
            self.power_on();
            self.saw_host(now.mono, "boots", out);
        }
        self.agent_starts(now, out);
        self.look_at_addresses(now.mono);
    }

    fn worker_of(&self, whom: Whom) -> Option<Place> {
        let place = self.place_of_whom(whom)?;
        let replica = self.replicas.get(&place)?;
        replica.worker.as_ref().map(|_| place)
    }

    /// A person orders something at the worker's own socket, and tries until there is a worker.
    fn by_hand(&mut self, now: Now, whom: Whom, words: &str, order: Order, out: &mut Vec<HostOut>) {
        let Some(place) = self.place_of_whom(whom) else {
            return;
        };
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let run = replica.processes.run();
        let hears = replica.worker.as_ref();
        let hears = hears.is_some_and(|worker| worker.attendance.is_some());
        if hears {
            self.order(now.mono, place, order, By::Hand);
        } else {
            replica.by_hand.push(order);
        }
        let what = What::User(words.to_owned());
        self.saw(now.mono, place, run, what, out);
    }
}
