//! Drives the attendance of one replica: what happened goes in, what is to be done is done.
//!
//! One wake-up is one instant: the clock is read once, every source that is ready is drained, and what
//! [`Attendance`] makes of it is done in its order. Nothing is decided here.

mod act;

use std::collections::BTreeMap;

use portreeve::attendance::{
    Attendance, Beginning, Contact, Ended, Found, Happened, Order, Output, ProcessEvent, Stranger,
    Surroundings, Token,
};
use portreeve::identity::Run;
use portreeve::supervision::ProbeKind;
use portreeve::time::{Monotonic, Now, Spelled};
use portreeve_api::local::{Assignment, ReplicaFolder, Tokens, WorkerCommand};
use tokio::sync::oneshot;

use crate::backend::{Backend, BackendEvent};
use crate::clock::Clock;
use crate::conflict;
use crate::file::{self, Durability};
use crate::job::{self, Job};
use crate::journal::Journal;
use crate::limits::Limits;
use crate::orders;
use crate::probe::{Leftovers, SourcePorts};
use crate::probing::Probing;
use crate::sources::{Sources, Woken};
use crate::unwritten;
use crate::worker::Teller;

use portreeve_api::local::WorkerAnswer;

/// One replica under supervision.
pub(crate) struct Driver {
    pub(crate) clock: Clock,
    pub(crate) folder: ReplicaFolder,
    pub(crate) assignment: Assignment,
    pub(crate) attendance: Attendance,
    pub(crate) journal: Journal,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) probing: Probing,
    pub(crate) limits: Limits,
    pub(crate) teller: Teller,
    pub(crate) inside: Inside,
}

/// What a driver knows of its replica from the inside; a new worker begins without it.
#[derive(Default)]
pub(crate) struct Inside {
    /// The living run.
    job: Option<Job>,
    /// What probes by a command left, by kind.
    leftovers: BTreeMap<ProbeKind, Leftovers>,
    /// Where connections of probes begin.
    sources: SourcePorts,
    /// The newest run of which something was told that is not written down, as noted in the folder.
    unwritten: Option<Run>,
    /// What was found at once, to be handed over at the next turn.
    found: Vec<ProcessEvent>,
}

/// Where an answer goes, and what only the driver could refuse.
struct Reply {
    to: oneshot::Sender<WorkerAnswer>,
    refused: Option<String>,
}

impl Driver {
    /// Begins, or takes over from an earlier worker, and drives until nothing is left to do.
    pub(crate) async fn run(mut self, mut sources: Sources) -> Ended {
        self.begin(&mut sources).await;
        loop {
            if let Some(ended) = self.attendance.ended() {
                self.journal.end(&mut self.attendance);
                return ended;
            }
            self.probing.plan(&mut self.attendance);
            let until = if self.inside.found.is_empty() {
                self.attendance.next_deadline()
            } else {
                Some(Monotonic::default())
            };
            let woken = sources.next(until).await;
            self.turn(self.clock.now(), woken);
        }
    }

    /// Starts the first run, or finds out what became of the newest one.
    async fn begin(&mut self, sources: &mut Sources) {
        self.look_at_sources();
        let recorded = self.attendance.run();
        self.inside.unwritten = unwritten::newest(&self.folder);
        let noted = self.inside.unwritten.unwrap_or_default();
        let mut unrecorded = noted.0.saturating_sub(recorded.0);
        for run in job::runs_after(&self.folder, recorded) {
            tracing::warn!("run {run} was begun and is not recorded; what is left of it is ended");
            self.backend.end_unrecorded(run).await;
            job::remove_run(&self.folder, run);
            // Folders of earlier ones may be removed already.
            unrecorded = unrecorded.max(run.0.saturating_sub(recorded.0));
        }
        self.journal.turn(self.clock.now(), &mut self.attendance);
        let found = if self.attendance.takes_over() && unrecorded == 0 {
            self.look_for_run(sources).await
        } else {
            Found::Nothing
        };
        let beginning = Beginning {
            unrecorded,
            is_behind: self.inside.unwritten.is_some(),
            found,
            want: self.assignment.desired.want,
            restart_no: self.assignment.desired.restart_no,
        };
        let now = self.clock.now();
        let mut out = Vec::new();
        let (attendance, mut around) = self.parts();
        attendance.begin(now, beginning, &mut around, &mut out);
        self.carry_out(now, out);
    }

