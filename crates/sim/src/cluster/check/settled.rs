//! A cluster that nobody disturbs any more: it is as people asked, or says of each copy why not.

use std::collections::BTreeSet;

use portreeve::endpoints::{EndpointTable, Entry};
use portreeve::identity::{HostName, Incarnation, ServiceName};
use portreeve::profile::{Profile, Replicas};
use portreeve::registry::{ReplicaView, ServiceView, View};
use portreeve::residency::ReplicaName;
use portreeve::supervision::Final;

use super::super::act::{HostNo, ServiceNo};
use super::lives::Lives;
use super::oracle::{Oracle, Wanted};
use super::{Verdict, broken};

/// What is seen of a cluster that had time to settle.
pub(crate) struct Settled<'a> {
    pub(crate) view: &'a View,
    pub(crate) table: &'a EndpointTable,
    pub(crate) oracle: &'a Oracle,
    pub(crate) lives: &'a Lives,
    /// By their places.
    pub(crate) services: &'a [ServiceName],
    /// Whether this incarnation runs on this host with the environment of this profile.
    pub(crate) is_newest: &'a dyn Fn(HostNo, &ReplicaName, &Profile) -> bool,
    /// How this incarnation told that it ended: what was not written is told anew, and maybe otherwise.
    pub(crate) ends: &'a dyn Fn(&ReplicaName) -> &'a [Final],
    /// Whether people are told that a host is drained.
    pub(crate) is_drained: &'a dyn Fn(HostNo) -> bool,
    /// Whether a host has power: one that was shut down in order stays off.
    pub(crate) is_powered: &'a dyn Fn(&HostName) -> bool,
    /// Whether the scripts of a copy let it be ready for good.
    pub(crate) is_well: &'a dyn Fn(ServiceNo, u32) -> bool,
    /// Whether all processes of a copy are soon gone once they are told to.
    pub(crate) is_mortal: &'a dyn Fn(ServiceNo, u32) -> bool,
    /// Whether it is left alone, since the controller knows nothing of it: the store was set back, or its service was
    /// deleted after an operator's word that it does not run.
    pub(crate) is_unknown: &'a dyn Fn(HostNo, &ReplicaName) -> bool,
}

