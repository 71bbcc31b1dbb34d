//! What the controller wants of the attached replicas: told to their jobs, and waited for where no job claims one.

use std::io;
use std::path::Path;
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

    /// Tells a connected job what is wanted, if it was not told, and by what the controller knows it.
    pub(super) fn tell(&mut self, name: &ReplicaName) {
        let Some(wanted) = self.wanted.get(name) else {
            return;
        };
        if let Some(berth) = self.berths.get_mut(name)
            && (berth.token.as_ref()).is_some_and(|token| *token != wanted.tokens.worker)
        {
            let tokens = wanted.tokens.clone();
            let worker = tokens.worker.clone();
            if berth.say(WorkerCommand::Renew { tokens }) {
                berth.token = Some(worker);
            }
        }
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
    pub(super) fn look(&mut self) {
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
        let marked = late.into_iter().filter_map(|name| {
            let uid = self.wanted.get(&name)?.desired.uid;
            // No job told its folder; what lives is only counted, so one too many only keeps the ports.
            let mark = Mark::of(&name, &self.config.prefix, uid, Path::new(""));
            Some((name, mark))
        });
        let marked: Vec<(ReplicaName, Mark)> = marked.collect();
        // A hostile process can make it hang to be looked at: nobody waits for that but the next look.
        if !marked.is_empty() && self.looks.is_empty() {
            self.looks.spawn_blocking(move || {
                let all = marked.into_iter();
                all.map(|(name, mark)| (name, mark.living().map(|left| left.len())))
                    .collect()
            });
        }
    }

    /// Tells the ends of replicas that no job claimed and of which nothing lives.
    pub(super) fn looked(&mut self, looked: Vec<Looked>) {
        for (name, left) in looked {
            match left {
                Ok(0) => {}
                // Its job may be suspended: what lives keeps its ports.
                Ok(_) => continue,
                Err(cause) => {
                    warn!("what lives of {name} cannot be looked for: {cause}");
                    continue;
                }
            }
            // Unless it was claimed, or is wanted no longer, meanwhile.
            let (Some(_), Some(wanted)) = (self.unclaimed.remove(&name), self.wanted.get(&name))
            else {
                continue;
            };
            warn!("{name} is wanted here, and no job has it; its end is told");
            let end = unknown_end(wanted.desired.last_status.as_ref());
            _ = self.channels.ends.send(self.report_of(&name, end));
        }
    }
}

/// How many processes of a replica live.
pub(super) type Looked = (ReplicaName, io::Result<usize>);

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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use portreeve::profile::Profile;
    use portreeve::registry::{Desired, ReplicaReport};
    use portreeve::supervision::{Final, State};
    use portreeve_api::body::DesiredReplica;
    use portreeve_api::local::Tokens;
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::Config;
    use crate::attached::{Channels, Message};
    use crate::facts::Observed;

    /// A moorage that nothing but its test speaks with.
    struct Alone {
        say: mpsc::Sender<Message>,
        ends: mpsc::UnboundedReceiver<ReplicaReport>,
        observed: watch::Sender<Observed>,
        prefix: String,
        _state: tempfile::TempDir,
    }

    impl Alone {
        fn new() -> Self {
            let state = tempfile::tempdir().unwrap();
            let (say, inbox) = mpsc::channel(16);
            let (tell, ends) = mpsc::unbounded_channel();
            let (observed, observed_seen) = watch::channel(Observed::default());
            let prefix = format!("WANTED{}_", state.path().file_name().unwrap().display());
            let config = Config {
                state: state.path().to_owned(),
                prefix: prefix.clone(),
                ..Config::default()
            };
            let channels = Channels {
                inbox,
                ends: tell,
                granted: watch::channel(crate::facts::Granted::default()).0,
                observed: observed_seen,
            };
            let boot = "this boot".to_owned();
            let moorage = Moorage::open(Arc::new(config), boot, channels).unwrap();
            tokio::spawn(moorage.run());
            Self {
                say,
                ends,
                observed,
                prefix,
                _state: state,
            }
        }

        async fn want(&self, want: Want) {
            let wanted = Message::Wanted(vec![wanted(want)]);
            self.say.send(wanted).await.unwrap();
        }
    }

    fn wanted(want: Want) -> DesiredReplica {
        let profile = "kind = \"service\"\nname = \"web\"\ncommand = [\"true\"]\n";
        let checked = Profile::from_toml(profile);
        DesiredReplica {
            desired: Desired {
                service: "web.alice".parse().unwrap(),
                service_id: portreeve::identity::ServiceId(1),
                index: 3,
                incarnation: portreeve::identity::Incarnation(7),
                want,
                restart_no: 0,
                grant: portreeve::port_pool::PortGrant::default(),
                profile: checked
                    .unwrap_or_else(|errors| panic!("{errors}"))
                    .profile
                    .into(),
                user: "alice".to_owned(),
                uid: rustix::process::geteuid().as_raw(),
                last_status: None,
                attached: true,
                addresses: Default::default(),
            },
            tokens: Tokens {
                worker: "secret".to_owned(),
                job: "job".to_owned(),
            },
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_no_job_claims_for_a_minute_is_told_as_ended_and_not_before() {
        let mut alone = Alone::new();
        let since = Instant::now();
        alone.want(Want::Run).await;
        // The host has much to tell meanwhile, more often than is looked.
        let observed = alone.observed.clone();
        let chatter = tokio::spawn(async move {
            loop {
                observed.send_modify(|observed| observed.conditions.push(String::new()));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let end = alone.ends.recv().await.unwrap();
        assert!(since.elapsed() >= CLAIMED_WITHIN, "{:?}", since.elapsed());
        assert!(
            since.elapsed() < CLAIMED_WITHIN * 2,
            "{:?}",
            since.elapsed()
        );
        assert_eq!((end.index, end.incarnation.0), (3, 7));
        assert!(matches!(end.status.state, State::Final(Final::Failed(_))));
        chatter.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_no_longer_is_not_told() {
        let mut alone = Alone::new();
        alone.want(Want::Run).await;
        tokio::time::sleep(CLAIMED_WITHIN / 2).await;
        alone.want(Want::Forget).await;
        let told = tokio::time::timeout(CLAIMED_WITHIN * 3, alone.ends.recv()).await;
        assert!(told.is_err(), "{told:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unclaimed_replica_of_which_something_lives_keeps_its_numbers_till_that_ends() {
        let mut alone = Alone::new();
        let prefix = &alone.prefix;
        // As of a job that is suspended: it lives and does not speak.
        let mut lives = Command::new("sleep")
            .arg("1000")
            .env(format!("{prefix}SERVICE"), "web")
            .env(format!("{prefix}NAMESPACE"), "alice")
            .env(format!("{prefix}REPLICA"), "3")
            .env(format!("{prefix}INCARNATION"), "7")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        alone.want(Want::Run).await;
        let told = tokio::time::timeout(CLAIMED_WITHIN * 5, alone.ends.recv()).await;
        lives.kill().unwrap();
        lives.wait().unwrap();
        assert!(told.is_err(), "{told:?}");
        assert_eq!(alone.ends.recv().await.unwrap().index, 3);
    }
}
