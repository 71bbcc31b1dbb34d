//! Which copies can be ready for good by their scripts: only of those it is asked that they are.

use std::sync::Arc;
use std::time::Duration;

use portreeve::supervision::ProbeOutcome;

use super::super::spec::{ServiceSpec, Spec};
use super::settling::OUTLIVES;
use crate::scenario::{Answer, Binds, RunScript, Scripts};

/// Whether no run of the copy ever ends or fails by its script.
pub(crate) fn is_well(service: &ServiceSpec, index: u32) -> bool {
    scripts(service, index).is_none_or(|it| is_well_by(it))
}

/// Whether every run of the copy is soon gone once it is killed.
pub(crate) fn is_mortal(service: &ServiceSpec, index: u32) -> bool {
    scripts(service, index).is_none_or(|it| it.each().all(ends))
}

fn scripts(service: &ServiceSpec, index: u32) -> Option<&Arc<Scripts>> {
    let own = service.scripts.get(&Some(index));
    own.or_else(|| service.scripts.get(&None))
}

fn ends(script: &RunScript) -> bool {
    script.killable && script.leftover.is_some_and(|it| it <= OUTLIVES)
}

/// Whether nothing happens by itself in the cluster: every copy of every service is well.
pub(crate) fn is_at_rest(spec: &Spec) -> bool {
    let mut all = spec.services.iter().flat_map(|it| it.scripts.values());
    all.all(|scripts| is_well_by(scripts))
}

fn is_well_by(scripts: &Scripts) -> bool {
    scripts.each().all(is_well_in)
}

/// What takes longer than this to come up may be restarted for it, by its own profile.
const SOON: Duration = Duration::from_secs(1);

fn is_well_in(script: &RunScript) -> bool {
    let is_ok = |answer: Answer| matches!(answer, Answer::After(takes, ProbeOutcome::Ok) if takes.is_zero());
    let pre_exec_ends = script
        .pre_exec
        .is_none_or(|(_, status)| status == portreeve::supervision::ExitStatus::Code(0));
    script.spawn_error.is_none()
        && pre_exec_ends
        && script.exit.is_none()
        && ends(script)
        && script.binds_after <= SOON
        && script.spawn_takes <= SOON
        && script.hangs.is_none()
        && script.binds == Binds::Granted
        && script.probes.iter().all(|probe| is_ok(probe.answer))
}