impl Settled<'_> {
    /// Holds everything against what was asked for.
    pub(crate) fn check(&self) -> Verdict {
        self.hosts_are_heard()?;
        self.drained_are_empty()?;
        for (no, name) in self.services.iter().enumerate() {
            if let Some(wanted) = self.oracle.wanted(no) {
                self.service(no, name, wanted)?;
            }
        }
        Ok(())
    }

    fn hosts_are_heard(&self) -> Verdict {
        for host in self.view.hosts.values() {
            let is_there = matches!(host.state.as_str(), "up" | "draining" | "drained");
            if !is_there && (self.is_powered)(&host.host) {
                let text = format!("{} is still {}", host.host, host.state);
                return broken("converges", text);
            }
        }
        Ok(())
    }

    /// Nothing lives where nothing is to live: a drain is over, or says who is left.
    fn drained_are_empty(&self) -> Verdict {
        for (service, index) in self.lives.all() {
            let no = self.services.iter().position(|it| it == service);
            if !no.is_some_and(|no| (self.is_mortal)(no, index)) {
                continue;
            }
            for (no, incarnation) in self.lives.of(service, index) {
                let name = named(service, index, incarnation);
                if (self.is_drained)(no) && !(self.is_unknown)(no, &name) {
                    let text = format!("{name} lives on host {no}, which is drained");
                    return broken("nothing lives on a drained host", text);
                }
            }
        }
        Ok(())
    }

    fn service(&self, no: ServiceNo, name: &ServiceName, wanted: Option<&Wanted>) -> Verdict {
        self.nothing_else_lives(no, name, wanted)?;
        let seen = self.view.services.get(name).map(AsRef::as_ref);
        let (Some(wanted), Some(seen)) = (wanted, seen) else {
            return match (wanted, seen) {
                (None, None) => Ok(()),
                (wanted, _) => {
                    let is_wanted = wanted.is_some();
                    broken(
                        "converges",
                        format!("{name}: wanted {is_wanted}, and is not so"),
                    )
                }
            };
        };
        let copies = match wanted.copies {
            Replicas::Count(copies) => copies,
            Replicas::PerHost => seen.desired,
        };
        let mut all_well = true;
        for index in 0..copies {
            let is_well = (self.is_well)(no, index);
            all_well &= is_well;
            if wanted.is_wanted(index) == Some(true) {
                let is_mortal = (self.is_mortal)(no, index);
                self.copy(name, index, seen, (is_well, is_mortal))
                    .or_else(|what| broken("converges", format!("{name}/{index} {what}")))?;
            }
        }
        // One that is not wanted and cannot end is waited for as well.
        let mut there = seen.replicas.iter();
        all_well &= there.all(|it| (self.is_well)(no, it.replica));
        if all_well
            && wanted.running
            && let Some(under_way) = &seen.under_way
            && seen.replicas.iter().all(|it| it.job_state == "RUN")
        {
            let text = format!("{name}: {under_way}, though every copy is well");
            return broken("converges", text);
        }
        Ok(())
    }

    /// Only what is wanted lives, and once.
    fn nothing_else_lives(
        &self,
        no: ServiceNo,
        name: &ServiceName,
        wanted: Option<&Wanted>,
    ) -> Verdict {
        let living: BTreeSet<u32> = self
            .lives
            .all()
            .filter_map(|(service, index)| (service == name).then_some(index))
            .collect();
        for index in living {
            if !(self.is_mortal)(no, index) {
                continue;
            }
            let places = self.lives.of(name, index);
            let places: Vec<(HostNo, _)> = places
                .filter(|(no, it)| !(self.is_unknown)(*no, &named(name, index, *it)))
                .collect();
            if places.is_empty() {
                continue;
            }
            if places.len() > 1 {
                let text = format!("{name}/{index} lives {} times: {places:?}", places.len());
                return broken("one incarnation lives in the end", text);
            }
            let may_live = wanted.is_some_and(|it| it.is_wanted(index) != Some(false));
            if !may_live {
                let text = format!(
                    "{name}/{index} lives on host {} and is not wanted",
                    places[0].0
                );
                return broken("converges", text);
            }
        }
        Ok(())
    }

    /// One copy that is wanted: it runs, or says why not.
    fn copy(
        &self,
        name: &ServiceName,
        index: u32,
        seen: &ServiceView,
        (is_well, is_mortal): (bool, bool),
    ) -> Result<(), String> {
        let Some(replica) = seen.replicas.of(index) else {
            return Err("is missing".to_owned());
        };
        let has_reason = replica.reason.as_ref().is_some_and(|it| !it.is_empty());
        let text = || {
            format!(
                "is {} {}: {:?}",
                replica.job_state, replica.state, replica.reason
            )
        };
        match replica.job_state.as_str() {
            "PEND" if has_reason => Ok(()),
            // One that ends again and again, and did a moment ago: the word of that is on its way.
            "RUN" if replica.ready && !is_well && self.lives.of(name, index).next().is_none() => {
                Ok(())
            }
            "RUN" if replica.ready => self.serves(name, replica, seen),
            // Why a copy that fails by its script is not ready is told by its last failure.
            "RUN" if !is_well && (has_reason || replica.last_failure.is_some()) => Ok(()),
            // Its script does not say when it would be ready.
            "RUN" if !is_well && (replica.state != "stopping" || !is_mortal) => Ok(()),
            "DONE" | "EXIT" if has_reason => self.ended(name, replica, seen),
            _ => Err(text()),
        }
    }

    /// A copy that is ready lives where it is said to, as it was last asked for, and is listed.
    fn serves(
        &self,
        name: &ServiceName,
        replica: &ReplicaView,
        seen: &ServiceView,
    ) -> Result<(), String> {
        let incarnation = replica.incarnation;
        let lives: Vec<_> = self.lives.of(name, replica.replica).collect();
        if lives.is_empty() {
            return Err("is ready and does not live".to_owned());
        }
        // What nothing can end may live beside it, where it was given up.
        let Some((no, _)) = lives.iter().find(|(_, it)| *it == incarnation) else {
            return Err(format!(
                "is ready as incarnation {incarnation} and lives as {lives:?}"
            ));
        };
        let this = named(name, replica.replica, incarnation);
        if seen.under_way.is_none() && !(self.is_newest)(*no, &this, &seen.profile) {
            return Err(format!(
                "is ready as incarnation {incarnation} and does not run with the newest profile"
            ));
        }
        let is_listed = self.table.read(name, |snapshot| {
            let entry = snapshot.entry(&replica.replica);
            entry.is_some_and(|(it, _)| it.incarnation == incarnation && it.is_listed())
        });
        if is_listed == Some(true) {
            Ok(())
        } else {
            Err("is ready and not listed".to_owned())
        }
    }

    /// A copy that was wanted and ended: by itself, or by a loss after which it is not to be run again.
    fn ended(
        &self,
        name: &ServiceName,
        replica: &ReplicaView,
        seen: &ServiceView,
    ) -> Result<(), String> {
        let name = ReplicaName {
            service: name.clone(),
            index: replica.replica,
            incarnation: replica.incarnation,
        };
        let ends = (self.ends)(&name);
        let is_right = match replica.state.as_str() {
            "completed" => ends.iter().any(|it| matches!(it, Final::Succeeded)),
            "gave up" => ends.iter().any(|it| matches!(it, Final::GaveUp { .. })),
            // Also what could not even begin on its host.
            "failed" => true,
            "stopped" | "killed" => false,
            _ => !seen.profile.rerunnable,
        };
        if is_right {
            Ok(())
        } else {
            let (state, reason) = (&replica.state, &replica.reason);
            Err(format!(
                "ended as {state} ({reason:?}); its machine told {ends:?}"
            ))
        }
    }
}

