//! What people ordered, and what they were answered.

use std::sync::Arc;

use portreeve::profile::Profile;
use portreeve::registry::{HostVerb, Refusal, View};

use super::super::coverage::Kind;
use super::super::oracle::Meaning;
use super::super::refusals::{self, Stand};
use super::super::{Verdict, words};
use super::Checks;
use crate::cluster::act::{PersonAct, ServiceNo};
use crate::cluster::controller::Outcome;
use crate::cluster::people::{self, Answered};
use crate::cluster::run::{Cluster, Step};

impl Checks {
    /// Of which service a copy is to be adopted, if that is ordered.
    pub(super) fn adopted(&self, act: &PersonAct) -> Option<ServiceNo> {
        let PersonAct::Host(_, HostVerb::Adopt { replica }) = act else {
            return None;
        };
        self.by_name.get(&replica.service).copied()
    }

    pub(super) fn meaning(&self, act: &PersonAct) -> Option<(ServiceNo, Meaning)> {
        let profile = |no: ServiceNo, generation| {
            let mut profile: Profile = (*self.spec.services[no].profile).clone();
            people::mark(&mut profile, generation);
            Arc::new(profile)
        };
        Some(match act {
            PersonAct::Submit(no) => {
                let profile = Arc::clone(&self.spec.services[*no].profile);
                let replace = false;
                (*no, Meaning::Submit { profile, replace })
            }
            PersonAct::Replace(no, generation) => {
                let profile = profile(*no, *generation);
                let replace = true;
                (*no, Meaning::Submit { profile, replace })
            }
            PersonAct::Scale(no, copies) => (*no, Meaning::Scale(*copies)),
            PersonAct::Start(no) => (*no, Meaning::Start),
            PersonAct::Stop(no) => (*no, Meaning::Stop),
            PersonAct::Restart(no, _) => (*no, Meaning::Nothing),
            PersonAct::Kill(no, index) => (*no, Meaning::Kill(*index)),
            PersonAct::Delete(no) => (*no, Meaning::Delete),
            PersonAct::Host(..) => return None,
        })
    }

    pub(super) fn answers(&mut self, step: &Step, cluster: &Cluster) -> Verdict {
        for answered in &step.answered {
            let Answered {
                person,
                act,
                outcome,
            } = answered;
            match outcome {
                Outcome::Done(answer) => self.oracle.answered(person.0, Some(answer.changed)),
                Outcome::Refused(refusal) => {
                    self.coverage.reach(Kind::Refusal, words::refusal(refusal));
                    self.oracle.answered(person.0, None);
                    // What the store does not take was tried.
                    if !matches!(refusal, Refusal::NotStored { .. }) {
                        self.refused(step, act, cluster)?;
                    }
                }
                Outcome::Unreachable => self.oracle.answered(person.0, None),
                Outcome::Lost => self.oracle.lost(person.0),
            }
            if let PersonAct::Host(no, HostVerb::Down { fenced: true }) = act {
                let host = &mut self.hosts[*no];
                host.numbers.fenced();
                if matches!(outcome, Outcome::Done(_) | Outcome::Lost) {
                    let living = host.living.iter().map(|it| it.name.clone());
                    host.numbers.forswear(living);
                }
            }
            if let PersonAct::Host(no, HostVerb::Down { .. }) = act {
                let may_be_done = matches!(outcome, Outcome::Done(_) | Outcome::Lost);
                self.contacts.answered(*no, may_be_done);
                if may_be_done {
                    self.lives.forsake(*no);
                }
            }
            if let Some(service) = self.adopted(act) {
                self.oracle.is_adopted(service);
            }
            if let PersonAct::Host(no, HostVerb::Remove) = act {
                let host = &mut self.hosts[*no];
                host.removals = host.removals.saturating_sub(1);
                host.rests.forget();
            }
            if let Some(no) = act.service()
                && let Some(view) = cluster.controller().view()
            {
                self.acknowledged(no, view)?;
            }
        }
        Ok(())
    }

    /// An order that was refused before anything else reached the controller.
    fn refused(&mut self, step: &Step, act: &PersonAct, cluster: &Cluster) -> Verdict {
        let (Some((ordered, before)), Some(now)) = (self.ordered.take(), self.stands(cluster))
        else {
            return Ok(());
        };
        let was_due = before.due.is_some_and(|due| due <= step.at);
        if ordered != *act || was_due {
            return Ok(());
        }
        self.coverage.reach(Kind::Looked, "refusals");
        refusals::check(&format!("{act:?}"), &before, &now)
    }

    pub(super) fn stands(&self, cluster: &Cluster) -> Option<Stand> {
        let controller = cluster.controller();
        let registry = controller.registry()?;
        let is_due = controller
            .next_deadline()
            .is_some_and(|due| due <= cluster.now());
        Some(Stand {
            view: Arc::clone(controller.view()?),
            revision: registry.revision(),
            batches: self.batches,
            due: controller.next_deadline(),
            is_at_rest: !is_due && controller.is_up() && !controller.is_storing(),
        })
    }

    pub(super) fn acknowledged(&mut self, no: ServiceNo, view: &View) -> Verdict {
        self.coverage
            .reach(Kind::Looked, "services as acknowledged");
        let name = &self.services[no];
        let seen = view.services.get(name).map(AsRef::as_ref);
        self.oracle.check(no, &name.to_string(), seen)
    }
}
