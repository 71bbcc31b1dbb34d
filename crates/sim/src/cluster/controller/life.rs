//! How a controller starts, dies, stands still and goes on.

use std::collections::VecDeque;

use portreeve::commit::Rounds;
use portreeve::registry::{Config, Registry};
use portreeve::time::Now;

use super::super::act::ControllerAct;
use super::super::chance::Chance;
use super::super::desks::Desks;
use super::super::wire::Reply;
use super::{Arrived, ControllerNode, ControllerOut, Outcome, Process, saw};

impl ControllerNode {
    pub(crate) fn act(&mut self, now: Now, act: &ControllerAct, out: &mut Vec<ControllerOut>) {
        match act {
            ControllerAct::Killed => {
                self.starts_again = None;
                self.die(now, "killed", out);
            }
            ControllerAct::Starts if self.process.is_none() => self.start(now, out),
            ControllerAct::Halted => {
                if let Some(process) = &mut self.process
                    && !std::mem::replace(&mut process.is_halted, true)
                {
                    saw(now, "halted", out);
                }
            }
            ControllerAct::Continued => self.go_on(now, out),
            ControllerAct::DiesAfter(effects) => self.dies_after = Some(*effects),
            ControllerAct::DiskFull(full) => {
                self.store.fill(*full);
                let what = ["its disk is not full any more", "its disk is full"];
                saw(now, what[usize::from(*full)], out);
            }
            ControllerAct::DiesInCommit { written } => self.store.kill_in_commit(*written),
            ControllerAct::Backup => {
                self.store.back_up();
                saw(now, "backed up", out);
            }
            ControllerAct::Restore => {
                self.die(now, "stopped", out);
                if self.store.restore() {
                    self.begins_epoch = true;
                    saw(now, "restored from the backup", out);
                }
                self.start(now, out);
            }
            // It runs already; and of clocks the caller has told with `now`.
            ControllerAct::Starts | ControllerAct::ClockJumps(_) => {}
        }
    }

    pub(super) fn start(&mut self, now: Now, out: &mut Vec<ControllerOut>) {
        self.starts += 1;
        self.starts_again = None;
        let config = Config {
            begin_epoch: self.begins_epoch,
            ..self.config.clone()
        };
        let epoch = format!("e{}", self.starts);
        let instance = format!("c{}", self.starts);
        saw(now, &format!("starts as {instance}"), out);
        let registry = self.store.load().map_err(|cause| cause.to_string());
        let registry = registry.and_then(|stored| {
            Registry::load(config, &stored, epoch, now).map_err(|cause| cause.to_string())
        });
        let registry = match registry {
            Ok(registry) => registry,
            Err(cause) => panic!("the controller cannot take up what it wrote: {cause}"),
        };
        let mut rounds = Rounds::new(registry);
        let silence = self.config.silence.unwrap_or_default();
        let view = rounds.registry().view();
        let desks = Desks::new(instance, &silence, &view, now.mono);
        let mut steps = Vec::new();
        let table = rounds.table();
        rounds.begin(now, &mut steps);
        self.process = Some(Box::new(Process {
            rounds,
            table,
            view,
            desks,
            is_open: false,
            is_halted: false,
            inbox: VecDeque::new(),
            took_in: false,
        }));
        self.perform(now, steps, out);
    }

    pub(super) fn go_on(&mut self, now: Now, out: &mut Vec<ControllerOut>) {
        let Some(process) = self.process.as_mut().filter(|process| process.is_halted) else {
            return;
        };
        process.is_halted = false;
        saw(now, "goes on", out);
        let due = process.rounds.next_deadline();
        if due.is_some_and(|at| at <= now.mono) && self.chance.hits(Chance::WHOLE / 2) {
            // Timers and what arrived are there at once, and no order is kept between them.
            let mut steps = Vec::new();
            process.rounds.on_deadline(now, &mut steps);
            self.perform(now, steps, out);
        }
        let Some(process) = &mut self.process else {
            return;
        };
        for arrived in std::mem::take(&mut process.inbox) {
            let heard = match &arrived {
                Arrived::Question(asker, question, _) => Some((asker.clone(), question.heard())),
                Arrived::Order(..) => None,
            };
            let before = out.len();
            self.take_in(now, arrived, out);
            if let Some((asker, heard)) = heard
                && !out.iter().skip(before).any(|it| it.turns_away(&asker))
            {
                out.push(ControllerOut::TookIn(asker.host, heard));
            }
        }
    }

    /// Whether it dies instead of doing the next thing.
    pub(super) const fn dies_here(&mut self) -> bool {
        match self.dies_after {
            None => false,
            Some(0) => {
                self.dies_after = None;
                true
            }
            Some(left) => {
                self.dies_after = Some(left - 1);
                false
            }
        }
    }

    /// The process is gone: whoever waits for it learns that by the broken connection.
    pub(super) fn die(&mut self, now: Now, how: &str, out: &mut Vec<ControllerOut>) {
        let Some(process) = self.process.take() else {
            return;
        };
        self.store.abandon();
        saw(now, how, out);
        out.extend(process.inbox.into_iter().map(Arrived::broken));
        process.desks.break_off(out);
        let (persons, askers) = process.rounds.break_off();
        let persons = persons.into_iter();
        out.extend(persons.map(|person| ControllerOut::Answered(person, Outcome::Lost)));
        let askers = askers.into_iter();
        out.extend(askers.map(|asker| ControllerOut::Reply(asker, Reply::Unreachable)));
    }
}