fn named(service: &ServiceName, index: u32, incarnation: Incarnation) -> ReplicaName {
    ReplicaName {
        service: service.clone(),
        index,
        incarnation,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portreeve::identity::Run;
    use portreeve::supervision::State;

    use super::super::numbers::Life;
    use super::super::oracle::Meaning;
    use super::super::stage::{Stage, profile};
    use super::*;

    struct World {
        stage: Stage,
        oracle: Oracle,
        lives: Lives,
        is_newest: bool,
        is_drained: bool,
        names: Vec<ServiceName>,
        is_set_back: bool,
    }

    impl World {
        /// Two copies are wanted, are placed, live and are ready.
        fn new() -> Self {
            let rest = "replicas = 2\n[ports]\nhttp = \"any\"\n";
            let mut stage = Stage::new("20000-20009");
            let name = stage.submit("web", rest);
            let mut world = Self {
                stage,
                oracle: Oracle::default(),
                lives: Lives::default(),
                is_newest: true,
                is_drained: false,
                names: vec![name],
                is_set_back: false,
            };
            let profile = Arc::new(profile("web", rest));
            world.order(Meaning::Submit {
                profile,
                replace: true,
            });
            let placed = world.stage.placed();
            for (seq, one) in (1..).zip(&placed) {
                world.stage.becomes(&one.name, seq, State::Up);
            }
            let living: Vec<Life> = placed
                .into_iter()
                .map(|it| Life {
                    name: it.name,
                    run: Run(1),
                    is_main: true,
                })
                .collect();
            world.lives.check(0, "n1", &living, |_| false).unwrap();
            world
        }

        fn order(&mut self, meaning: Meaning) {
            self.oracle.asked(1, 0, meaning);
            self.oracle.answered(1, Some(true));
        }

        fn check(&self) -> Result<(), Box<str>> {
            let settled = Settled {
                view: &self.stage.registry.view(),
                table: &self.stage.table,
                oracle: &self.oracle,
                lives: &self.lives,
                is_newest: &|_, _, _| self.is_newest,
                ends: &|_| &[],
                is_drained: &|_| self.is_drained,
                services: &self.names,
                is_powered: &|_| true,
                is_well: &|_, _| true,
                is_mortal: &|_, _| true,
                is_unknown: &|_, _| self.is_set_back,
            };
            settled.check().map_err(|it| it.to_string().into())
        }

        fn fails(&self, because: &str) {
            let found = self.check().unwrap_err();
            assert!(found.contains(because), "{found}");
        }
    }

    #[test]
    fn a_cluster_that_is_as_asked_has_settled() {
        assert_eq!(World::new().check(), Ok(()));
    }

    #[test]
    fn what_is_wanted_and_missing_or_there_and_not_wanted_is_found() {
        let mut world = World::new();
        world.order(Meaning::Scale(3));
        world.fails("web.alice/2 is missing");
        let mut world = World::new();
        world.order(Meaning::Kill(1));
        world.fails("lives on host 0 and is not wanted");
        let mut world = World::new();
        world.order(Meaning::Kill(1));
        world.is_set_back = true;
        assert_eq!(world.check(), Ok(()), "nobody ends what is not known");
        let mut world = World::new();
        world.order(Meaning::Delete);
        world.fails("lives on host 0 and is not wanted");
        let mut world = World::new();
        let name = world.stage.placed()[0].name.clone();
        world.stage.becomes(&name, 9, State::Startup);
        world.fails("web.alice/0 is RUN starting");
        let mut world = World::new();
        let name = world.stage.placed()[0].name.clone();
        world
            .stage
            .becomes(&name, 9, State::Final(Final::Succeeded));
        world.fails("its machine told []");
    }

    #[test]
    fn a_copy_that_lives_twice_or_not_at_all_is_found() {
        let mut world = World::new();
        world.lives.check(0, "n1", &[], |_| false).unwrap();
        world.fails("is ready and does not live");
        let mut world = World::new();
        world.lives.forsake_all();
        let mut name = world.stage.placed()[0].name.clone();
        name.incarnation = Incarnation(7);
        let other = Life {
            name,
            run: Run(1),
            is_main: true,
        };
        world.lives.check(1, "n2", &[other], |_| false).unwrap();
        world.fails("lives 2 times");
    }

    #[test]
    fn a_copy_with_an_older_profile_is_found() {
        let mut world = World::new();
        world.is_newest = false;
        world.fails("does not run with the newest profile");
    }

    #[test]
    fn what_lives_on_a_drained_host_is_found() {
        let mut world = World::new();
        world.is_drained = true;
        world.fails("which is drained");
        // What only the host knows of is ended by nobody.
        world.is_set_back = true;
        assert_eq!(world.check(), Ok(()));
    }

    #[test]
    fn a_ready_copy_that_is_not_listed_is_found() {
        let world = World::new();
        let revision = world.stage.table.revision() + 1;
        world.stage.table.publish(revision, vec![], &world.names);
        world.fails("is ready and not listed");
    }
}
