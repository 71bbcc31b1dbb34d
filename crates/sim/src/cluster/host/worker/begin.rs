//! A worker begins: a replica, or with what an earlier worker left of it.

use std::sync::Arc;

use portreeve::attendance::{Attendance, Beginning, Found, Manner, Record, Standing};
use portreeve::profile::OnCutOff;
use portreeve::supervision::Machine;
use portreeve::time::{Monotonic, Now};

use super::super::agenda::Actor;
use super::super::{Due, Host, HostOut, Place, boot_id_of};
use super::around::Around;
use super::{By, Worker};
use crate::cluster::sight::What;

impl Host {
    /// A worker process of the replica starts; what it does first it does at `now`, or a while later where it is slow.
    /// Which of its workers it is.
    pub(crate) fn start_worker(&mut self, now: Monotonic, place: Place) -> u64 {
        let Some(replica) = self.replicas.get_mut(&place) else {
            return 0;
        };
        replica.life += 1;
        let life = replica.life;
        replica.worker = Some(Box::new(Worker::new(life)));
        let begins = std::mem::take(&mut replica.begins).max(now);
        let actor = Actor::Worker(place);
        self.agenda.put(begins, actor, 0, Due::Begins(life));
        life
    }

    /// Its first turn: begins the replica, or takes over what an earlier worker left.
    pub(crate) fn worker_begins(
        &mut self,
        now: Now,
        place: Place,
        life: u64,
        out: &mut Vec<HostOut>,
    ) {
        let boot_id = self.boot_id();
        let seed = self.machine_seed(place);
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Some(worker) = replica.worker.as_ref().filter(|one| one.life == life) else {
            return;
        };
        if worker.halted.is_some() {
            let again = Due::Begins(life);
            // It is looked at when it goes on.
            return replica.waiting.push(again);
        }
        let Some(assigned) = replica.assigned.as_ref() else {
            return;
        };
        let desired = &assigned.desired;
        let assigned_in = boot_id_of(self.no, assigned.boot);
        let found = replica.folder.record();
        let is_new = found.is_none();
        let record = match found {
            Some(record) => record.clone().in_boot(&boot_id),
            None => Record::new(
                Machine::new(desired.profile.supervision.clone(), seed),
                Standing {
                    user: (desired.uid, &desired.user),
                    worker_uid: desired.uid,
                    assigned_in: &assigned_in,
                    boot_id: &boot_id,
                    restart_no: desired.restart_no,
                    host_address: assigned.address,
                    port_addresses: desired.addresses.clone(),
                },
            ),
        };
        let record = replica.folder.truth(record);
        // An earlier worker that could write nothing down went further than the record: that is ended first.
        let recorded = record.machine().run();
        let noted = replica.folder.unwritten();
        let newest = noted.unwrap_or_default().max(replica.processes.run());
        let unrecorded = newest.0.saturating_sub(recorded.0);
        let rest = match unrecorded {
            0 => None,
            _ => self.with_processes(place, |processes, ground| {
                processes.clear(now.mono, processes.next_run(), ground)
            }),
        };
        if let Some(gone) = rest.flatten().filter(|gone| *gone != Some(now.mono)) {
            if let Some(gone) = gone {
                let actor = Actor::Worker(place);
                self.agenda.put(gone, actor, 0, Due::Begins(life));
            }
            return;
        }
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        if unrecorded > 0 {
            replica.processes.forget_runs_after(recorded);
        }
        let Some(desired) = replica
            .assigned
            .as_ref()
            .map(|one| Arc::clone(&one.desired))
        else {
            return;
        };
        let manner = Manner {
            ends_cut_off: desired.profile.on_cut_off == OnCutOff::Stop,
            ends_with_replica: false,
            hands_over: true,
        };
        let mut attendance = Attendance::new(now.mono, record, manner);
        let (found, known) = if attendance.takes_over() && unrecorded == 0 {
            replica.processes.adopt(now.mono, recorded)
        } else {
            (Found::Nothing, Vec::new())
        };
        let beginning = Beginning {
            unrecorded,
            is_behind: noted.is_some(),
            found,
            want: desired.want,
            restart_no: desired.restart_no,
        };
        let stands_before = replica
            .whom
            .is_some_and(|whom| self.strangers.stands_before(whom));
        let mut around = Around {
            place,
            desired: &desired,
            contact: self.contact,
            pace: &mut self.pace,
            listeners: &self.listeners,
            stands_before,
        };
        let mut outputs = std::mem::take(&mut self.outputs);
        attendance.begin(now, beginning, &mut around, &mut outputs);
        let run = attendance.run();
        if let Some(worker) = replica.worker.as_mut() {
            worker.attendance = Some(Box::new(attendance));
        }
        if !is_new {
            self.saw(now.mono, place, run, What::Worker("took over"), out);
        }
        for heard in known {
            let event = self.process_event(heard);
            self.tell_worker(now.mono, place, event);
        }
        self.outputs = outputs;
        self.carry_out(now, place, out);
        let by_hand = self
            .replicas
            .get_mut(&place)
            .map(|replica| std::mem::take(&mut replica.by_hand));
        for order in by_hand.into_iter().flatten() {
            self.order(now.mono, place, order, By::Hand);
        }
    }
}