    async fn look_for_run(&mut self, sources: &mut Sources) -> Found {
        let run = self.attendance.run();
        self.backend.adopt(run);
        let found = loop {
            match sources.backend.recv().await {
                Some(BackendEvent::Adopted { run: of, found }) if of == run => break found,
                Some(_) => {}
                None => break Found::Nothing,
            }
        };
        match found {
            Found::Begun { .. } => tracing::info!("took over run {run}"),
            Found::Nothing => tracing::info!("the worker before did not begin run {run}"),
        }
        match self.read_job(run) {
            Ok(job) => self.inside.job = Some(job),
            // It runs already; only probes need it, and they say so.
            Err(cause) => tracing::warn!("run {run}: {cause}"),
        }
        found
    }

    /// One instant.
    fn turn(&mut self, now: Now, woken: Woken) {
        self.journal.turn(now, &mut self.attendance);
        let mut happened = Happened {
            lifeline_ended: woken.lifeline_ended,
            orders: Vec::new(),
            processes: std::mem::take(&mut self.inside.found),
            probes: woken.probes,
        };
        happened.processes.extend(woken.processes);
        if happened.lifeline_ended {
            tracing::info!("the process this replica's life hangs on has ended");
        }
        for (command, to) in woken.orders {
            let order = self.order(command);
            happened.orders.push((
                order.0,
                Reply {
                    to,
                    refused: order.1,
                },
            ));
        }
        for end in &happened.probes {
            self.probing.ended(end);
        }
        let leaving = self.attendance.record().leaving();
        let mut out = Vec::new();
        let (attendance, mut around) = self.parts();
        attendance.turn(now, &mut happened, &mut around, &mut out);
        if let (None, Some(why)) = (leaving, self.attendance.record().leaving()) {
            tracing::warn!("the service is stopped: {why}");
        }
        self.carry_out(now, out);
    }

    /// What a command means to the attendance; with why it was not done, where that is known already.
    fn order(&mut self, command: WorkerCommand) -> (Order, Option<String>) {
        match orders::order(command) {
            Ok(order) => (order, None),
            Err(tokens) => (Order::Tell, self.renew(tokens)),
        }
    }

    /// The job finds its own where it found the one before.
    fn renew(&mut self, tokens: Tokens) -> Option<String> {
        if self.assignment.tokens != tokens {
            let (path, job) = (self.folder.token(), tokens.job.as_bytes());
            if let Err(cause) = file::write(&path, job, Durability::Written) {
                return Some(format!("the token file cannot be written: {cause}"));
            }
            self.teller.renew(&tokens.worker);
            self.assignment.tokens = tokens;
        }
        None
    }

    /// The attendance, and what it may ask.
    fn parts(&mut self) -> (&mut Attendance, Around<'_>) {
        let around = Around {
            limits: &self.limits,
            backend: &*self.backend,
            assignment: &self.assignment,
        };
        (&mut self.attendance, around)
    }

    /// Does everything in its order; the record of events is written between the record and what is told of it.
    fn carry_out(&mut self, now: Now, out: Vec<Output<Reply>>) {
        let mut out = out.into_iter().peekable();
        if let Some(Output::Write { status }) =
            out.next_if(|one| matches!(one, Output::Write { .. }))
        {
            self.write_down(now, status);
        }
        self.journal.write(&mut self.attendance);
        for one in out {
            self.act(now, one);
        }
    }
}

/// What an attendance asks of this host.
struct Around<'a> {
    limits: &'a Limits,
    backend: &'a dyn Backend,
    assignment: &'a Assignment,
}

impl Surroundings for Around<'_> {
    fn contact(&mut self) -> Option<Contact> {
        self.limits.contact()
    }

    fn restart_token(&mut self, now: Monotonic, run: Run) -> Token {
        let token = self.limits.restart(now);
        if let Token::After(wait) = token
            && !wait.is_zero()
        {
            tracing::info!(
                "run {run} begins in {}: many processes are started on this host",
                Spelled(wait)
            );
        }
        token
    }

    fn stranger_after(&mut self, _run: Run) -> Option<Stranger> {
        let desired = &self.assignment.desired;
        conflict::at_exit(
            &desired.grant,
            &desired.profile.ports,
            self.backend.root().as_ref(),
        )
    }
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod tests;
