//! What the controller wants of the attached replicas: told to their jobs, and waited for where no job claims one.

use std::time::Duration;

use portreeve::residency::{ReplicaName, Told, Want};
use portreeve_api::attach::FromAgent;
use portreeve_api::local::WorkerCommand;
use tokio::time::Instant;
use tracing::{info, warn};

use super::ending::unknown_end;
use super::moorage::{Berth, Moorage};
use super::remains::Mark;

impl Moorage {
    pub(super) fn follow_wanted(&mut self) {
        let names: Vec<ReplicaName> = self.wanted.keys().cloned().collect();
        self.tell_address();
        for name in &names {
            let Some(wanted) = self.wanted.get(name) else {
                continue;
            };
            match self.berths.get(name) {
                Some(berth) if berth.ended.is_some() && wanted.desired.want == Want::Forget => {
                    self.berths.remove(name);
                    self.records.remove(name);
                    info!("{name} is forgotten");
                }
                Some(berth) if berth.ended.is_some() => {
                    // The controller does not have the end, or has not acted on it yet.
                }
                Some(_) => self.tell(name),
                None if wanted.desired.want == Want::Forget => {}
                None => {
                    self.unclaimed
                        .entry(name.clone())
                        .or_insert_with(Instant::now);
                }
            }
        }
        self.unclaimed.retain(|name, _| {
            self.wanted
                .get(name)
                .is_some_and(|it| it.desired.want != Want::Forget)
        });
    }

    /// Tells a connected job what is wanted, if it was not told.
    pub(super) fn tell(&mut self, name: &ReplicaName) {
        let Some(wanted) = self.wanted.get(name) else {
            return;
        };
        let now = Told {
            want: wanted.desired.want,
            restart_no: wanted.desired.restart_no,
        };
        let Some(berth) = self.berths.get_mut(name).filter(|it| it.told != Some(now)) else {
            return;
        };
        let order = WorkerCommand::Want {
            want: now.want,
            restart_no: now.restart_no,
        };
        if berth.say(order) {
            berth.told = Some(now);
        }
    }

    pub(super) fn tell_address(&mut self) {
        let published = self.channels.observed.borrow_and_update().published;
        let Some(address) = published else { return };
        for (name, berth) in &mut self.berths {
            let wanted = self.wanted.get(name);
            let desired = wanted.map_or(&berth.record.desired, |it| &it.desired);
            let now = (address, desired.addresses.clone());
            if berth.orders.is_none() || berth.addresses.as_ref() == Some(&now) {
                continue;
            }
            let (address, ports) = now.clone();
            if berth.say(WorkerCommand::Address { address, ports }) {
                berth.addresses = Some(now);
            }
        }
    }

    /// Looks after what is waited for.
    pub(super) async fn look(&mut self) {
        let old: Vec<ReplicaName> = self
            .berths
            .iter()
            .filter(|(_, it)| it.ended.is_some_and(|at| at.elapsed() >= ENDED_KEPT))
            .map(|(name, _)| name.clone())
            .collect();
        for name in old {
            self.berths.remove(&name);
            self.records.remove(&name);
        }
        let late: Vec<ReplicaName> = self
            .unclaimed
            .iter()
            .filter(|(_, since)| since.elapsed() >= CLAIMED_WITHIN)
            .map(|(name, _)| name.clone())
            .collect();
        for name in late {
            self.give_up_waiting(name).await;
        }
    }

    /// Tells the end of a replica that no job claimed, unless something of it still lives.
    async fn give_up_waiting(&mut self, name: ReplicaName) {
        let Some(wanted) = self.wanted.get(&name) else {
            return;
        };
        let mark = Mark::of(&name, &self.config.prefix, wanted.desired.uid);
        let looked = tokio::task::spawn_blocking(move || mark.living()).await;
        match looked.expect("looking for processes does not panic") {
            Ok(left) if left.is_empty() => {
                warn!("{name} is wanted here, and no job has it; its end is told");
                let last = wanted.desired.last_status.clone();
                self.unclaimed.remove(&name);
                let end = unknown_end(last.as_ref());
                _ = self.channels.ends.send(self.report_of(&name, end));
            }
            // Its job may be suspended: what lives keeps its ports.
            Ok(_) => {}
            Err(cause) => warn!("what lives of {name} cannot be looked for: {cause}"),
        }
    }
}

impl Berth {
    /// Says it to a connected job; whether it is on its way. A job that does not read is cut off: it comes back and is
    /// told anew.
    fn say(&mut self, order: WorkerCommand) -> bool {
        let sent = self
            .orders
            .as_ref()
            .is_some_and(|orders| orders.try_send(FromAgent::Order(order)).is_ok());
        if !sent {
            self.orders = None;
        }
        sent
    }
}

/// How long a replica that is wanted here and that no job claims is waited for, before its end is told: its record
/// may be lost, and its job comes back by itself within seconds.
const CLAIMED_WITHIN: Duration = Duration::from_secs(60);
/// How long an end is kept that the controller does not ask to forget.
const ENDED_KEPT: Duration = Duration::from_secs(600);
